"""Where every second of every session went, first form: exact CPU and run queue, sampled waits. Pure.

The tables come from the room window (:data:`dbdyno.model.cut.CUT`). The accounts of a session add up to its
W by ``unaccounted``, which is signed, never clipped and always there; the rung is the sum of its sessions.
"""

from dbdyno.ledger.accounts import ledger
from dbdyno.ledger.witnesses import witnesses

__all__ = ["ledger", "witnesses"]
