"""Builds the document of a run or an observation: the answer, its quality, charts, tables, details."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from dbdyno.model.plan.kinds import (
    COMMANDS,
    DRIVEN,
    LADDER,
    NOISE,
    OBSERVATION,
    PHASES,
    SERVED,
    kind_of,
    speaking_of,
)
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results, RunInfo
from dbdyno.model.text.nouns import fill
from dbdyno.model.text.visible import with_stop
from dbdyno.model.units import NS_PER_S, between, counted, format_ns
from dbdyno.present.charts import charts_time, strips, triggers
from dbdyno.present.charts.chart import Group
from dbdyno.present.commands import commands, commands_charts
from dbdyno.present.compare import compare
from dbdyno.present.document.document import (
    Block,
    Document,
    Paragraph,
    Section,
    Statement,
    Statements,
    links_by_kind,
    remarks,
)
from dbdyno.present.figures import (
    figures,
    headline,
    profile,
    selection,
    shown_claims,
    sources_used,
    title_block,
)
from dbdyno.present.figures.selection import Pick
from dbdyno.present.figures.targets import Pages, Targets, no_pages
from dbdyno.present.memory import memory, memory_runs
from dbdyno.present.observation import rates
from dbdyno.present.parts import Page, Part, Parts, has_rows, sections
from dbdyno.present.run import (
    chains,
    charts,
    costs,
    cpu_profile,
    devices,
    growth,
    hosts,
    key_figures,
    laws,
    noise,
    phases,
    placement,
    processes,
    response_heat,
    response_quantiles,
    run_facts,
    rungs,
    script_time,
    scripts,
    servers,
    statements,
    system_calls,
    waiting,
)
from dbdyno.present.scaling import scaling_document
from dbdyno.present.show_options import CLAIMS


def document(
    results: Results, pages: Callable[[Claim], Pages] = no_pages, only: str | None = None
) -> Document:
    """Returns the whole document for every medium; a terminal shows the answer, the table and grave claims
    only.

    ``pages``: returns those on which a server has more about a claim. ``only``: see :class:`Page`.
    """
    with speaking_of(kind_of(results.plan)):
        shown = list(sections(PARTS, Page(results, only)))
        targets = Targets(results, shown, pages)
        above = headline.claims_shown_elsewhere(results)
        return Document(
            headline.title(results),
            [*_claims(results, targets), *shown],
            lead=[*_linked(results, lead(results), targets), *_more_pages(above, targets)],
            figures=key_figures.key_figures(results, targets),
            footer=_footer(results),
            about=title_block.of_run(results),
            more=more(results, results.info.id),
        )


def brief(results: Results, run: str = "") -> Document:
    """Returns the document of a terminal: the answer, the table, the gravest claims.

    ``run`` is the name by which commands refer to the run.
    """
    with speaking_of(kind_of(results.plan)):
        return Document(
            headline.title(results),
            list(sections(SCREEN, Page(results))),
            lead=lead(results),
            more=more(results, run or results.info.id),
        )


def details(results: Results, option: str, cell: str | None = None) -> list[Block]:
    """Returns the blocks of an option of ``dbdyno show`` for a cell; else for the top load, or all
    windows.

    Raises UsageError if the run has no such cell.
    """
    with speaking_of(kind_of(results.plan)):
        if option == CLAIMS:
            return findings(results)
        pick = selection.pick_of(results, cell)
        if pick is None:
            return [Paragraph("Nothing was measured.")]
        return [b for make in PARTS.details(option) for b in make(results, pick)]


def lead(results: Results) -> list[Paragraph]:
    """Returns how the run ended unless it completed, doubts, and the answer."""
    info = results.info
    notes = []
    if info.status == "running":
        notes.append(Paragraph("This run is going on; here is what it has measured so far.", "warning"))
    elif info.status != "complete":
        reason = info.reason or "no reason was recorded"
        notes.append(
            Paragraph(
                f"This run is {info.status}: {with_stop(reason)} It contains what was measured until then.",
                "warning",
            )
        )
    if info.stopped is not None and not any(f.id in headline.SEARCHED for f in results.findings):
        notes.append(Paragraph(f"Stopped {info.stopped}"))
    doubts = headline.doubt_sentences(results)
    notes += [Paragraph(d, "warning") for d in doubts]
    return [
        *notes,
        *(Paragraph(s, lead=not doubts) for s in headline.answer_sentences(results)),
        *remarks(_labels(info)),
    ]


def _labels(info: RunInfo) -> list[str]:
    """Returns the name, tags and note that the user gave the run."""
    tags = f"Tags: {', '.join(info.tags)}" if info.tags else ""
    labels = (f"Name: {info.name}" if info.name else "", tags, f"Note: {info.note}" if info.note else "")
    return ["; ".join(filter(None, labels)) + "."] if any(labels) else []


def _linked(results: Results, paragraphs: Sequence[Paragraph], targets: Targets) -> list[Paragraph]:
    """Links each claim in the paragraphs to the block that shows its figure."""
    claims = [
        (c.text.removeprefix(f"{c.subject}: "), targets.block_id(c))
        for c in (*results.reply, *results.findings, *results.answers)
    ]
    places = [(text, place) for text, place in claims if text and place]
    order = [
        sorted((p for p in places if p[0] in w.text), key=lambda p: w.text.index(p[0])) for w in paragraphs
    ]
    return [replace(w, links=links) for w, links in zip(paragraphs, order, strict=True)]


def _more_pages(claims: Iterable[Claim], targets: Targets) -> list[Paragraph]:
    """Returns the links to a server's pages about these claims, where there are any."""
    links = [link for c in claims for link in targets.pages(c)]
    return [links_by_kind(links, "muted")] if links else []


def more(results: Results, run: str) -> list[Paragraph]:
    """Returns where CPU time went if it was sampled, the warnings about the measurement, and the number of
    further claims, each with its command."""
    shown = shown_claims.first(results)
    others = [g for g in shown_claims.by_severity(results) if g not in shown]
    rest = [g for g in others if g[0].severity not in shown_claims.GRAVE]
    warnings = shown_claims.warnings(results, others)
    counts = [f"Measurement quality: {warnings}"] if warnings else []
    counts += [counted(len(rest), "more claim")] if rest else []
    profiled = [f"{f.text} More: dbdyno hot {run}" for f in results.findings if f.id == cpu_profile.CLAIM]
    costly = [fill(f"Costs of {{~a_call}}: dbdyno show {run} --costs")] if _has_costs(results) else []
    return remarks(
        [*profiled[:1], *costly, *([f"{'; '.join(counts)}: dbdyno show {run} --claims"] if counts else [])]
    )


_has_costs = has_rows("costs")


def findings(results: Results) -> list[Block]:
    """Returns all claims, the gravest first, and how waits were measured."""
    groups = shown_claims.by_severity(results)
    return [*_claim_blocks(results, groups), *remarks(sources_used.wait_methods(results))]


def _claims(results: Results, targets: Targets) -> Iterator[Section]:
    """Yields the claims that matter, then all others with the methods of measurement."""
    shown = shown_claims.first(results)
    groups = shown_claims.by_severity(results)
    others = [g for g in groups if g not in shown]
    listed = [g for g in groups if g in others or len(g) > 1]
    if shown:
        yield Section("", [_first_claims(results, shown, targets)], "findings")
    quality = [*_claim_blocks(results, listed, targets), *remarks(sources_used.wait_methods(results))]
    yield Section(
        _quality_title(results, others), quality, "quality", folded=True, name="Measurement quality"
    )


# -- blocks of the parts ----------------------------------------------------------------------------


def _timeline(page: Page) -> list[Block]:
    drawn = charts_time.timeline(page.results)
    stack = _charts([Group("", [drawn])] if drawn else [], "time")
    return [*stack, *rates.blocks(page.results)]


def _throughput(page: Page) -> list[Block]:
    results = page.results
    behind = [rungs.further(results), laws.bounds(results)] if len(results.tables["rungs"]) else []
    return [*_rungs(results), *filter(None, behind)]


def _throughput_title(results: Results) -> str:
    if rungs.one_load(results) and not figures.one_variant(results):
        return "Throughput by variant"
    by_number = figures.load_of(results) == figures.SESSIONS
    return fill("Throughput by number of {~at_once}" if by_number else "Throughput by rate of {~calls} due")


def _jobs_and_threads(page: Page) -> list[Block]:
    drawn = _charts(commands_charts.groups(page.results), "jobs")
    return [*drawn, *commands.grid(page.results)]


def _compared(page: Page) -> list[Block]:
    comparison = page.results.comparison
    return [] if comparison is None else compare.brief(comparison, page.results.info.id)


def _answers(page: Page) -> list[Block]:
    return [Paragraph(a.text) for a in page.results.answers if a.id != headline.ACTIVITY]


def _placement(page: Page) -> list[Block]:
    section = placement.section(page.results)
    return [] if section is None else list(section.blocks)


def _scaling(page: Page) -> list[Block]:
    section = scaling_document.section(page.results.scaling)
    return [] if section is None else list(section.blocks)


def _statement_blocks(page: Page) -> list[Block]:
    top = page.choice(statements.top_sql, waiting.statement_ledger)
    return [top, *statements.texts(page.results, page.shown)]


def _sessions(page: Page) -> list[Block]:
    """Returns throughput and latency over time, each session over time, the spread of their rates, every
    process."""
    spread = _charts(charts.each(page.results, charts.spread), "rate")
    every = [page.choice(processes.tables)]
    microstates = Section("Microstates of every process", every, "microstates", folded=True)
    return [page.choice(charts_time.within, strips.strips), *spread, microstates]


def _durations(page: Page) -> list[Block]:
    drawn = _charts(charts.durations(page.results), "rate")
    return [
        *drawn,
        *response_quantiles.by_load(page.results),
        page.choice(response_quantiles.intervals),
    ]


def _waits(page: Page) -> list[Block]:
    both = page.choice(profile.wait_events, waiting.durations)
    return [both, *remarks(sources_used.wait_methods(page.results))]


def _memory(page: Page) -> list[Block]:
    drawn = _charts([Group("", memory_runs.charts(page.results))], "memory")
    return [*drawn, page.choice(memory.tables), *memory_runs.blocks(page.results)]


def _checks(page: Page) -> list[Block]:
    results = page.results
    differences = sources_used.differences(results)
    drawn = [*charts.each(results, charts_time.cpu_by_source), *charts.each(results, charts_time.helpers)]
    checks = [
        page.choice(laws.of_measurement, sources_used.cross_check),
        *([differences] if differences else []),
    ]
    return [*_charts(drawn, "time"), *charts_time.idle_helpers(results), *checks]


def _quantiles(results: Results, _: Pick) -> list[Block]:
    return response_quantiles.by_load(results)


def _fired(results: Results, _: Pick) -> list[Block]:
    return triggers.blocks(results)


def _is_ladder(results: Results) -> bool:
    """Returns whether the run has charts against load: commands at a single number at once have none."""
    return not (kind_of(results.plan).among((COMMANDS,)) and commands.one_load(results))


PARTS = Parts(
    [
        Part(
            "commands",
            "Commands",
            lambda p: [
                *commands.brief(p.results),
                *commands_charts.executions(p.results),
                *commands.failures(p.results),
            ],
            kinds=(COMMANDS,),
        ),
        Part("grid", "Jobs and threads", _jobs_and_threads, kinds=(COMMANDS,)),
        Part("comparison", "Variants compared", _compared, kinds=(COMMANDS,), folded=True),
        Part("rungs", _throughput_title, _throughput, _is_ladder, kinds=(COMMANDS,)),
        Part("placement", "{~slots:capital} started together", _placement, kinds=(COMMANDS,)),
        Part("timeline", "Activity over time", _timeline, kinds=(OBSERVATION,), detail=True),
        Part(
            "statements",
            "Top SQL",
            _statement_blocks,
            statements.observed,
            kinds=(OBSERVATION,),
            detail=True,
            option="statements",
            details=(statements.top_sql, waiting.statement_ledger),
        ),
        Part("noise", noise.TITLE, lambda p: noise.blocks(p.results), kinds=(NOISE,)),
        Part(
            "charts",
            "Throughput, and where the time went",
            lambda p: _charts(charts.main(p.results), "main"),
            _is_ladder,
            kinds=(DRIVEN,),
            detail=True,
            name="Throughput",
        ),
        Part("comparison", "Variants compared", _compared, kinds=(SERVED,)),
        Part(
            "top",
            "{~top_events:capital}",
            lambda p: [p.choice(profile.top_events)],
            lambda results: not headline.idle(results),
            kinds=(OBSERVATION,),
        ),
        Part(
            "answers",
            "At the present load",
            _answers,
            lambda results: not headline.idle(results),
            kinds=(OBSERVATION,),
        ),
        Part("rungs", _throughput_title, _throughput, kinds=(LADDER,)),
        Part("placement", "{~slots:capital} started together", _placement, kinds=(LADDER,)),
        Part(
            "top",
            "{~top_events:capital}",
            lambda p: [p.choice(profile.top_events)],
            has_rows("top_events"),
            kinds=(DRIVEN,),
            detail=True,
        ),
        Part(
            "cpu-profile",
            "Where CPU time went",
            lambda p: [p.choice(cpu_profile.blocks)],
            cpu_profile.has_profile,
            detail=True,
            name="CPU profile",
        ),
        Part(
            "off-cpu",
            "Where {~tasks} slept",
            lambda p: [p.choice(cpu_profile.sleep_blocks)],
            lambda results: cpu_profile.has_profile(results, cpu_profile.SLEEP),
            detail=True,
            name="Off-CPU",
        ),
        Part(
            "scaling", lambda r: scaling_document.section_title(r.scaling), _scaling, _is_ladder, detail=True
        ),
        Part(
            "costs",
            costs.TITLE,
            lambda p: [*costs.of_loads(p.results), p.choice(costs.of_load)],
            has_rows("costs"),
            kinds=(DRIVEN,),
            detail=True,
            name="Costs",
            option="costs",
            details=(costs.of_load, costs.all_loads),
        ),
        Part(
            "executions",
            "Executions",
            lambda p: [p.choice(commands_charts.over_time, commands.by_job, commands.single)],
            kinds=(COMMANDS,),
            detail=True,
            option="executions",
            details=(commands.by_job, commands.failures, commands.single),
        ),
        Part(
            "scripts",
            "By script",
            lambda p: [p.choice(scripts.by_script)],
            has_rows("script_rates"),
            kinds=(SERVED,),
            detail=True,
            option="scripts",
            details=(scripts.by_script, script_time.session_time, scripts.by_command),
        ),
        Part(
            "script-time",
            "Session time by script and statement",
            lambda p: [p.choice(script_time.session_time)],
            has_rows("script_ledger"),
            kinds=(SERVED,),
            detail=True,
        ),
        Part(
            "commands",
            "By statement of the script",
            lambda p: [p.choice(scripts.by_command)],
            has_rows("command_rates"),
            kinds=(SERVED,),
            detail=True,
        ),
        Part("statements", "Top SQL", _statement_blocks, statements.observed, kinds=(DRIVEN,), detail=True),
        Part(
            "chains",
            "Wait chains",
            lambda p: [p.choice(chains.wait_chains)],
            chains.sampled,
            detail=True,
            option="chains",
            details=(chains.wait_chains,),
        ),
        Part(
            "sessions",
            "{~at_once:capital}",
            _sessions,
            detail=True,
            option="microstates",
            details=(processes.tables,),
        ),
        Part(
            "response",
            "{~response_time:capital} in detail",
            _durations,
            kinds=(DRIVEN,),
            detail=True,
            option="response",
            details=(response_quantiles.intervals, _quantiles),
        ),
        Part(
            "heat",
            "{~response_time:capital} over time",
            lambda p: [p.choice(response_heat.blocks)],
            has_rows("response_heat"),
            kinds=(DRIVEN,),
            detail=True,
            option="heat",
            details=(response_heat.sketch,),
        ),
        Part(
            "waits",
            "Every {~wait_event}",
            _waits,
            folded=True,
            option="events",
            details=(profile.wait_events, waiting.durations),
        ),
        Part(
            "syscalls",
            "System calls",
            lambda p: [p.choice(system_calls.tables)],
            system_calls.traced,
            folded=True,
            option="syscalls",
            details=(system_calls.tables,),
        ),
        devices.PART,
        Part(
            "memory",
            memory.TITLE,
            _memory,
            memory.was_read,
            folded=True,
            name="Memory",
            option="memory",
            details=(memory.tables, memory_runs.all_measurements),
        ),
        Part(
            "triggers",
            triggers.TITLE,
            lambda p: triggers.blocks(p.results),
            triggers.any_fired,
            option="captures",
            details=(_fired,),
        ),
        Part("hosts", hosts.TITLE, lambda p: hosts.blocks(p.results, ""), name="Hosts"),
        Part("growth", growth.TITLE, lambda p: growth.blocks(p.results, ""), folded=True, name="Growth"),
        Part(
            "profile",
            "Load profile",
            lambda p: [p.choice(profile.load_profile)],
            kinds=(SERVED,),
            folded=True,
            option="profile",
            details=(profile.load_profile, profile.top_events),
        ),
        Part(
            "cross-check",
            "Cross-check of data sources",
            _checks,
            folded=True,
            option="cross_check",
            details=(laws.of_measurement, sources_used.cross_check),
        ),
        servers.PART,
        Part("environment", "Environment", lambda p: run_facts.environment(p.results), folded=True),
        Part(
            "plan",
            lambda results: "Plan" if figures.is_observation(results) else "Plan and calibration",
            lambda p: run_facts.plan(p.results),
            folded=True,
        ),
        Part("methods", "How each figure was obtained", lambda p: run_facts.methods(p.results), folded=True),
    ]
)
"""The parts of a page after the claims, in reading order."""

SCREEN = Parts(
    [
        Part("", "", lambda p: [p.choice(statements.brief)], statements.observed, kinds=(OBSERVATION,)),
        Part("", "", lambda p: [p.choice(profile.top_events)], kinds=(OBSERVATION,)),
        Part("", "", _answers, kinds=(OBSERVATION,)),
        Part("", "", lambda p: noise.blocks(p.results), kinds=(NOISE,)),
        Part("", "", lambda p: commands.brief(p.results), kinds=(COMMANDS,)),
        Part("", "", lambda p: commands.grid(p.results), kinds=(COMMANDS,)),
        Part(
            "",
            "",
            lambda p: [*_rungs(p.results, together=True), *scripts.brief(p.results)],
            kinds=(LADDER,),
        ),
        Part("", "", lambda p: hosts.brief(p.results), kinds=(LADDER,)),
        Part("", "", lambda p: _claims_on_screen(p.results)),
        Part("placement", "{~slots:capital} started together", _placement, kinds=(DRIVEN,), minor=True),
    ]
)
"""The parts of a terminal: the table, then the claims that matter."""


def _rungs(results: Results, *, together: bool = False) -> list[Block]:
    if kind_of(results.plan).among((PHASES,)):
        return list(phases.table(results, rungs.marks(results)))
    return rungs.tables(results, together)


def _charts(groups: Iterable[Group], part: str) -> list[Block]:
    """Returns the charts of the groups; ``part`` and a number make their ids unique."""
    blocks: list[Block] = []
    number = count()
    for group in groups:
        named = [replace(c, id=f"{part}-{next(number)}-{c.id}") for c in group.charts]
        blocks += [Section(group.heading, named)] if named and group.heading else named
    return blocks


def _claims_on_screen(results: Results) -> list[Block]:
    shown = shown_claims.first(results)
    return [_first_claims(results, shown)] if shown else []


def _first_claims(
    results: Results, groups: Iterable[shown_claims.Group], targets: Targets | None = None
) -> Statements:
    """Returns one statement per group."""
    claims = [g[0].model_copy(update={"text": shown_claims.text(g)}) for g in groups]
    return _statements(results, claims, targets, targets is not None)


def _claim_blocks(
    results: Results, groups: Iterable[shown_claims.Group], targets: Targets | None = None
) -> Iterator[Block]:
    """Yields lists of claims, and a table for each group of claims that differ in several values."""
    claims: list[Claim] = []
    for group in groups:
        shown = group[0] if len(group) == 1 else shown_claims.together(group)
        if isinstance(shown, Claim):
            claims.append(shown)
            continue
        if claims:
            yield _statements(results, claims, targets)
        claims = []
        yield shown
        advices = {c.advice for c in group}
        yield from remarks(f"To do: {a}." for a in advices if a and len(advices) == 1)
        if targets:
            yield from _more_pages(group, targets)
    if claims:
        yield _statements(results, claims, targets)


def _statements(
    results: Results, claims: Iterable[Claim], targets: Targets | None = None, brief: bool = False
) -> Statements:
    whole = set(results.tables["windows"]["cell"])
    return Statements([_statement(f, whole, targets) for f in claims], brief)


def _statement(f: Claim, whole: set[str], targets: Targets | None) -> Statement:
    v = f.value
    interval = ""
    if v is not None and v.low is not None and v.high is not None and v.low != v.high:
        interval = f"95 % interval {between(v.low, v.high, v.unit)}"
    about = "" if not f.cells else "all measurements" if whole <= set(f.cells) else ", ".join(f.cells)
    note = " · ".join(t for t in (interval, f.evidence and f"rests on: {f.evidence}", about) if t)
    target, pages = (targets.block_id(f), targets.pages(f)) if targets else ("", ())
    return Statement(f.text, f.severity, "", f.severity, f.id, f.advice, note, target, pages)


def _quality_title(results: Results, others: Sequence[shown_claims.Group]) -> str:
    count = {s: sum(g[0].severity == s for g in others) for s in shown_claims.SEVERITIES}
    parts = [
        shown_claims.warnings(results, others),
        counted(count["note"], "other claim") if count["note"] else "",
        counted(count["good"], "check") + " passed" if count["good"] else "",
    ]
    return f"Measurement quality: {', '.join(filter(None, parts)) or 'nothing to remark'}"


def _footer(results: Results) -> str:
    info = results.info
    seconds = (
        "" if info.ended is None else f", {format_ns((info.ended - info.started).total_seconds() * NS_PER_S)}"
    )
    started = f"{info.started.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    return (
        f"Run {info.id} · started {started}{seconds} · {info.status} · measured "
        f"with dbdyno {info.dbdyno} · schema version {info.schema_version} · plan {results.plan.digest}"
    )
