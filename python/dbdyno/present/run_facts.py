"""What a run was: server and machine, plan and calibration, variants, every measurement or window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dbdyno.model import cpu_lists
from dbdyno.model.environment import Cpu
from dbdyno.model.plan import Cell, Observation, Plan, Variant
from dbdyno.model.results import Applied, Results
from dbdyno.model.units import format_ns
from dbdyno.present import figures, headline, observation, timeline
from dbdyno.present.document import Block, Section, Verbatim, facts, texts

_BASES = {"cpu": "CPU", "wall": "wall-clock"}
Facts = Iterator[tuple[str, str | None]]


def environment(results: Results) -> list[Block]:
    """Server, machine, limits; all settings folded away."""
    server = results.environment.server
    host = "Machine" if server.here else "Machine of the load driver (not the server's)"
    blocks: list[Block] = [facts("Server", _server(results)), facts(host, _host(results))]
    if server.settings:
        settings = texts("", ("setting", "value"), sorted(server.settings.items()))
        blocks.append(Section(f"Server settings ({len(settings.rows)})", [settings], folded=True))
    return blocks


def plan(results: Results) -> list[Block]:
    """What was asked for, what the planner chose, how the call's size was found, every measurement."""
    p = results.plan
    asked = p.experiment.observation
    told = _plan(results) if asked is None else _observation(p, asked)
    blocks: list[Block] = [facts("Plan", told)]
    blocks += [facts(f"Calibration: {k}", _calibration(results, k)) for k in results.info.calibrations]
    blocks += _variants(results)
    if p.choices:
        chosen = ((c.name, c.value, c.reason) for c in p.choices)
        blocks.append(texts("What the planner chose", ("what", "value", "why"), chosen))
    if p.script_text is not None:
        blocks.append(Section("The script", [Verbatim(p.script_text)], folded=True))
    return [*blocks, _cells(p.cells) if asked is None else _windows(results)]


def _cells(cells: Sequence[Cell]) -> Section:
    heads = ("measurement", "workload", "variant", "sessions", "repeat", "warm-up", "measured", "parameters")
    rows = [
        (c.id, c.workload, c.variant, str(c.sessions), str(c.repeat), format_ns(c.settle_ns),
         format_ns(c.measure_ns), _pairs(c.params))
        for c in cells
    ]  # fmt: skip
    return Section(
        f"All measurements ({len(rows)})", [texts("In the order of running", heads, rows)], folded=True
    )


def _windows(results: Results) -> Section:
    windows = results.tables["windows"].sort("t0_ns").to_dicts()
    rows = [
        (w["cell"], *(timeline.clock(results, w[end]) for end in ("t0_ns", "t1_ns")), f"{w['wall_s']:.3f}",
         w["status"], w["reason"])
        for w in windows
    ]  # fmt: skip
    heads = ("window", "from, UTC", "to, UTC", "seconds", "status", "why")
    return Section(f"All windows ({len(rows)})", [texts("", heads, rows)], folded=True)


def _variants(results: Results) -> list[Block]:
    """What each changed, how, and what the server showed; nothing where nothing was changed."""
    variants = results.plan.variants
    if len(variants) < 2 and not any(v.words() for v in variants):
        return []
    named = {n for v in results.plan.experiment.variants.values() for n in v.params}
    rows = [_variant(v, results.info.applied.get(v.name, Applied()), named) for v in variants]
    return [texts("Variants", ("variant", "what it changes", "how", "in force"), rows)]


def _variant(variant: Variant, applied: Applied, named: set[str]) -> tuple[str, ...]:
    params = _pairs({n: variant.params[n] for n in sorted(named)})
    changed = ", ".join(filter(None, (variant.words(), params))) or "nothing"
    restarts = [f"server restarted for {', '.join(applied.restarts)}"] if applied.restarts else []
    name = f"{variant.name}: {variant.doc}" if variant.doc else variant.name
    force = ", ".join(f"{n} = {v}" for n, v in applied.settings.items())
    return name, changed, "; ".join([*applied.limits, *restarts]), force


def _server(results: Results) -> Facts:
    s = results.environment.server
    yield "Server", headline.server_name(s)
    yield "In its own words", s.description
    yield "Where", s.where + (" (embedded)" if s.embedded else "")
    yield "Encryption", s.tls or "none"
    yield from s.clock.items()
    yield "On this host", f"{'yes' if s.here else 'no'}: {s.here_detail}"


def _host(results: Results) -> Facts:
    host = results.environment.host
    cpu, limits = host.cpu, host.limits
    quota = "no quota"
    if limits.quota_cpus is not None:
        quota = f"quota {figures.cpus_text(limits.quota_cpus)} ({limits.quota_where})"
    yield "CPU", cpu.model or "unknown"
    yield "Topology", _topology(cpu)
    affinity = f"affinity {cpu_lists.text(limits.affinity)}"
    yield "Usable", f"{figures.cpus_text(limits.usable_cpus)}: {affinity}, {quota}"
    yield "Memory", f"{_bytes(host.memory_bytes)}, limit {_bytes(limits.memory_bytes, 'none')}"
    yield "Open files", f"{limits.open_files:,}"
    yield "Kernel", host.kernel
    yield "Distribution", host.distribution
    yield "Virtualisation", host.virtualisation
    yield "Clock source", host.clocksource
    yield "Clock ticks", f"{host.clock_ticks_per_s} ticks a second (user and kernel CPU time)"
    yield "Notes", "; ".join(host.notes)


def _plan(results: Results) -> Facts:
    p, e = results.plan, results.plan.experiment
    repeats = max((c.repeat for c in p.cells), default=1)
    again = f"{repeats} repeats" if repeats > 1 else "1 repeat"
    beside = " beside the target" if p.adaptive is not None and p.adaptive.goal is not None else ""
    yield "Workload", e.workload or e.script
    yield "Sessions", ", ".join(str(n) for n in dict.fromkeys(c.sessions for c in p.cells))
    yield "Per load", f"{e.measure} measured after {e.settle} of warm-up, {again}{beside}, order: {p.order}"
    yield "Variants", ", ".join(dict.fromkeys(c.variant for c in p.cells))
    yield "Stopped", results.info.stopped
    yield "Parameters", _pairs(e.params)
    yield "Sampling", f"{e.sample_hz:g} a second" if e.observe else "off (--no-observe)"
    yield "Seed", str(e.seed)
    yield "Expected", ("at most " if p.adaptive is not None else "") + format_ns(p.expected_ns)
    yield "Digest", p.digest


def _observation(p: Plan, asked: Observation) -> Facts:
    yield "Load", "an existing workload: dbdyno drove none"
    yield "Observed for", asked.duration or "until stopped"
    yield "Windows of", asked.window
    yield "Sessions", ", ".join(f"{n} {v}" for n, v in observation.of_plan(asked)) or "all"
    yield "Waits", p.experiment.waits
    yield "Sampling", f"{p.experiment.sample_hz:g} a second by SQL"
    yield "Digest", p.digest


def _calibration(results: Results, key: str) -> Facts:
    c = results.info.calibrations[key]
    yield "Size of a call", f"{c.size:,} {c.size_unit}"
    yield "Took", f"{format_ns(c.measured_ns)} of {_BASES[c.basis]} time at one session"
    yield "Target", f"{format_ns(c.target_ns)}: {c.target_reason}"
    yield "Work in a call", None if c.work_per_call is None else f"{c.work_per_call:,.0f}"
    steps = ", ".join(f"{size:,}: {format_ns(ns)}" for size, ns in c.steps)
    yield "Steps", steps or "size of earlier runs; --recalibrate makes it anew"
    yield "Note", c.note


def _pairs(params: Mapping[str, object]) -> str:
    return ", ".join(f"{k}={v}" for k, v in params.items())


def _topology(cpu: Cpu) -> str:
    counts = (
        ("CPU", cpu.logical),
        ("core", cpu.cores),
        ("socket", cpu.sockets),
        ("NUMA node", cpu.numa_nodes),
    )
    return ", ".join(f"{'?' if n is None else n} {name}{'' if n == 1 else 's'}" for name, n in counts)


def _bytes(value: int | None, absent: str = "unknown") -> str:
    return absent if value is None else f"{value / (1 << 30):.1f} GiB"
