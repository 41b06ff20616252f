"""Checks that the data and sessions of a run fit into free memory; otherwise the swap device would be
measured."""

from __future__ import annotations

from dbdyno import observe
from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import NotAvailable
from dbdyno.model.plan.plan import Plan, Value, Workload
from dbdyno.model.units import counted, format_size

SESSION_BYTES = 10 << 20
"""Memory of a session: its process, page tables, and sorts and hashes of short calls."""


def check_room(server: Server, plan: Plan, workload: Workload) -> None:
    """Raises :class:`NotAvailable` if the server's cache of a variant, the sessions, and data that must be
    in memory do not fit. The error names the variant unless it is the same with all.

    The free memory of another host is unknown, so nothing is checked there.
    """
    facts = server.facts()
    if server.resetting is None or server.world is not None or not facts.here:
        return
    caches = {v.name: server.resetting.cache_bytes(v.settings) or 0 for v in plan.variants if v.settings}
    cache = max(caches.values(), default=0)
    data = data_bytes(plan, workload) if plan.experiment.expect == "memory" else 0
    free = observe.free_memory(facts.main_pid, server.machine.root)
    needed = cache + data + plan.top * SESSION_BYTES
    if not cache + data or free is None or needed <= free.bytes:
        return
    error = NotAvailable(
        f"{_parts(cache, data, plan.top)} need {format_size(needed)}, and {format_size(free.bytes)} are free "
        f"({free.where}): the machine would swap",
        _cure(plan, workload, free.bytes - plan.top * SESSION_BYTES),
    )
    too_large = [name for name, size in caches.items() if needed - cache + size > free.bytes]
    if 0 < len(too_large) < len(plan.variants):
        error.of_variant(max(too_large, key=caches.__getitem__))
    raise error


def data_bytes(plan: Plan, workload: Workload) -> int:
    """Returns the bytes of the largest variant if the workload's parameters determine them. Tables of single
    sessions count once a session."""
    return max((_of_params(workload, v.params, plan.top) for v in plan.variants), default=0)


def _of_params(workload: Workload, params: dict[str, Value], sessions: int) -> int:
    each = sum(int(params.get(n, 0)) * p.bytes for n, p in workload.parameters.items() if p.bytes is not None)
    return each * (sessions if params.get("tables") == "own" else 1)


def _parts(cache: int, data: int, sessions: int) -> str:
    parts = [f"a cache of {format_size(cache)}"] if cache else []
    parts += [f"data of {format_size(data)}"] if data else []
    return ", ".join(parts) + f" and {counted(sessions, 'session')} ({format_size(SESSION_BYTES)} each)"


def _cure(plan: Plan, workload: Workload, left: int) -> str:
    """Returns the cure. ``left`` is the memory left without the sessions; data may be in both caches."""
    named = next((n for n, p in workload.parameters.items() if p.bytes is not None), None)
    if left <= 0 or named is None or plan.experiment.expect != "memory":
        return "fewer sessions, a smaller cache, or end what else uses memory"
    fits = left // 4 // (workload.parameters[named].bytes or 1)
    return f"fewer sessions (--sessions), smaller data (--param {named}={fits}), or a smaller cache"
