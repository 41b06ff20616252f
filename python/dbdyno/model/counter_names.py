"""Names of counters that more is made of than a line: an engine that counts this calls it so."""

LOG_BYTES = "wal_bytes"
"""Written to the log that makes changes durable; per session or of the whole server."""
CHECKPOINTS = "checkpoints_"
"""How names of counters of checkpoints begin; the cause follows."""
