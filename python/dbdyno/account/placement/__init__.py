"""Sessions that were started together: where calls ran, whether they were served alike, and if not, why."""

from dbdyno.account.placement.table import placement

__all__ = ["placement"]
