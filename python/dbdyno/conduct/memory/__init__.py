"""Reads where the memory is: at the ends of measurements, beside an observation, and on demand."""
