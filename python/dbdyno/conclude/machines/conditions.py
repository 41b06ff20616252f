"""Judges conditions of a machine that may spoil figures: one judge per entry of ``conditions.toml``. Pure.

A judge gets the facts of the machine and the server's own settings. All thresholds are in this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources

from dbdyno.model.engine.condition import (
    ASKING,
    RESTART,
    Condition,
    Entry,
    Judged,
    ServerConditions,
    State,
    concluded,
    entries,
)
from dbdyno.model.engine.machine_facts import MachineFacts
from dbdyno.model.schema.data_source import Step
from dbdyno.model.units import NS_PER_S, counted, format_ns, format_percent, format_size, significant

SLOW_CLOCK_NS, VERY_SLOW_CLOCK_NS = 150.0, 400.0
"""A read of tsc takes 20 to 50 ns; one by a system call (xen, hpet, acpi_pm) takes 200 ns to several
microseconds. Figures published for one machine are 36 ns with tsc and 723 ns with acpi_pm."""
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase", "tod")
"""Clock sources that are read in user space by the vDSO (arch/*/include/asm/vdso/clocksource.h); s390 and
POWER have no others."""
FLUSH = "flush"
STEAL, MUCH_STEAL = 0.01, 0.05
"""Shares of CPU time; the first is also the threshold of the claim ``steal`` of a run."""
FAIR_LOOK_S = 5.0
"""Least interval by which steal is judged."""
BUSY = 0.05
"""Share of the CPUs that other processes use."""
_WITHOUT_STEAL = ("Hyper-V", "VirtualBox", "Parallels", "bhyve")
"""Hypervisors that report no steal to their guests, which then read 0."""
# The kernel's default is 60 (Documentation/admin-guide/sysctl/vm.rst): idle shared memory may be swapped.
SWAPPY = 30
LEAST_SHARED = 1 << 30
"""Bytes of shared memory below which small pages are not worth a look."""
_SESSION_BYTES = 4 << 20
"""Memory of a session beside shared memory, for its process and catalogue caches: a low estimate."""
_NO_FLUSH_NS, _FAST_FLUSH_NS = 5_000.0, 20_000.0
"""Durations of a write that is flushed. A write to the fastest devices (NVMe, persistent media without flash)
takes at least 6 us, one to a flash drive with a protected cache 12 to 40 us, and the file system adds to
that. Below the first figure no device was asked to flush."""
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")

Judge = Callable[[MachineFacts, ServerConditions | None], Judged]


@cache
def registry() -> Mapping[str, Entry]:
    return entries(resources.files(__package__).joinpath("conditions.toml").read_text(encoding="utf-8"))


def machine_conditions(
    facts: MachineFacts | None,
    server: ServerConditions | None,
    why_not: str = "",
    probed: MachineFacts | None = None,
) -> Iterator[Condition]:
    """Yields each entry of the registry, judged. ``facts`` is None if the server is on another host;
    ``why_not`` is then the reason in words. ``probed`` holds facts of a directory whose flushes were timed
    although the server is elsewhere."""
    for id, entry in registry().items():
        known = facts or (probed if id == FLUSH else None)
        if known is None:
            yield concluded(id, entry, Judged("remote", why_not))
            continue
        judged = JUDGES[id](known, server)
        if server is not None and id in server.cures and not judged.steps:
            judged = judged._replace(steps=_steps(server, id, judged))
        yield concluded(id, entry, judged)


def _steps(server: ServerConditions, id: str, judged: Judged) -> tuple[Step, ...]:
    if judged.state not in ASKING:
        return ()
    return tuple(s._replace(command=s.command.format_map(judged.named)) for s in server.cures[id])


_NO_PROCESS = Judged("unknown", "nothing is known of a server's processes")
_NO_SERVER = Judged("unknown", "nothing is known of a server's settings")


def _direct_io(facts: MachineFacts, server: ServerConditions | None) -> Judged:
    if server is None:
        return _NO_SERVER
    if server.direct_io is None:
        return Judged("not supported", "this version has no setting for it")
    seen = facts.direct
    if seen is None or seen.files is None or seen.direct is None:
        why = seen.detail if seen is not None else "no data file was looked at"
        return Judged("unknown", f"{server.direct_setting}; {why}")
    value = f"{seen.words}; {server.direct_setting}"
    if server.direct_pending:
        return Judged("worth a look", f"{value}, another value is in its files", steps=(Step(RESTART),))
    if server.direct_io and seen.direct < seen.files:
        return Judged("bad", value)
    return Judged("worth a look" if seen.direct and not server.direct_io else "ok", value)


def _flush(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    probe = facts.flush
    if probe is None:
        return Judged("unknown", "not measured: dbdyno doctor --flush [DIRECTORY] writes for up to 2 s")
    where = f"{probe.file_system or 'unknown file system'} at {probe.directory}"
    if probe.device:
        where += f", device {probe.device}"
        where += f" ({probe.write_cache})" if probe.write_cache else ""
    if probe.median_ns is None and not probe.file_system:
        return Judged("unknown", probe.trouble)
    if probe.median_ns is None:
        return Judged("unknown", f"{probe.trouble}; {where}")
    value = f"{format_ns(probe.median_ns)} for 8 kB (median of {probe.writes}); {where}"
    if probe.no_barrier:
        return Judged("bad", f"{value}: mounted with {probe.no_barrier}, the device is never asked to flush")
    if probe.file_system in _IN_MEMORY:
        return Judged("bad", f"{value}: a file system in memory keeps nothing")
    if probe.median_ns < _NO_FLUSH_NS:
        return Judged("bad", f"{value}: a flush is not waited for, no device is that fast")
    if probe.median_ns < _FAST_FLUSH_NS:
        return Judged("worth a look", f"{value}: only the fastest devices with a protected cache are so fast")
    return Judged("ok", value)


_LOOP = re.compile(r"([\d.]+) ns a loop")


def _clock(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    """Judges by the faster of two loops. The server's program divides the whole elapsed time by its reads, so
    on a busy machine it includes time that other processes used. For a recorded machine only the name is
    known."""
    name = facts.clocksource or "unknown clock source"
    if backwards := next((v for v in facts.server_clock.values() if "backwards" in v), None):
        return Judged("bad", backwards)
    program = next((float(m[1]) for v in facts.server_clock.values() if (m := _LOOP.search(v))), None)
    loops = [("dbdyno's own loop", facts.clock_ns), ("the server's program", program)]
    timed = sorted((ns, whose) for whose, ns in loops if ns is not None)
    if timed:
        ns = timed[0][0]
        slow: State = "bad" if ns >= VERY_SLOW_CLOCK_NS else "worth a look"
        value = "; ".join(f"{ns:.0f} ns a read ({whose})" for ns, whose in timed)
        return Judged(slow if ns >= SLOW_CLOCK_NS else "ok", f"{name}: {value}")
    if facts.clocksource is None:
        return Judged("unknown", "/sys has no clock source, and no read was timed")
    if name in _FAST_CLOCKS:
        return Judged("ok", name)
    return Judged("worth a look", f"{name}: read by a system call")


def _huge_pages(facts: MachineFacts, server: ServerConditions | None) -> Judged:
    if server is None:
        return _NO_SERVER
    if server.huge_pages in (None, "off"):
        return Judged("ok", "not asked for (off)")
    got = facts.huge_mapped if server.huge_pages_got is None else server.huge_pages_got
    shared = server.shared_bytes
    size = f"{format_size(shared)} of shared memory" if shared else "shared memory"
    if got is None:
        why = "this version does not say, and the server's memory map may not be read"
        return Judged("unknown", f"{server.huge_pages}; whether they were got is unknown: {why}")
    if got:
        return Judged("ok", f"{size} in huge pages")
    needed = server.huge_pages_needed or _pages_needed(shared, facts.huge_bytes)
    has = f"HugePages_Total {facts.huge_total}, free {facts.huge_free}, needed {needed}"
    value = f"asked for ({server.huge_pages}) but not got: {size} in small pages; {has}"
    small = server.huge_pages == "try" and shared is not None and shared < LEAST_SHARED
    return Judged("ok" if small else "worth a look", value, {"pages": str(needed)})


def _pages_needed(size: int | None, page: int | None) -> int:
    return -(-(size or 0) // (page or 2 << 20))  # 2 MB: the huge page of x86-64


def _transparent(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.transparent_pages is None:
        return Judged("not supported", "this kernel has none")
    value = f"{facts.transparent_pages}; of shared memory: {facts.shared_transparent_pages or 'unknown'}"
    return Judged("worth a look" if facts.transparent_pages == "always" else "ok", value)


def _swappiness(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.swappiness is None:
        return _unread("/proc/sys/vm/swappiness")
    if facts.swap_bytes == 0:
        return Judged("ok", f"{facts.swappiness}; there is no swap")
    return Judged("worth a look" if facts.swappiness > SWAPPY else "ok", str(facts.swappiness))


def _overcommit(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.overcommit is None:
        return _unread("/proc/sys/vm/overcommit_memory")
    meaning = {0: "heuristic", 1: "always", 2: "never beyond the limit"}.get(facts.overcommit, "")
    return Judged("worth a look" if facts.overcommit == 1 else "ok", f"{facts.overcommit} ({meaning})")


def _governor(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if not facts.governors:
        return Judged("not supported", "no frequency scaling is seen here (usual in virtual machines)")
    value = ", ".join(f"{name} on {n} CPUs" for name, n in sorted(facts.governors.items()))
    return Judged("ok" if set(facts.governors) == {"performance"} else "worth a look", value)


def _numa_balancing(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.numa_balancing is None:
        return Judged("not supported", "this kernel has none")
    nodes = facts.nodes or 1
    value = f"{'on' if facts.numa_balancing else 'off'}, {nodes} {'node' if nodes == 1 else 'nodes'}"
    return Judged("worth a look" if facts.numa_balancing and nodes > 1 else "ok", value)


def _zone_reclaim(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.zone_reclaim is None:
        return Judged("not supported", "this kernel has none")
    several = (facts.nodes or 1) > 1
    return Judged("worth a look" if facts.zone_reclaim and several else "ok", str(facts.zone_reclaim))


def _cpu_limit(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if not facts.of_server:
        return _NO_PROCESS
    if facts.quota is None:
        return Judged("ok", "no quota is seen")
    value = f"{facts.quota.value:g} of {facts.cpus} CPUs ({facts.quota.where})"
    named = {"cpus": str(facts.cpus), "where": facts.quota.where}
    return Judged("worth a look" if facts.quota.value < (facts.cpus or 0) else "ok", value, named)


def _memory_limit(facts: MachineFacts, server: ServerConditions | None) -> Judged:
    if not facts.of_server:
        return _NO_PROCESS
    limit = facts.memory_limit
    if limit is None:
        return Judged("ok", "no limit is seen")
    value = f"{format_size(int(limit.value))} ({limit.where})"
    if server is None or server.shared_bytes is None:
        return Judged("unknown", f"{value}; what the server needs is unknown")
    whole = server.shared_bytes + (server.sessions or 0) * _SESSION_BYTES
    named = {"needed": format_size(whole), "where": limit.where}
    value += f"; shared memory {format_size(server.shared_bytes)}"
    if server.sessions is not None:
        value += f", at most {counted(server.sessions, 'session')}"
    if limit.value < server.shared_bytes:
        return Judged("bad", value, named)
    return Judged("worth a look" if limit.value < whole else "ok", value, named)


def _process_limit(facts: MachineFacts, server: ServerConditions | None) -> Judged:
    if not facts.of_server:
        return _NO_PROCESS
    limit = facts.processes_limit
    if limit is None:
        return Judged("ok", "no limit is seen")
    value = f"{limit.value:.0f} ({limit.where})"
    if server is None or server.processes is None:
        return Judged("unknown", f"{value}; what the server needs is unknown")
    value += f"; the server may have {counted(server.processes, 'process')}"
    named = {"needed": str(server.processes), "where": limit.where}
    return Judged("bad" if limit.value < server.processes else "ok", value, named)


def _shared_memory_mount(facts: MachineFacts, server: ServerConditions | None) -> Judged:
    size = facts.shm_mount_bytes
    if size is None:
        return Judged("unknown", "no tmpfs is seen at /dev/shm")
    value = format_size(size)
    if server is None or server.shm_mount_bytes is None:
        return Judged("unknown", f"{value}; what the server needs is unknown")
    if not server.shm_mount_bytes:
        return Judged("ok", f"{value}; the server does not use it")
    value += f"; one parallel statement may take {format_size(server.shm_mount_bytes)}"
    # One statement's need does not fill it: several parallel statements run at a time. 8 is a rule of thumb.
    needed = max(1 << 30, 8 * server.shm_mount_bytes)
    named = {"needed": f"{-(-needed >> 30)}g"}
    if size < server.shm_mount_bytes:
        return Judged("bad", value, named)
    return Judged("worth a look" if size < 8 * server.shm_mount_bytes else "ok", value, named)


def _run_queue(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.run_delay is None:
        return _unread("/proc/PID/schedstat")
    return Judged("ok", "counted") if facts.run_delay else Judged("bad", "this kernel does not count it")


def _steal(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    """Judges by the interval watched if that was long enough, else by the share since boot: in a shorter
    interval a few ticks are too large a share."""
    steal = facts.steal
    if steal is None or steal.since_boot is None:
        return _unread("/proc/stat")
    silent = next((h for h in _WITHOUT_STEAL if h in (facts.virtualisation or "")), None)
    if silent and not steal.since_boot:
        return Judged("unknown", f"{silent} does not report it to its guests")
    value = f"{format_percent(steal.since_boot)} since boot"
    if steal.now is not None:
        value += f", {format_percent(steal.now)} in the last {format_ns(steal.look_s * NS_PER_S)}"
    share = steal.now if steal.now is not None and steal.look_s >= FAIR_LOOK_S else steal.since_boot
    state: State = "bad" if share > MUCH_STEAL else "worth a look" if share > STEAL else "ok"
    return Judged(state, value)


def _other_processes(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    busy = facts.busy
    if busy is None:
        return Judged("unknown", "nobody looked, or /proc/stat has no line of the CPUs")
    value = f"{busy.words} over {significant(busy.span_s, 2)} s"
    value += f": {busy.names}" if busy.names else ""
    value += f"; steal {format_percent(busy.steal)}" if busy.steal else ""
    if busy.waited is not None:
        value += f"; a task waited for a CPU in {format_percent(busy.waited)} of the time (PSI)"
    value += f"; {busy.hidden}" if busy.hidden else ""
    return Judged("worth a look" if busy.share > BUSY else "ok", value)


def _boost(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.boost is None:
        return Judged("not supported", "no switch for it is seen here (usual in virtual machines)")
    if not facts.boost:
        return Judged("ok", "off")
    return Judged("worth a look", "on", facts.boost_switch)


def _threads_per_core(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.threads_per_core is None:
        return Judged("unknown", "neither /sys nor /proc/cpuinfo has the cores")
    return Judged("ok", f"{facts.threads_per_core}, on {counted(facts.cpus or 0, 'CPU')}")


def _kernel(facts: MachineFacts, _server: ServerConditions | None) -> Judged:
    if facts.kernel is None:
        return _unread("/proc/sys/kernel/osrelease")
    machine = facts.virtualisation or "no hypervisor or container is seen"
    return Judged("ok", "; ".join(filter(None, (f"Linux {facts.kernel}", machine, facts.contained))))


def _unread(path: str) -> Judged:
    return Judged("unknown", f"{path} cannot be read")


JUDGES: Mapping[str, Judge] = {
    "direct-io": _direct_io,
    "flush": _flush,
    "clock-source": _clock,
    "huge-pages": _huge_pages,
    "transparent-huge-pages": _transparent,
    "swappiness": _swappiness,
    "overcommit": _overcommit,
    "cpu-governor": _governor,
    "numa-balancing": _numa_balancing,
    "zone-reclaim": _zone_reclaim,
    "cpu-limit": _cpu_limit,
    "memory-limit": _memory_limit,
    "process-limit": _process_limit,
    "shared-memory-mount": _shared_memory_mount,
    "run-queue-time": _run_queue,
    "steal": _steal,
    "other-processes": _other_processes,
    "cpu-boost": _boost,
    "threads-per-core": _threads_per_core,
    "kernel": _kernel,
}
