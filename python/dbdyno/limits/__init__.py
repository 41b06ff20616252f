"""Limits on the server's processes: CPUs, memory nodes, quota, weight; and one session, one CPU.

``check`` before the start, ``apply`` before the sessions connect, ``pin`` when they have, ``Applied.undo``
at the end; ``undo`` with what the journal of a killed run holds. Nothing is changed that the journal does
not name first.

A cpuset control group is enough for ``cpus``: the kernel narrows the masks of all processes in it. Only
where none can be made affinity alone has to do, and that is said.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.limits.binding import bind_order, order, pin
    from dbdyno.limits.check import check, check_spec, seen
    from dbdyno.limits.means import Applied, Means, apply, decide, undo
    from dbdyno.limits.places import other_host


lazy(
    __name__,
    {
        "Applied": "dbdyno.limits.means",
        "Means": "dbdyno.limits.means",
        "apply": "dbdyno.limits.means",
        "bind_order": "dbdyno.limits.binding",
        "check": "dbdyno.limits.check",
        "check_spec": "dbdyno.limits.check",
        "decide": "dbdyno.limits.means",
        "order": "dbdyno.limits.binding",
        "other_host": "dbdyno.limits.places",
        "pin": "dbdyno.limits.binding",
        "seen": "dbdyno.limits.check",
        "undo": "dbdyno.limits.means",
    },
)
