"""Names of counters that an engine reads about once a second in a window, and that have a meaning."""

from __future__ import annotations

FULL_PAGE_IMAGES = "wal_full_page_images"
"""Pages that were written to WAL as a whole. It may be late by :data:`LATE_S`."""
WAL_POSITION = "wal_position"
"""Bytes of WAL that were made since the server was created, without delay."""
CHECKPOINTS_BEGUN = "checkpoints_begun"
"""Checkpoints that began. It may be late until the end of a checkpoint that writes without pauses."""
CHECKPOINT_START = "checkpoint_start"
"""The position in WAL at which the latest complete checkpoint began: it changes when one is complete."""
LATE_S = 1.0
"""Sessions may report what they did only between statements, at most once a second, so growth may be in the
second after."""
