"""Snapshots and intervals between them, as documents."""
