"""Conclusions about machines: one against another, and conditions that spoil figures."""
