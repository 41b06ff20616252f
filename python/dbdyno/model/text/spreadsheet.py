"""What spreadsheets take for a formula in the cells of a CSV file."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins with one of these gets an apostrophe before it."""
