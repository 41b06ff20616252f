"""Limits on the server's processes: CPUs, memory nodes, quota, weight; and binding of one session to one CPU.

The order is: ``check`` before the start, ``apply`` before the sessions connect, ``pin`` after that,
``Applied.undo`` at the end; ``undo`` with the journal of a killed run. The journal names every change before
it is made.

A cpuset control group is enough for ``cpus``: the kernel narrows the masks of all processes in it.
Affinity alone is used only if no group can be created, and the report says so.
"""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.limits.binding import bind_order, order, pin
    from dbdyno.limits.check import check, check_spec, seen
    from dbdyno.limits.means import Applied, Means, apply, decide, undo
    from dbdyno.limits.places import other_host

lazy(__name__)
