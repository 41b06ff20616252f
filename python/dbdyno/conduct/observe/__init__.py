"""Observes other people's load, window after window, of one server or several."""
