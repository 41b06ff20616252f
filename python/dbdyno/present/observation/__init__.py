"""Servers that were observed together, and clusters."""
