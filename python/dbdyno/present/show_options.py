"""Declares the options of ``dbdyno show`` that each show one part of a run. Light: every ``--help``
imports it."""

from __future__ import annotations

from types import MappingProxyType

CLAIMS = "claims"
_OPTIONS = {
    CLAIMS: "All claims, and what was not measured and why.",
    "profile": "Load profile per second, transaction and call; top ten events.",
    "costs": "Costs of a call: CPU, switches, reads, writes, WAL, network.",
    "heat": "Response time over time; its modes, and what goes with them.",
    "scripts": "Calls and session time by script and by statement.",
    "response": "Quantiles of response times, with intervals.",
    "statements": "Top SQL: time, calls and blocks by statement.",
    "chains": "Wait chains: who makes whom wait for locks, and what that does.",
    "events": "Every wait event: time asleep and in the run queue.",
    "microstates": "Time of every process: USR, SYS, CPU WAIT, I/O, lock, sleep.",
    "syscalls": "System calls: errors, time, CPU time inside, sizes.",
    "memory": "Where the memory is: machine, caches, relations, processes.",
    "devices": "Block devices: IOPS, throughput, response time, queue.",
    "cross_check": "Quantities that several data sources measure, compared.",
    "executions": "Executions of commands: durations, CPU, failures, outliers.",
    "captures": "What triggers captured: when, why, and the largest parts of it.",
}
SHOW_OPTIONS = MappingProxyType(_OPTIONS)
"""Help by name; flags have hyphens."""


def register_option(name: str, help: str) -> None:
    """Adds an option after the others. Raises ValueError if the name is taken."""
    if name in _OPTIONS:
        raise ValueError(f"two options {name}")
    _OPTIONS[name] = help
