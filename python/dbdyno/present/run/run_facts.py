"""Lists the facts of a run: server, machine, plan, calibration and measurements; how figures were
obtained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from dbdyno.model.engine.environment import Cpu, Host, ServerFacts
from dbdyno.model.plan.kinds import SERVED, current_kind, kind_of, speaking_of
from dbdyno.model.plan.plan import Calibration, Cell, Observation, Plan, Variant
from dbdyno.model.results.ledger_rows import TOGETHER, account_rows
from dbdyno.model.results.results import Applied, Results
from dbdyno.model.schema.tables import REGISTERED, empty
from dbdyno.model.text import cpu_lists
from dbdyno.model.text.nouns import fill, noun
from dbdyno.model.units import (
    NS_PER_S,
    format_given,
    format_ns,
    format_size,
    shown_duration,
)
from dbdyno.present.document.document import Block, Section, Verbatim, facts, texts
from dbdyno.present.figures import figures, headline
from dbdyno.present.figures.accounts import BRACKET
from dbdyno.present.figures.sources_used import in_words

_BASES = {"cpu": "CPU", "wall": "wall-clock"}
Facts = Iterator[tuple[str, str | None]]


def environment(results: Results) -> list[Block]:
    """Returns server, machine and limits; all settings are folded."""
    server = results.environment.server
    whole, driving = results.environment, "Machine of the load driver (not the server's)"
    host = "Machine" if server.here else driving
    blocks: list[Block] = [
        *(facts(_title(variant), _server(of)) for variant, of in (whole.servers or {"": server}).items()),
        facts(host, _host(whole.host)),
    ]
    if whole.client is not None:
        blocks.append(facts(driving, _host(whole.client)))
    for variant, of in (whole.servers or {"": server}).items():
        if of.settings:
            settings = texts("", ("setting", "value"), sorted(of.settings.items()))
            whose = f" of {variant}" if variant else ""
            blocks.append(Section(f"Server settings{whose} ({len(settings.rows)})", [settings], folded=True))
    return blocks


def plan(results: Results) -> list[Block]:
    """Returns the requested plan, the planner's choices, the calibration, and every measurement."""
    p = results.plan
    observation = p.experiment.observation
    pairs = _plan(results) if observation is None else _observation(p, observation)
    blocks: list[Block] = [facts("Plan", pairs)]
    blocks += [facts(f"Calibration: {k}", _calibration(results, k)) for k in results.info.calibrations]
    blocks += _variants(results)
    if p.choices:
        chosen = ((c.name, c.value, c.reason) for c in p.choices)
        blocks.append(texts("What the planner chose", ("what", "value", "why"), chosen))
    for script in p.scripts:
        weight = "" if script.weight == 1 else f", weight {script.weight}"
        blocks.append(Section(f"Script {script.name}{weight}", [Verbatim(script.text)], folded=True))
    return [*blocks, _cells(p.cells) if observation is None else _windows(results)]


def _cells(cells: Sequence[Cell]) -> Section:
    rate = (f"{noun('calls')}/s due",) if any(c.pacing for c in cells) else ()
    heads = (
        "measurement",
        "workload",
        "variant",
        noun("at_once"),
        *rate,
        "repeat",
        "warm-up",
        "measured",
        "parameters",
    )
    rows = [
        (
            c.id,
            c.workload,
            c.variant,
            str(c.sessions),
            *(format_given(c.rate_per_s or 0) for _ in rate),
            str(c.repeat),
            format_ns(c.settle_ns),
            format_ns(c.measure_ns),
            _pairs(c.params),
        )
        for c in cells
    ]
    return Section(
        f"All measurements ({len(rows)})", [texts("In the order of running", heads, rows)], folded=True
    )


def _windows(results: Results) -> Section:
    windows = results.tables["windows"].sort("t0_ns").to_dicts()
    rows = [
        (
            w["cell"],
            *(figures.clock(results, w[end]) for end in ("t0_ns", "t1_ns")),
            format_ns(w["wall_s"] * NS_PER_S),
            w["status"],
            w["reason"],
        )
        for w in windows
    ]
    heads = ("window", f"from ({figures.zone(results)})", "to", "length", "status", "why")
    return Section(f"All windows ({len(rows)})", [texts("", heads, rows)], folded=True)


def _variants(results: Results) -> list[Block]:
    """Returns what each variant changed, how, and the values then in force; empty if nothing was changed."""
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
    shown = ", ".join(f"{n} = {v}" for n, v in applied.settings.items())
    force = "; ".join(filter(None, (shown, applied.files)))
    return name, changed, "; ".join([*applied.limits, *restarts]), force


def _title(variant: str) -> str:
    return fill("{~engine:capital}") + (f" of {variant}" if variant else "")


def _server(s: ServerFacts) -> Facts:
    yield fill("{~engine:capital}"), s.name
    yield "In its own words", s.description
    yield "Where", s.where + (" (embedded)" if s.embedded else "")
    if current_kind().among((SERVED,)):
        yield "Encryption", s.tls or "none"
    yield from s.clock.items()
    if s.reached is not None:
        yield "Its host", s.reached.words
    yield "On this host", f"{'yes' if s.local else 'no'}: {s.here_detail}"


def _host(host: Host) -> Facts:
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
    yield "Clock ticks", f"{host.clock_ticks_per_s} ticks per second (user and kernel CPU time)"
    yield "Notes", "; ".join(host.notes)


def _plan(results: Results) -> Facts:
    p, e = results.plan, results.plan.experiment
    repeats = max((c.repeat for c in p.cells), default=1)
    again = f"{repeats} repeats" if repeats > 1 else "1 repeat"
    beside = " beside the target" if p.adaptive is not None and p.adaptive.goal is not None else ""
    yield "Workload", e.workload or ", ".join(s.name for s in p.scripts)
    yield fill("{~at_once:capital}"), ", ".join(str(n) for n in dict.fromkeys(c.sessions for c in p.cells))
    yield (
        "Per load",
        f"{shown_duration(e.measure)} measured after {shown_duration(e.settle)} of warm-up, {again}{beside}, "
        f"order: {p.order}",
    )
    yield "Variants", ", ".join(dict.fromkeys(c.variant for c in p.cells))
    yield "Stopped", results.info.stopped
    yield "Parameters", _pairs({**e.params, **e.variables})
    yield "Sampling", f"{format_given(e.sample_hz)} per second" if e.observe else "off (--no-observe)"
    yield "Seed", str(e.seed)
    yield "Expected", ("at most " if p.adaptive is not None else "") + format_ns(p.expected_ns)
    yield "Digest", p.digest


def _observation(p: Plan, observation: Observation) -> Facts:
    yield "Load", "an existing workload: dbdyno drove none"
    yield "Observed for", observation.duration or "until stopped"
    yield "Windows of", observation.window
    yield "Sessions", ", ".join(f"{n} {v}" for n, v in headline.of_plan(observation)) or "all"
    yield "Waits", p.experiment.waits
    yield "Sampling", f"{format_given(p.experiment.sample_hz)} per second by SQL"
    yield "Digest", p.digest


def _calibration(results: Results, key: str) -> Facts:
    c = results.info.calibrations[key]
    yield f"Size of {noun('a_call')}", _call_size(results, c)
    yield "Took", f"{format_ns(c.measured_ns)} of {_BASES[c.basis]} time at one session"
    yield "Target", f"{format_ns(c.target_ns)}: {c.target_reason}"
    steps = ", ".join(f"{size:,}: {format_ns(ns)}" for size, ns in c.steps)
    yield f"Steps, in {c.size_unit}", steps or "size of earlier runs; --recalibrate makes it anew"
    yield "Note", c.note


def _call_size(results: Results, calibration: Calibration) -> str:
    """Returns the size in the unit of the figures, and in brackets in that of the engine's call, if work is
    counted: ``102,768 LIO (1,554 ranges)``."""
    c, workload = calibration, results.info.workloads.get(calibration.workload)
    own = f"{c.size:,} {c.size_unit}"
    if c.work_per_call is None or workload is None:
        return own
    return f"{c.work_per_call:,.0f} {workload.work_short} ({own})"


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
    return absent if value is None else format_size(value)


# Methods: how each figure is obtained, and from which data source in this run.


class Method(NamedTuple):
    figure: str
    formula: str
    sources: tuple[str, ...]
    status: str  # of its rows in this run


# Table rungs has no column of sources.
_RUNG_SOURCES = {"scaling": "driver", "helpers_aas": "os tasks", "driver_cpus": "driver tasks"}
_LARGE = "microstates"
"""A table of too many rows to be loaded."""


def methods_of(results: Results) -> list[Method]:
    """Returns all methods of this kind of run, with the sources and status of the figure in this run."""
    kind = kind_of(results.plan)
    described = [(t.name, m) for t in REGISTERED.values() for m in t.methods if kind.among(m.kinds)]
    read = [(name, m.key) for name, m in described if name != _LARGE]
    kinds = pl.collect_all([_kinds(_rows(results.tables.get(t, empty(t)), t, key)) for t, key in read])
    seen = dict(zip(read, kinds, strict=True))
    large = [(name, m.key) for name, m in described if name == _LARGE]
    if large:
        seen |= dict.fromkeys(large, results.ask(_LARGE, _process_kinds))
    with speaking_of(kind):
        return [Method(fill(m.figure), fill(m.text), *_in_words(seen[name, m.key])) for name, m in described]


def methods(results: Results) -> list[Block]:
    """Returns formula, data source and status of each figure, then all sources."""
    heads = ("figure", "how it is obtained", "source in this run", "status")
    figures = [(m.figure, m.formula, ", ".join(m.sources) or "none", m.status) for m in methods_of(results)]
    sources = results.tables["sources"].unique(maintain_order=True)
    read = sources.select("name", "provenance", "status", "detail").rows()
    of_sources = ("source", "what it reads", "status", "why not, and the cure")
    return [texts("Figures", heads, figures), texts("Data sources", of_sources, read)]


def _in_words(rows: pl.DataFrame) -> tuple[tuple[str, ...], str]:
    sources = tuple(s for s in rows["source"].unique(maintain_order=True).to_list() if s)
    return sources, _status(rows)


def _process_kinds(rows: pl.LazyFrame) -> pl.LazyFrame:
    return _kinds(rows.rename({"usr": "value"}))


def _kinds(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Counts rows with the same source, status and known or unknown value as ``n``."""
    known = pl.col("value").is_not_null().alias("known")
    return rows.group_by(known, "source", "status", maintain_order=True).agg(n=pl.len())


def _rows(of_table: pl.DataFrame, table: str, key: str) -> pl.LazyFrame:
    """Returns value, source and status of one figure; ``key`` is a name, an account or a column of the
    table."""
    frame = of_table.lazy()
    if table == "ledger":
        bound = pl.coalesce("aas", "high") if key == BRACKET else pl.col("aas")
        return account_rows(frame, key).select(bound.alias("value"), "source", "status")
    if table == "profile":
        frame = frame.filter((pl.col("name") == key) & ~pl.col("cell").str.starts_with(TOGETHER))
    if table == "rates":
        frame = frame.filter((pl.col("scope") == "rung") & (pl.col("name") == key))
    value = {"top_events": "seconds", "profile": "total", "rates": "value"}.get(table, key)
    source = pl.lit(_RUNG_SOURCES[key]) if table == "rungs" else pl.col("source")
    status = pl.lit("ok") if table in ("rungs", "top_events") else pl.col("status")
    return frame.select(value=pl.col(value), source=source, status=status)


def _status(rows: pl.DataFrame) -> str:
    """Returns ``known``, ``known; 3 of 4 tasks in 1 of 8`` or ``unknown in 2 of 8: why``."""
    if rows.is_empty():
        return "not in this run"
    unknown = rows.filter(~pl.col("known"))
    partly = rows.filter(pl.col("known") & ~pl.col("status").is_in(["ok", "bracket"]))
    few, some, n = (frame["n"].sum() for frame in (unknown, partly, rows))
    if not few:
        return f"known; {_reasons(partly)} in {some} of {n}" if some else "known"
    why = f": {reasons}" if (reasons := _reasons(unknown)) else ""
    return f"unknown in {few} of {n}{why}"


def _reasons(rows: pl.DataFrame) -> str:
    return "; ".join(in_words(s) for s in rows["status"].unique(maintain_order=True).to_list() if s != "ok")
