"""Conclusions about machines: comparisons of two machines, and conditions that spoil figures."""
