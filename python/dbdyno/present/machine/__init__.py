"""The topology of a machine, in words and drawn."""
