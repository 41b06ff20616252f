"""Ladders: their points, and conclusions from the rungs without any model."""
