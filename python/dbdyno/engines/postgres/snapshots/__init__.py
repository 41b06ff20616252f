"""Snapshots: what is read (``sources.toml``), how (``taking``), and the tables made of it (``frames``)."""

from dbdyno.engines.postgres.snapshots.taking import Snapshots

__all__ = ["Snapshots"]
