"""Reads and changes processes and control groups by kernel interfaces, for engines and limits."""
