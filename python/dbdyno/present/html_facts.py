"""The parts of the page that are words and lists: tiles, findings, environment, plan, footer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dbdyno.model import cpu_lists
from dbdyno.model.claim import Claim
from dbdyno.model.plan import Observation, Plan
from dbdyno.model.results import Results
from dbdyno.model.units import format_ns, format_rate, significant
from dbdyno.present import figures, headline, observation, timeline
from dbdyno.present.html_variants import variants
from dbdyno.present.markup import Content, Html, definitions, details, el, join, table

_BASES = {"cpu": "CPU", "wall": "wall-clock"}
_SEVERITIES = ("invalid", "warning", "note", "good")


def tiles(results: Results) -> Html | None:
    """The figures of the headline, large: of the first series, or of the best where there are several."""
    if figures.is_observation(results):
        return _observed(results)
    found = [a for s in figures.series_of(results) if (a := headline.answer(results, s)) and a.peak]
    if not found:
        return None
    best = max(found, key=lambda a: float((a.peak or {})[a.rate_column]))
    peak, top = best.peak or {}, best.top
    whose = f" ({best.series.label})" if len(found) > 1 else ""
    values = [
        (f"Peak throughput{whose}", format_rate(peak[best.rate_column]), best.unit),
        ("Sessions at the peak", str(peak["sessions"]), _share(peak["scaling"], "of perfect scaling")),
        ("95 % of calls at the peak within", _duration(peak["response_p95_ns"]), "response time"),
        (f"CPU WAIT at {top['sessions']} sessions", *_part(top, "runq_aas")),
        (f"On a CPU at {top['sessions']} sessions", *_part(top, "run_aas")),
    ]
    return el(
        "dl",
        *(el("div", el("dt", n), el("dd", v, el("small", note))) for n, v, note in values),
        class_="tiles",
    )


def _observed(results: Results) -> Html | None:
    """How busy the server was, on average."""
    found = observation.overview(results)
    if found is None:
        return None
    average = "s per second, on average"
    most = found.top[0] if found.top and found.top[0].share != figures.UNKNOWN else None
    values = [
        ("DB time", _seconds(found.db_time), average),
        ("DB CPU", _seconds(found.db_cpu), average),
        ("CPU WAIT", _seconds(found.cpu_wait), average),
        ("Most time", most.name if most else figures.UNKNOWN, f"{most.share} % of DB time" if most else ""),
        ("Sessions seen", f"{found.sessions:,}", f"in {found.windows} windows, {found.wall_s:.0f} s"),
    ]
    return el(
        "dl",
        *(el("div", el("dt", n), el("dd", v, el("small", note))) for n, v, note in values),
        class_="tiles",
    )


def _seconds(value: float | None) -> str:
    return figures.UNKNOWN if value is None else f"{value:.2f}"


def banner(results: Results) -> Html:
    """Says so where a run did not end well; else nothing."""
    info = results.info
    if info.status == "complete":
        return Html("")
    words = (
        f"This run is {info.status}: {info.reason or 'no reason was recorded'}. It holds what was measured."
    )
    return el("p", words, class_="banner", role="status")


def findings(results: Results) -> Html:
    """The gravest first."""
    if not results.findings:
        return el("p", "No findings.", class_="muted")
    ordered = sorted(results.findings, key=lambda f: _SEVERITIES.index(f.severity))
    items = []
    for f in ordered:
        everywhere = bool(f.cells) and set(results.tables["windows"]["cell"]) <= set(f.cells)
        what = "windows" if figures.is_observation(results) else "cells"
        about = f"all {what}" if everywhere else f"{what}: {', '.join(f.cells)}" if f.cells else ""
        notes = " · ".join(t for t in (_interval(f), f.evidence and f"rests on: {f.evidence}", about) if t)
        items.append(
            el(
                "li",
                el("span", f.severity, class_="tag"),
                f.text,
                el("div", f"What to do: {f.advice}") if f.advice else None,
                el("div", notes, class_="foot") if notes else None,
                class_=f.severity,
            )
        )
    return el("ul", *items, class_="findings")


def _interval(f: Claim) -> str:
    v = f.value
    if v is None or v.low is None or v.high is None or v.low == v.high:
        return ""
    return f"95 % interval {significant(v.low)} to {significant(v.high)} {v.unit}"


def environment(results: Results) -> Html:
    """Server, machine, limits; all settings folded away."""
    server = results.environment.server
    cards = join(
        _card("Server", definitions(_server(results))),
        _card(_host_title(results), definitions(_host(results))),
    )
    rows = [[name, el("code", value)] for name, value in sorted(server.settings.items())]
    settings = details(f"Server settings ({len(rows)})", table("Server settings", ["setting", "value"], rows))
    return join(el("div", cards, class_="facts"), settings if rows else None)


def plan(results: Results) -> Html:
    """What was asked for, what the planner chose and why, how the call's size was found, every cell."""
    p = results.plan
    cards = [_card("Plan", definitions(_plan(results)))]
    cards += [
        _card(f"Calibration: {k}", definitions(_calibration(results, k))) for k in results.info.calibrations
    ]
    parts: list[Content] = [el("div", *cards, class_="facts")]
    parts.append(variants(results))
    if p.choices:
        rows = [[c.name, c.value, c.reason] for c in p.choices]
        parts.append(
            el(
                "div",
                table("What the planner chose", ["what", "value", "why"], rows),
                style="margin-top:16px",
            )
        )
    if p.script_text is not None:
        parts.append(details("The script", el("pre", p.script_text)))
    if figures.is_observation(results):
        return join(*parts, _windows(results))
    cells = [_cell(c.model_dump()) for c in p.cells]
    heads = ["cell", "workload", "variant", "sessions", "repeat", "settle", "measure", "parameters"]
    parts.append(details(f"All cells ({len(cells)})", table("Cells in the order of running", heads, cells)))
    return join(*parts)


def _windows(results: Results) -> Html:
    rows: list[list[Content]] = [
        [
            w["cell"],
            *(timeline.clock(results, w[end]) for end in ("t0_ns", "t1_ns")),
            f"{w['wall_s']:.3f}",
            w["status"],
            w["reason"] or "",
        ]
        for w in results.tables["windows"].sort("t0_ns").to_dicts()
    ]  # fmt: skip
    heads = ["window", "from, UTC", "to, UTC", "seconds", "status", "why"]
    return details(f"All windows ({len(rows)})", table("Windows in time", heads, rows))


def footer(results: Results) -> Html:
    info = results.info
    seconds = "" if info.ended is None else f", {(info.ended - info.started).total_seconds():.0f} s"
    words = (
        f"Run {info.id} · started {info.started:%Y-%m-%d %H:%M:%S} UTC{seconds} · {info.status} · "
        f"measured with dbdyno {info.dbdyno} · schema version {info.schema_version} · plan digest "
    )
    return el("footer", el("div", words, el("code", results.plan.digest)))


def _server(results: Results) -> Iterator[tuple[str, Content]]:
    s = results.environment.server
    yield "Server", headline.server_name(s)
    yield "In its own words", s.description
    yield "Where", s.where + (" (embedded)" if s.embedded else "")
    yield "Encryption", s.tls or "none"
    yield from s.clock.items()
    yield "On this host", f"{'yes' if s.here else 'no'}: {s.here_detail}"


def _host_title(results: Results) -> str:
    return "Machine" if results.environment.server.here else "Machine of the load driver (not the server's)"


def _host(results: Results) -> Iterator[tuple[str, Content]]:
    host = results.environment.host
    cpu, limits = host.cpu, host.limits
    yield "CPU", cpu.model or "unknown"
    yield "Topology", _topology(cpu.model_dump())
    yield (
        "Usable",
        f"{figures.cpus_text(limits.usable_cpus)}: affinity {cpu_lists.text(limits.affinity)}, "
        f"{_quota(results)}",
    )
    yield "Memory", f"{_bytes(host.memory_bytes)}, limit {_bytes(limits.memory_bytes, 'none')}"
    yield "Open files", f"{limits.open_files:,}"
    yield "Kernel", host.kernel
    yield "Distribution", host.distribution
    yield "Virtualisation", host.virtualisation
    yield "Clock source", host.clocksource
    yield "Clock ticks", f"{host.clock_ticks_per_s} ticks a second (user and kernel CPU time)"
    yield "Notes", "; ".join(host.notes)


def _plan(results: Results) -> Iterator[tuple[str, Content]]:
    p, e = results.plan, results.plan.experiment
    if e.observation is not None:
        yield from _observation(p, e.observation)
        return
    repeats = max((c.repeat for c in p.cells), default=1)
    beside = " beside the target" if p.adaptive is not None and p.adaptive.goal is not None else ""
    yield "Workload", e.workload or e.script
    yield "Sessions", ", ".join(str(n) for n in dict.fromkeys(c.sessions for c in p.cells))
    yield (
        "Per rung",
        f"{e.measure} measured after {e.settle} of settling, {repeats} repeat(s){beside}, order: {p.order}",
    )
    yield "Variants", ", ".join(dict.fromkeys(c.variant for c in p.cells))
    yield "Stopped", results.info.stopped
    yield "Parameters", ", ".join(f"{k}={v}" for k, v in e.params.items())
    yield "Sampling", f"{e.sample_hz:g} a second" if e.observe else "off (--no-observe)"
    yield "Seed", str(e.seed)
    yield "Expected", ("at most " if p.adaptive is not None else "") + format_ns(p.expected_ns)


def _observation(p: Plan, asked: Observation) -> Iterator[tuple[str, Content]]:
    yield "Load", "somebody else's: nothing was driven"
    yield "Observed for", asked.duration or "until stopped"
    yield "Windows of", asked.window
    yield "Sessions", ", ".join(f"{n} {v}" for n, v in observation.of_plan(asked)) or "all"
    yield "Waits", p.experiment.waits
    yield "Sampling", f"{p.experiment.sample_hz:g} a second by SQL"


def _calibration(results: Results, key: str) -> Iterator[tuple[str, Content]]:
    c = results.info.calibrations[key]
    yield "Size of a call", f"{c.size:,} {c.size_unit}"
    yield "Took", f"{format_ns(c.measured_ns)} of {_BASES[c.basis]} time at one session"
    yield "Target", f"{format_ns(c.target_ns)}: {c.target_reason}"
    yield "Work in a call", None if c.work_per_call is None else f"{c.work_per_call:,.0f}"
    yield "Steps", ", ".join(f"{size:,}: {format_ns(ns)}" for size, ns in c.steps)
    yield "Note", c.note


def _cell(c: dict[str, Any]) -> list[Content]:
    parameters = ", ".join(f"{k}={v}" for k, v in c["params"].items())
    times = [format_ns(c["settle_ns"]), format_ns(c["measure_ns"])]
    return [c["id"], c["workload"], c["variant"], str(c["sessions"]), str(c["repeat"]), *times, parameters]


def _card(title: str, content: Content) -> Html:
    return el("div", el("h3", title), content, class_="card")


def _share(value: float | None, words: str) -> str:
    return f"{figures.percent(value)} % {words}" if value is not None else "scaling unknown"


def _duration(value_ns: float | None) -> str:
    return figures.UNKNOWN if value_ns is None else format_ns(value_ns)


def _part(row: dict[str, Any], column: str) -> tuple[str, str]:
    value = row[column]
    if value is None:
        return figures.UNKNOWN, "unknown: see the footnotes"
    return f"{figures.percent(value, row['sessions'])} %", f"{value:.2f} s per second, of session time"


def _topology(cpu: dict[str, Any]) -> str:
    parts = [f"{cpu['logical']} logical CPU(s)"]
    for key, words in (("cores", "core(s)"), ("sockets", "socket(s)"), ("numa_nodes", "NUMA node(s)")):
        parts.append(f"{cpu[key] if cpu[key] is not None else '?'} {words}")
    return ", ".join(parts)


def _quota(results: Results) -> str:
    limits = results.environment.host.limits
    if limits.quota_cpus is None:
        return "no quota"
    return f"quota {figures.cpus_text(limits.quota_cpus)} ({limits.quota_where})"


def _bytes(value: int | None, absent: str = "unknown") -> str:
    return absent if value is None else f"{value / (1 << 30):.1f} GiB"
