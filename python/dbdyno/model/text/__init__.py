"""Text: how numbers of CPUs are written, and what from outside may be shown."""
