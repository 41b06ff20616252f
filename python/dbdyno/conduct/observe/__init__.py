"""Observations of somebody else's load, window after window, of one server or several."""
