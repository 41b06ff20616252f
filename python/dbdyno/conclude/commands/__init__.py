"""Conclusions about commands: durations, speed-up, order."""
