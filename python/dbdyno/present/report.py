"""A run, or an observation, as a document: the answer, how good it is, charts, tables, details."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results, RunInfo
from dbdyno.model.units import quantity
from dbdyno.present.charts import charts_time, strips, triggers
from dbdyno.present.charts.chart import Group
from dbdyno.present.commands import commands, commands_charts
from dbdyno.present.commands.command_words import worded
from dbdyno.present.compare import compare
from dbdyno.present.document.document import (
    Block,
    Choice,
    Document,
    Option,
    Paragraph,
    Section,
    Statement,
    Statements,
    remarks,
)
from dbdyno.present.figures import figures, headline, profile, selection, sources_used
from dbdyno.present.figures.selection import Pick
from dbdyno.present.figures.targets import Targets
from dbdyno.present.memory import memory, memory_runs
from dbdyno.present.run import (
    chains,
    charts,
    cpu_profile,
    growth,
    hosts,
    key_figures,
    phases,
    placement,
    processes,
    run_facts,
    rungs,
    script_time,
    scripts,
    statements,
    system_calls,
    waiting,
)
from dbdyno.present.scaling import scaling_document

Details = Callable[[Results, Pick], list[Block]]
_SEVERITIES = ("invalid", "warning", "note", "good")
_IN_WORDS = (headline.FIRST, *headline.PARAGRAPH)
"""Findings that the headline has."""
MOST = 3
"""Claims that are shown at once."""
DETAILS: dict[str, tuple[Details, ...]] = {
    "profile": (profile.load_profile, profile.top_events),
    "scripts": (scripts.by_script, script_time.session_time, scripts.by_command),
    "statements": (statements.top_sql, waiting.statement_ledger),
    "chains": (chains.wait_chains,),
    "events": (profile.wait_events, waiting.durations),
    "microstates": (processes.tables,),
    "syscalls": (system_calls.tables,),
    "memory": (memory.tables, memory_runs.of_all),
    "cross_check": (sources_used.cross_check,),
    "executions": (commands.by_job, commands.failures, commands.single),
    "captures": (lambda results, _pick: triggers.blocks(results),),
}
"""What can be shown of one load or window by itself, by the name that ``dbdyno show`` knows."""


def document(results: Results) -> Document:
    """All of it, for every medium; a terminal shows the answer, the table and the claims that matter."""
    made = _Builder(results)
    sections = [s for s in made.sections() if s.blocks]
    whole = Document(
        headline.title(results),
        sections,
        lead=_linked(results, lead(results), made.targets),
        figures=key_figures.of(results, made.targets),
        footer=_footer(results),
        more=more(results, results.info.id),
    )
    return worded(results, whole)


def brief(results: Results, run: str = "") -> Document:
    """What a terminal shows: the answer, the table, the gravest claims. ``run``: how a command names it."""
    made = _Builder(results)
    sections = [s for s in made.screen() if s.blocks]
    shown = Document(
        headline.title(results),
        sections,
        lead=lead(results, together=True),
        more=more(results, run or results.info.id),
    )
    return worded(results, shown)


def details(results: Results, name: str, cell: str | None = None) -> list[Block]:
    """One of :data:`DETAILS`, of a cell; without one of the top load, or of all windows of an observation.
    Or ``claims``: all of them. Raises UsageError where the run has no such cell.
    """
    if name == "claims":
        return worded(results, findings(results))
    pick = selection.pick_of(results, cell)
    if pick is None:
        return [Paragraph("Nothing was measured.")]
    return worded(results, [b for make in DETAILS[name] for b in make(results, pick)])


def lead(results: Results, together: bool = False) -> list[Paragraph]:
    """How the run ended where it did not end well; the answer, of variants ``together`` by their effects."""
    info = results.info
    notes = []
    if info.status != "complete":
        reason = info.reason or "no reason was recorded"
        notes.append(
            Paragraph(
                f"This run is {info.status}: {reason}. It contains what was measured until then.", "warning"
            )
        )
    if info.stopped is not None and not any(f.id in headline.SEARCHED for f in results.findings):
        notes.append(Paragraph(f"Stopped {info.stopped}"))
    compared = results.comparison if together and not figures.of_commands(results) else None
    told = headline.sentences(results) if compared is None else compared.summary
    doubts = headline.doubt_sentences(results)
    notes += [Paragraph(d, "warning") for d in doubts]
    return [*notes, *(Paragraph(s, lead=not doubts) for s in told), *remarks(_labels(info))]


def _labels(info: RunInfo) -> list[str]:
    """What the user calls the run."""
    tags = f"Tags: {', '.join(info.tags)}" if info.tags else ""
    words = (f"Name: {info.name}" if info.name else "", tags, f"Note: {info.note}" if info.note else "")
    return ["; ".join(filter(None, words)) + "."] if any(words) else []


def _linked(results: Results, words: Sequence[Paragraph], targets: Targets) -> list[Paragraph]:
    """Each claim in them with the place of its figure."""
    told = [
        (c.text.removeprefix(f"{c.subject}: "), targets.of(c)) for c in (*results.findings, *results.answers)
    ]
    places = [(text, place) for text, place in told if text and place]
    order = [sorted((p for p in places if p[0] in w.text), key=lambda p: w.text.index(p[0])) for w in words]
    return [replace(w, links=links) for w, links in zip(words, order, strict=True)]


def more(results: Results, run: str) -> list[Paragraph]:
    """Where CPU time went, if sampled; how many claims there are besides; the commands that show them."""
    count = len(_by_severity(results)) - len(_grave(results))
    told = [f"{f.text} More: dbdyno hot {run}" for f in results.findings if f.id == cpu_profile.CLAIM]
    return remarks([*told[:1], *([f"{count} more: dbdyno show {run} --claims"] if count else [])])


def findings(results: Results) -> list[Block]:
    """All findings, the gravest first; what was measured how well, and what was not."""
    return [_statements(results, _by_severity(results)), *remarks(sources_used.words(results))]


class _Builder:
    """The sections of one run."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.observed = figures.is_observation(results)
        self._picks = selection.picks(results)
        self._grave = _grave(results)

    def sections(self) -> Iterator[Section]:
        """In reading order."""
        results = self.results
        rest = [s for s in self._figures() if s.blocks]
        self.targets = targets = Targets(results, rest)
        others = [f for f in _by_severity(results) if f not in self._grave]
        quality: list[Block] = [_statements(results, others, targets), *remarks(sources_used.words(results))]
        grave: list[Block] = [_statements(results, self._grave, targets, True)] if self._grave else []
        yield Section("", grave, "findings")
        yield Section(_quality_title(results), quality, "quality", folded=True, name="Measurement quality")
        yield from rest

    def _figures(self) -> Iterator[Section]:
        """The sections after the claims."""
        results, observed = self.results, self.observed
        _, *tables = self.answers()
        if figures.of_commands(results):
            yield from tables
            tables = []
        if observed:
            drawn = _charts([Group("", [c])] if (c := charts_time.timeline(results)) else [], "time")
            yield Section("Active sessions over time", drawn, "timeline", detail=True)
        else:
            first = _charts(charts.main(results), "main")
            yield Section(
                "Throughput, and where the time went", first, "charts", detail=True, name="Throughput"
            )
        yield from tables
        if not observed and results.tables["top_events"].height:
            yield Section("Top events", [self._choice(profile.top_events)], "top", detail=True)
        if cpu_profile.there(results):
            used = [self._choice(cpu_profile.blocks)]
            yield Section("Where CPU time went", used, "cpu-profile", detail=True, name="CPU profile")
        if cpu_profile.there(results, cpu_profile.SLEEP):
            asleep = [self._choice(cpu_profile.sleep_blocks)]
            yield Section("Where sessions slept", asleep, "off-cpu", detail=True, name="Off-CPU")
        ladders = scaling_document.section(results.scaling)
        if ladders is not None:
            yield replace(ladders, detail=True)
        if figures.of_commands(results):
            ran = [self._choice(commands_charts.over_time, commands.by_job, commands.single)]
            yield Section("Executions", ran, "executions", detail=True)
        for title, make, name in [] if figures.of_commands(results) else scripts.sections(results):
            yield Section(title, [self._choice(make)], name, detail=True)
        if statements.there(results):
            top = [self._choice(*DETAILS["statements"]), *statements.texts(results, self._picks.shown)]
            yield Section("Top SQL", top, "statements", detail=True)
        if chains.there(results):
            yield Section("Wait chains", [self._choice(chains.wait_chains)], "chains", detail=True)
        yield Section("Sessions", self._sessions(), "sessions", detail=True)
        yield from self._details()

    def screen(self) -> Iterator[Section]:
        """What a terminal shows: the table, then the claims that matter."""
        results = self.results
        if self.observed:
            yield Section("", [self._choice(profile.top_events)])
            told = [Paragraph(a.text) for a in results.answers if a.id != headline.ACTIVITY]
            yield Section("", told)
        else:
            if figures.of_commands(results):
                yield Section("", commands.brief(results))
                yield Section("", commands.grid(results))
            else:
                yield Section("", [*_rungs(results, together=True), *scripts.brief(results)])
                yield Section("", hosts.brief(results))
        yield Section("", [_statements(results, self._grave)] if self._grave else [])
        together = None if self.observed else placement.section(results)
        if together is not None:
            yield replace(together, minor=True)

    def answers(self) -> Iterator[Section]:
        """The claims that matter, then tables."""
        results, grave = self.results, self._grave
        yield Section("", [_statements(results, grave)] if grave else [], "findings")
        if figures.of_commands(results):
            yield Section("Commands", [*commands.brief(results), *commands.failures(results)], "commands")
            drawn = _charts(commands_charts.groups(results), "jobs")
            yield Section("Jobs and threads", [*drawn, *commands.grid(results)], "grid")
        if results.comparison is not None:
            compared = compare.brief(results.comparison, results.info.id)
            yield Section("Variants compared", compared, "comparison", folded=figures.of_commands(results))
        if self.observed and headline.idle(results):
            return
        if self.observed:
            yield Section("Top events", [self._choice(profile.top_events)], "top")
            told = [Paragraph(a.text) for a in results.answers if a.id != headline.ACTIVITY]
            yield Section("At the present load", told, "answers")
            return
        behind = [rungs.further(results)] if len(results.tables["rungs"]) else []
        by = "number of sessions" if figures.load_of(results) == figures.SESSIONS else "rate of calls due"
        by = "number of jobs at once" if figures.of_commands(results) else by
        yield Section(f"Throughput by {by}", [*_rungs(results), *behind], "rungs")
        together = placement.section(results)
        if together is not None:
            yield together

    def _sessions(self) -> list[Block]:
        """Throughput and latency over time, each session over time; how even they are, every process."""
        results = self.results
        spread = _charts(charts.each(results, charts.spread), "rate")
        processes_ = Section(
            "Microstates of every process", [self._choice(processes.tables)], "microstates", folded=True
        )
        return [self._choice(charts_time.within, strips.strips), *spread, processes_]

    def _details(self) -> Iterator[Section]:
        results = self.results
        differences = sources_used.differences(results)
        checks = [self._choice(sources_used.cross_check), *([differences] if differences else [])]
        drawn = [*charts.each(results, charts_time.cpu_by_source), *charts.each(results, charts_time.helpers)]
        checks = [*_charts(drawn, "time"), *charts_time.idle_helpers(results), *checks]
        waits = [self._choice(*DETAILS["events"]), *remarks(sources_used.words(results))]
        if not self.observed:
            took = _charts(charts.durations(results), "rate")
            yield Section("Response time in detail", took, "response", detail=True)
        yield Section("Every wait event", waits, "waits", folded=True)
        if system_calls.there(results):
            called = [self._choice(system_calls.tables)]
            yield Section("System calls", called, "syscalls", folded=True)
        if memory.there(results):
            where = [
                *_charts([Group("", memory_runs.charts(results))], "memory"),
                self._choice(memory.tables),
            ]
            where += memory_runs.blocks(results)
            yield Section(memory.TITLE, where, "memory", folded=True, name="Memory")
        yield Section(triggers.TITLE, triggers.blocks(results) if triggers.there(results) else [], "triggers")
        yield Section(hosts.TITLE, hosts.blocks(results, ""), "hosts", name="Hosts")
        yield Section(growth.TITLE, growth.blocks(results, ""), "growth", folded=True, name="Growth")
        if not figures.of_commands(results):
            yield Section("Load profile", [self._choice(profile.load_profile)], "profile", folded=True)
        yield Section("Cross-check of data sources", checks, "cross-check", folded=True)
        yield Section("Environment", run_facts.environment(results), "environment", folded=True)
        plan = "Plan" if self.observed else "Plan and calibration"
        yield Section(plan, run_facts.plan(results), "plan", folded=True)
        yield Section("How each figure was obtained", run_facts.methods(results), "methods", folded=True)

    def _choice(self, *makes: Details) -> Block:
        shown = self._picks.shown
        if not shown:
            return Paragraph("Nothing was measured.", "muted")
        name = "Window" if self.observed else "Load"
        some = [Option(p.key, p.label, [b for m in makes for b in m(self.results, p)]) for p in shown]
        return Choice(name, some, self._picks.note)


def _rungs(results: Results, *, together: bool = False) -> list[Block]:
    if figures.is_phased(results):
        return list(phases.table(results, rungs.marks(results)))
    return rungs.tables(results, together)


def _charts(groups: Iterable[Group], part: str) -> list[Block]:
    """``part``: what their ids begin with, which are unique with the number of the chart."""
    blocks: list[Block] = []
    number = count()
    for group in groups:
        named = [replace(c, id=f"{part}-{next(number)}-{c.id}") for c in group.charts]
        blocks += [Section(group.heading, named)] if named and group.heading else named
    return blocks


def _by_severity(results: Results) -> list[Claim]:
    told = [f for f in results.findings if f.id not in _IN_WORDS]
    return sorted(told, key=lambda f: _SEVERITIES.index(f.severity))


def _grave(results: Results) -> list[Claim]:
    """What limits the trust in the figures: at most three."""
    above = headline.doubts(results)
    grave = [f for f in _by_severity(results) if f.severity in ("invalid", "warning")]
    return [f for f in grave if f not in above][:MOST]


def _statements(
    results: Results, found: Iterable[Claim], targets: Targets | None = None, brief: bool = False
) -> Statements:
    whole = set(results.tables["windows"]["cell"])
    return Statements([_statement(f, whole, targets.of(f) if targets else "") for f in found], brief)


def _statement(f: Claim, whole: set[str], target: str = "") -> Statement:
    v = f.value
    interval = ""
    if v is not None and v.low is not None and v.high is not None and v.low != v.high:
        interval = f"95 % interval {quantity(v.low, v.unit)} to {quantity(v.high, v.unit)}"
    about = "" if not f.cells else "all measurements" if whole <= set(f.cells) else ", ".join(f.cells)
    note = " · ".join(t for t in (interval, f.evidence and f"rests on: {f.evidence}", about) if t)
    return Statement(f.text, f.severity, "", f.severity, f.id, f.advice, note, target)


def _quality_title(results: Results) -> str:
    count = {s: sum(f.severity == s for f in _by_severity(results)) for s in _SEVERITIES}
    parts = [
        (count["invalid"], "part unusable", "parts unusable"),
        (count["warning"], "warning", "warnings"),
        (count["note"], "note", "notes"),
        (count["good"], "check passed", "checks passed"),
    ]
    told = ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in parts if n)
    return f"Measurement quality: {told or 'nothing to remark'}"


def _footer(results: Results) -> str:
    info = results.info
    seconds = "" if info.ended is None else f", {(info.ended - info.started).total_seconds():.0f} s"
    return (
        f"Run {info.id} · started {info.started:%Y-%m-%d %H:%M:%S} UTC{seconds} · {info.status} · measured "
        f"with dbdyno {info.dbdyno} · schema version {info.schema_version} · plan {results.plan.digest}"
    )
