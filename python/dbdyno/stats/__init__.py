"""Intervals, tests and fits: mathematics that knows nothing of databases. Pure."""
