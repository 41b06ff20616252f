"""Triggers: when they fire, what they do, and what they captured."""
