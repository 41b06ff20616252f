"""Ladders: their points and what the rungs show without any model."""
