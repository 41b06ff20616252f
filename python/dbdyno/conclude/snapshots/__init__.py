"""Conclusions from two snapshots, and from the history of one figure."""
