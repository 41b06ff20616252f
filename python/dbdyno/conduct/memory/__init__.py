"""Where the memory is: read at the ends of measurements, beside an observation, on demand."""
