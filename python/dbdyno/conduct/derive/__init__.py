"""Derives all that is shown from stored raw cells."""
