"""Stored snapshots and runs over time: intervals and trends."""
