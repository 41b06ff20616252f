"""Snapshots: their data (``sources.toml``), how it is read (``taking``), and the tables (``frames``)."""

from dbdyno.engines.postgres.snapshots.taking import Snapshots

__all__ = ["Snapshots"]
