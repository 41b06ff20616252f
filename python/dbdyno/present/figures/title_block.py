"""Lists what stands in the title block of a page about a run: the workload in words, when, where, how
long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dbdyno.model.engine.environment import Environment, Host
from dbdyno.model.plan.kinds import COMMANDS, OBSERVATION, SERVED, kind_of, speaking_of
from dbdyno.model.plan.plan import Workload
from dbdyno.model.results.results import Results
from dbdyno.model.results.server_cpus import ServerCpus
from dbdyno.model.text.nouns import capital
from dbdyno.model.units import (
    NS_PER_S,
    counted,
    format_duration,
    format_given,
    format_size,
    parse_duration_ns,
    repeats,
)
from dbdyno.present.document.document import UNKNOWN
from dbdyno.present.figures import figures, headline

Facts = list[tuple[str, str]]


def of_run(results: Results) -> Facts:
    """Returns names and values, without those that the run does not have."""
    with speaking_of(kind_of(results.plan)):
        return [(name, value) for name, value in _facts(results) if value]


def of_both(a: Results, b: Results) -> Facts:
    """Returns the facts of two compared runs: once where they are the same, else of each, A first."""
    first, second = dict(of_run(a)), dict(of_run(b))
    return [
        fact
        for name in {**first, **second}
        for one, other in [(first.get(name, UNKNOWN), second.get(name, UNKNOWN))]
        for fact in ([(name, one)] if one == other else [(f"{name}, A", one), (f"{name}, B", other)])
    ]


def _facts(results: Results) -> Iterator[tuple[str, str]]:
    environment, experiment, info = results.environment, results.plan.experiment, results.info
    observed = kind_of(results.plan).among((OBSERVATION,))
    observation = experiment.observation
    yield "Question", experiment.doc
    if not observed:
        yield "Workload", workload_in_words(results)
    yield "Host" if environment.server.here else "Host of the load driver", host_in_words(environment.host)
    if limits := figures.limits_of_cpus(results):
        yield "CPUs", "; ".join(map(_limited, limits)) if any(k.limit for k in limits) else ""
    if kind_of(results.plan).among((SERVED,)):
        yield from _servers(environment)
    yield "When", moment(info.started)
    windows = results.tables["windows"]
    if observation is not None and len(windows):
        seconds_each = parse_duration_ns(observation.window) / NS_PER_S
        yield "Windows", f"{counted(len(windows), 'window')} of {format_given(seconds_each)} s"
    if info.ended is not None:
        fixed = not observed and not experiment.phases and not any(c.once for c in results.plan.cells)
        seconds_each = parse_duration_ns(experiment.measure) / NS_PER_S
        each = f"; each measurement {format_given(seconds_each)} s" if fixed else ""
        seconds = (info.ended - info.started).total_seconds()
        yield "Duration", format_duration(seconds * NS_PER_S) + each
    if not observed and len(windows):
        yield "Repeats", repeats(int(windows["repeat"].max() or 1))  # type: ignore[arg-type]


def _servers(environment: Environment) -> Iterator[tuple[str, str]]:
    """Yields the server, or each server that a variant names, with how dbdyno came to it."""
    if not environment.servers:
        embedded = " (embedded)" if environment.server.embedded else f", {environment.server.where}"
        yield "Server", environment.server.name + embedded
        return
    for variant, server in environment.servers.items():
        place = environment.programs.get(variant) or server.where
        yield f"Server of {variant}", f"{server.name}, {place}"


def workload_in_words(results: Results) -> str:
    """Returns title and name of each workload, a sentence on it, and its unit of work."""
    return " ".join(_workload(results, w) for w in results.info.workloads.values())


def _workload(results: Results, workload: Workload) -> str:
    if kind_of(results.plan).among((COMMANDS,)):
        return "; ".join(workload.doc.splitlines())
    return described(workload, script=bool(results.plan.scripts))


def described(workload: Workload, script: bool = False) -> str:
    """Returns title and name, a sentence, and the unit of work that throughput counts: none where the work
    of a call may vary. The text of a script is no description."""
    counted = (
        f" Work is counted in {workload.work_unit} ({workload.work_short})."
        if workload.work_constant and workload.work_short != workload.work_unit
        else ""
    )
    sentence = "" if script else f" {_first_sentence(workload.doc)}".rstrip()
    return f"{capital(headline.workload_title(workload))}.{sentence}{counted}"


def _first_sentence(text: str) -> str:
    first = " ".join(text.split()).partition(". ")[0].removesuffix(".")
    return f"{first}." if first else ""


def moment(at: datetime) -> str:
    """Returns the local date and time with its zone: ``2026-11-29 13:32 CET``."""
    return f"{at.astimezone():%Y-%m-%d %H:%M %Z}"


def _limited(known: ServerCpus) -> str:
    """Returns ``0.5 CPUs of 2 (limit by dbdyno: --limit quota=0.5)``."""
    of = f" of {known.of}" if known.of is not None else ""
    return f"{figures.cpus_text(known.cpus)}{of}" + (f" ({known.limit})" if known.limit else "")


def host_in_words(host: Host) -> str:
    """Returns ``2 CPUs (AMD EPYC 7763), 24 GiB of memory, Linux 6.1, virtual machine (KVM)``."""
    cpus = figures.cpus_text(host.limits.usable_cpus)
    parts = [
        f"{cpus} ({host.cpu.model})" if host.cpu.model else cpus,
        f"{format_size(host.memory_bytes)} of memory" if host.memory_bytes else "",
        host.kernel,
        host.virtualisation,
    ]
    return ", ".join(p for p in parts if p)
