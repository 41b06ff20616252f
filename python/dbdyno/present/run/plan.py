"""Shows the plan of a run before it begins: lines for a terminal, and a document.

The reasons of a plan's choices have to be sentences already (:func:`dbdyno.conclude.catalogue.worded`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dbdyno.model.plan.kinds import kind_of
from dbdyno.model.plan.literals import ALL_CPUS, INTERLEAVED
from dbdyno.model.plan.plan import Adaptive, Choice, Plan
from dbdyno.model.units import counted, format_given, format_ns, in_minutes, shown_duration
from dbdyno.present.document.document import (
    Block,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Table,
    numeric,
    word,
)

MOST_LOADS = 40
"""Listed loads; more are counted."""


def lines(plan: Plan, *, every_choice: bool = False) -> list[str]:
    """Returns the plan in a few lines: load, number of measurements, duration, CPUs, variants, and what was
    chosen for the user. ``every_choice``: with all defaults and their reasons."""
    if every_choice:
        chosen = [f"{c.name} = {c.value}: {c.reason}" for c in plan.choices]
    else:
        chosen = [line for c in plan.choices if (line := _choice_line(c))]
    return [*_load_lines(plan, cpus=not every_choice), *_variant_lines(plan), *chosen]


def document(plan: Plan, remarks: Sequence[str] = ()) -> Document:
    """Returns the plan of a run or of an observation. ``remarks`` follow the duration."""
    rows = [Row([word(c.name), word(c.value), word(c.reason)]) for c in plan.choices]
    chosen = Table("What was chosen, and why", (Column("choice"), Column("value"), Column("reason")), rows)
    if plan.experiment.observation is not None:
        return Document("Plan of the observation", [chosen], lead=_paragraphs(remarks))
    load, duration = _load_lines(plan, cpus=False)
    table, more = loads(plan, times=True)
    blocks: list[Block] = [*_paragraphs(_variant_lines(plan)), table]
    blocks += [Paragraph(f"... and {counted(more, 'more load')}", "muted")] if more else []
    blocks += [Paragraph("Further measurements depend on these results.", "muted")] if plan.adaptive else []
    detail = Section("Choices and their reasons", [chosen, Paragraph(_digest(plan), "muted")], folded=True)
    lead = [Paragraph(load, lead=True), Paragraph(duration, lead=True), *_paragraphs(remarks)]
    return Document(f"Plan: {load_words(plan)}", [*blocks, detail], lead=lead)


def _paragraphs(texts: Sequence[str]) -> list[Paragraph]:
    return [Paragraph(text) for text in texts]


def _digest(plan: Plan) -> str:
    return f"digest of the plan: {plan.digest[:12]}; runs of the same plan have the same"


def closing_lines(plan: Plan, left_out: int) -> list[str]:
    """Returns the lines below :func:`loads` in a terminal."""
    more = [f"... and {left_out} more; --json lists all measurements"] if left_out else []
    more += ["further measurements depend on these results"] if plan.adaptive is not None else []
    return [*more, _digest(plan)]


def loads(plan: Plan, *, times: bool = False) -> tuple[Table, int]:
    """Returns the loads with their numbers of measurements, and how many are left out. ``times``: with the
    time that the measurements of each take with their warm-up, unless it depends on what they execute."""
    repeats: Counter[tuple[str, ...]] = Counter()
    time_ns: Counter[tuple[str, ...]] = Counter()
    for cell in plan.cells:
        rate = "" if cell.rate_per_s is None else f"{format_given(cell.rate_per_s)}/s"
        load = (cell.variant, str(cell.sessions), rate, " ".join(f"{k}={v}" for k, v in cell.params.items()))
        repeats[load] += 1
        time_ns[load] += cell.settle_ns + cell.measure_ns
    times = times and not any(c.once for c in plan.cells)
    columns = [Column("variant"), numeric("sessions"), numeric("rate"), numeric("measurements")]
    columns += [numeric("under load"), Column("parameters")]
    left_out = {"rate"} if all(c.rate_per_s is None for c in plan.cells) else set()
    left_out |= set() if times else {"under load"}
    shown = [n for n, column in enumerate(columns) if column.head not in left_out]
    rows = [
        (variant, sessions, rate, str(count), format_ns(time_ns[load]), params)
        for load, count in list(repeats.items())[:MOST_LOADS]
        for variant, sessions, rate, params in [load]
    ]
    cells = [Row([word(row[n]) for n in shown]) for row in rows]
    return Table("Measurements", [columns[n] for n in shown], cells), max(0, len(repeats) - MOST_LOADS)


def load_words(plan: Plan) -> str:
    """Returns ``lio``, ``script q.sql`` or ``command gzip``."""
    return plan.experiment.workload or (_commands(plan) if plan.jobs else _scripts(plan))


def _load_lines(plan: Plan, *, cpus: bool) -> list[str]:
    """Returns a line of what is measured, and one of the time that it takes."""
    e, rungs = plan.experiment, sorted({c.sessions for c in plan.cells})
    what = load_words(plan)
    shown = ", ".join(map(str, rungs)) if len(rungs) <= 12 else f"{rungs[0]}, {rungs[1]} ... {rungs[-1]}"
    repeats = max((c.repeat for c in plan.cells), default=1)
    again = f"; {repeats} repeats" if repeats > 1 else ""
    paced = sorted({c.rate_per_s for c in plan.cells if c.rate_per_s is not None})
    rates = f"rate{'s' if len(paced) > 1 else ''} {', '.join(map(format_given, paced))}/s, " if paced else ""
    loads = f"{kind_of(plan).noun('at_once')} {shown}{again}"
    cells, about = f"{counted(len(plan.cells), 'measurement')}, {rates}{loads}", "about"
    if plan.adaptive is not None:
        cells, about = _auto_words(plan, plan.adaptive), "at most"
    each = f"measurement {shown_duration(e.measure)} each"
    total = f"{about} {in_minutes(plan.expected_ns)} in total"
    warm_up = f"warm-up {shown_duration(e.settle)}"
    if plan.jobs and e.settle == "0s":
        warm_up = f"warm-up {counted(e.warmup, 'execution')} of each job" if e.warmup else "no warm-up"
    if any(c.once for c in plan.cells):
        each = f"each measurement {_executions(plan)}"
        total = f"dbdyno itself {about} {in_minutes(plan.expected_ns)}"
    if e.phases:
        cells = f"one measurement in {counted(len(e.phases), 'phase')}, {loads}"
        each = f"phases {format_ns(sum(c.measure_ns for c in plan.cells if c.repeat == 1))}"
    number = f"; {format_given(plan.cpus)} CPU{'' if plan.cpus == 1 else 's'}" if cpus else ""
    return [f"{what}: {cells}", f"{warm_up}, {each}; {total}{number}"]


def _choice_line(choice: Choice) -> str:
    """Returns what the user needs to know of a choice before the run; empty for one that is nothing special:
    the other lines of the plan have it, or it is what everybody expects."""
    if choice.says or choice.name == "sessions" or choice.reason in (ALL_CPUS, INTERLEAVED):
        return ""
    if choice.name == "call target":
        return f"A call is sized to {choice.value}, {choice.reason} (--call-target)."
    return f"{choice.name} {choice.value}: {choice.reason}"


def _commands(plan: Plan) -> str:
    """Returns ``command gzip`` or ``jobs httpd, mysql``."""
    names = [j.name for j in plan.jobs]
    side_by_side = any(len(v.jobs) > 1 for v in plan.variants)
    kind = "job" if side_by_side else "command"
    return f"{kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"


def _executions(plan: Plan) -> str:
    """Returns ``one execution`` or ``10 executions of each of 5 jobs``."""
    runs, jobs = plan.cells[0].runs, max(len(v.jobs) for v in plan.variants)
    return counted(runs, "execution") + (f" of each of {jobs} jobs" if jobs > 1 else "")


def _scripts(plan: Plan) -> str:
    """Returns ``scripts a.sql (weight 2), b.sql``: weights only if there are several scripts."""
    mix = plan.scripts
    names = [s.name if len(mix) == 1 or s.weight == 1 else f"{s.name} (weight {s.weight})" for s in mix]
    return f"script{'' if len(mix) == 1 else 's'} {', '.join(names)}"


def _auto_words(plan: Plan, rule: Adaptive) -> str:
    """Describes an adaptive ladder, whose measurements are not known in advance."""
    around = "the knee" if rule.goal is None else rule.goal.text
    again = "" if rule.repeats == 1 else f"; {rule.repeats} repeats"
    again += " of the load levels beside it" if again and rule.goal is not None else ""
    several = f", each under {len(plan.variants)} variants" if len(plan.variants) > 1 else ""
    unit = "/s" if rule.by == "rate" else " sessions"
    most = f"at most {rule.most_rungs} load levels up to {rule.top}{unit}"
    return f"{'search of rates' if unit == '/s' else 'auto ladder'} around {around}, {most}{several}{again}"


def _variant_lines(plan: Plan) -> list[str]:
    """Returns a line for each variant with what it changes."""
    if len(plan.variants) < 2 and not any(v.words() for v in plan.variants):
        return []
    wide = max(len(v.name) for v in plan.variants)
    if plan.experiment.phases:
        return [f"phase {v.name:{wide}}  {v.doc}" for v in plan.variants]
    named = plan.experiment.params.keys() | {n for s in plan.experiment.variants.values() for n in s.params}
    lines = []
    for v in plan.variants:
        params = ", ".join(f"{n}={v.params[n]}" for n in sorted(named) if n in v.params)
        if v.jobs and not params:
            params = "; ".join(j.shown for j in v.jobs)
        changes = ", ".join(filter(None, (v.words(), params))) or "nothing changed"
        lines.append(f"variant {v.name:{wide}}  {changes}" + (f"  ({v.doc})" if v.doc else ""))
    return lines
