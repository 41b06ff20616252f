"""Intervals, tests, fits: mathematics without a word of databases. Pure."""
