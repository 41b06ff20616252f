"""Data sources, and an engine's families of waits and areas of code."""
