"""The made-up world's machine, server and witnesses. Nothing here was measured."""

from __future__ import annotations

from dbdyno.model.engine.environment import Cpu, Environment, Host, Limits, ServerFacts
from dbdyno.model.sources.source import Source


def sources(os_tasks: bool) -> tuple[Source, ...]:
    elsewhere = "the server runs on another host; run dbdyno there to see its tasks"
    status, detail = ("ok", "") if os_tasks else ("not here", elsewhere)
    schedstat = "/proc/PID/task/TID/schedstat, fields 1 and 2"
    return (
        Source(name="driver", provenance="the driver's own clock and counts", status="ok"),
        Source(
            name="engine counters", provenance="per-session block counters read in the session", status="ok"
        ),
        Source(name="os tasks", provenance=schedstat, status=status, detail=detail),  # type: ignore[arg-type]
        Source(name="activity samples", provenance="the server's activity view, 10 Hz", status="ok"),
        Source(
            name="scheduler trace",
            provenance="a BPF program on sched_switch and sched_wakeup",
            status="not permitted",
            detail="run as root, or with CAP_BPF and CAP_PERFMON",
        ),
        Source(name="wait event word", provenance="the backend's memory, 100 Hz", status="ok"),
        Source(
            name="cgroup",
            provenance="/sys/fs/cgroup/cpu/cpu.stat",
            status="not permitted",
            detail="the group's directory is not readable; run in the server's group",
        ),
        Source(
            name="block I/O delay",
            provenance="/proc/PID/task/TID/stat, field 42",
            status="off",
            detail="sysctl kernel.task_delayacct=1 before the server starts",
        ),
        Source(name="host", provenance="/proc/stat", status=status, detail=detail),  # type: ignore[arg-type]
    )


def environment(usable: float, os_tasks: bool) -> Environment:
    cpus = int(usable)
    limits = Limits(
        affinity=tuple(range(cpus)),
        quota_cpus=None,
        quota_where=None,
        cgroup_version=2,
        usable_cpus=usable,
        memory_bytes=None,
        open_files=1024,
    )
    cpu = Cpu(model="Example CPU 9000", logical=cpus, cores=cpus, sockets=1, numa_nodes=1, threads_per_core=1)
    host = Host(
        kernel="Linux 6.18.0",
        distribution="Debian GNU/Linux 12",
        virtualisation="kvm",
        clock_ticks_per_s=100,
        cpu=cpu,
        limits=limits,
        memory_bytes=8 << 30,
    )
    server = ServerFacts(
        engine="postgres",
        product="PostgreSQL",
        version="18.4",
        version_num=180004,
        description="PostgreSQL 18.4 on x86_64",
        where="socket /run/example, database dbdyno, user dbdyno",
        embedded=os_tasks,
        tls=None,
        here=os_tasks,
        here_detail="unix socket, peer's pid is ours to see",
        main_pid=4700,
        settings={"shared_buffers": "128 MB", "jit": "off", "max_connections": "200"},
    )
    return Environment(dbdyno="0.1.0", host=host, server=server, sources=sources(os_tasks))
