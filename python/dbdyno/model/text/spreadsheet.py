"""Beginnings of CSV cells that spreadsheets take for formulas."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins with one of these gets an apostrophe before it."""
