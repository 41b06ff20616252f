"""Builds the document of a ladder's scaling: the answer, charts, models, CPU per unit of work, every load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from dbdyno import __version__
from dbdyno.model.results.analyses import Estimate, Fitted, Ladder, Machine, Part, Regression, Scaling
from dbdyno.model.results.claim import Claim
from dbdyno.model.text.nouns import OF_COMMANDS, capital, noun
from dbdyno.model.units import (
    NS_PER_S,
    counted,
    format_average,
    format_given,
    format_ns,
    format_plain,
    repeats,
    significant,
)
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    KeyFigure,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    numeric,
    optional,
    remarks,
    table,
    word,
)
from dbdyno.present.figures.figures import interval, machine_counts, number, percent
from dbdyno.present.scaling import rate_chart, scaling_charts

if TYPE_CHECKING:
    from dbdyno.model.results.results import Results

_COSTS = (
    Column("range"),
    Column("CPU"),
    numeric("per unit"),
    numeric("95 % interval"),
    numeric("background", 1),
    numeric("95 % interval", 3),
    numeric("R2", 2),
    numeric("points", 4),
)
_CPU_NAMES = {"cpu": "all", "user": "user", "system": "system"}


def per_work(regressions: Sequence[Regression]) -> Section | None:
    """Returns the CPU cost of a unit of work: claims, the table, and notes; None without a regression."""
    if not regressions:
        return None
    named = f": {regressions[0].name}" if regressions[0].name else ""
    rows = [Row(cells) for r in regressions for cells in _rows(r)]
    claims = Statements([Statement(t) for t in _cost_sentences(regressions)])
    blocks: list[Block] = [claims, Table("", _COSTS, rows), *remarks(_cost_notes(regressions))]
    return Section(f"CPU per {' and '.join(regressions[0].work_units)}{named}", blocks)


def _cost_sentences(regressions: Sequence[Regression]) -> list[str]:
    """Returns the cost of a unit where it is known, and its change from range to range."""
    known_ones = [(r, r.total) for r in regressions if r.total is not None]
    sentences = [f"{_where(r)} {_cost(total)}." for r, total in known_ones]
    for (one, a), (other, b) in pairwise(known_ones):
        if (a.slope.low or 0) > 0 and (b.slope.low or 0) > 0:
            times = format_plain(b.slope.value / a.slope.value)
            sentences.append(
                f"{_where(other)} 1 {one.work_units[0]} costs {times} times as much as {one.regime}."
            )
    return sentences


def _where(r: Regression) -> str:
    return f"{capital(r.regime)}:"


def _cost(part: Part) -> str:
    if any(e.low is not None and e.low <= 0 for e in part.slopes):
        return f"the cost of 1 {' or 1 '.join(e.name for e in part.slopes)} does not differ from 0"
    costs = [f"1 {e.name} costs {time(e.value)} of CPU{_cost_ends(e, ' ({})')}" for e in part.slopes]
    background = part.background
    if background.value < 0:
        return ", ".join(costs)
    rest = (
        f"{format_average(background.value)} CPUs are used in the background{_cost_ends(background, ' ({})')}"
    )
    return ", ".join([*costs, rest])


def _rows(r: Regression) -> Iterator[list[Cell]]:
    """Yields the rows of all, user and system CPU; several kinds of work have a row each."""
    nothing, unknown = word(""), Cell(UNKNOWN)
    if not r.parts:
        ratio, ends = unknown, unknown
        if r.ratio is not None:
            ratio = Cell(f"{time(r.ratio.value)} with background", r.ratio.value, "s")
            ends = word(_cost_ends(r.ratio))
        yield [word(r.regime), word("all"), ratio, ends, unknown, unknown, nothing, known(r.n, str)]
    for part in r.parts:
        beside = [
            known(part.background.value, format_average, "CPUs"),
            word(_cost_ends(part.background)),
            known(part.r_squared, lambda v: f"{v:.4f}"),
        ]
        for n, slope in enumerate(part.slopes):
            first = part is r.parts[0] and n == 0
            name = (
                _CPU_NAMES[part.name] if len(part.slopes) == 1 else f"{_CPU_NAMES[part.name]}, {slope.name}"
            )
            cost = [known(slope.value, time, "s"), word(_cost_ends(slope))]
            more = [nothing] * 3 if n else beside
            points = known(r.n, str) if first else nothing
            yield [word(r.regime if first else ""), word(name), *cost, *more, points]


def time(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def _cost_ends(e: Estimate, form: str = "{}") -> str:
    if e.low is None or e.high is None:
        return UNKNOWN if form == "{}" else ""
    timed = e.unit.startswith("CPU seconds/") and e.unit != "CPU seconds/s"
    low, high = (time(v) if timed else format_average(v) for v in (e.low, e.high))
    return form.format(f"{low} .. {high}")


def _cost_notes(regressions: Sequence[Regression]) -> Iterator[str]:
    """Yields refusals first, then the method of the intervals, and notes."""
    for r in regressions:
        if r.refused is not None:
            yield f"{r.regime}: no regression: {r.refused}"
    for method in dict.fromkeys(r.method for r in regressions if r.parts):
        yield f"Intervals are 95 %: {method}. Background: CPU seconds per second at no work."
    for r in regressions:
        yield from (f"{r.regime}: {n}" for n in r.notes)


_PARAGRAPH = "paragraph"
"""The answer in plain language."""
_VETO = "model-veto"
"""A claim that is part of the paragraph, so it is not repeated."""
_TITLES = {
    "one-cpu": "One CPU",
    "rate-capacity": "Capacity",
    "at-cpus": "At as many as CPUs",
    "one-more-session": "One more",
    "cpu-wait": "CPU WAIT begins",
    "smt-yield": "SMT yield",
    "cpu-per-work": "CPU per unit of work",
    "cpu-inflation": "CPU inflation",
    "reason": "Why it bends",
}
_TILES = ("rate-capacity", "one-session", "peak", "knee", "scales-to", "smt-yield", "second-knee", "cpu-wait")
"""Answers that are shown large, the first ``_MOST_TILES`` of them."""
_MOST_TILES = 5


def document(scalings: Sequence[Scaling], run: Results | None = None) -> Document:
    """Returns the document of one ladder, or of several in sequence. ``run``: None for a ladder of a file."""
    footer = f"Analysed with dbdyno {__version__}"
    about = _facts_of_file(scalings[0].ladder) if run is None else _facts_of_run(run)
    if len(scalings) != 1:
        blocks = [s for n, scaling in enumerate(scalings) for s in _sections(scaling, n, f"-{n + 1}")]
        return Document(f"Scaling of {len(scalings)} ladders", blocks, footer=footer, about=about)
    scaling = scalings[0]
    machine = _machine(scaling.ladder.machine)
    lead = [*remarks([machine] if machine else []), *_lead(scaling)]
    return Document(_title(scaling), [*_sections(scaling, 0, "")], lead, _figures(scaling), footer, about)


def _facts_of_run(run: Results) -> list[tuple[str, str]]:
    # the models of runs take as long to load as all fits, and a file needs none
    from dbdyno.present.figures import title_block

    return title_block.of_run(run)


def _facts_of_file(ladder: Ladder) -> list[tuple[str, str]]:
    """Returns what is known of a measurement that was made elsewhere."""
    points, think_s = ladder.points, ladder.think_s
    facts = [
        ("File", ladder.name),
        ("Host", _machine(ladder.machine) or "not in the file (--cpus, --cores)"),
        ("Loads", ", ".join(dict.fromkeys(format_given(n) for n in points["load"].sort()))),
        ("Repeats", repeats(points["repeat"].n_unique())),
        ("Think time", "" if think_s is None else format_ns(think_s * NS_PER_S)),
    ]
    return [(name, value) for name, value in facts if value]


def section(scalings: Sequence[Scaling]) -> Section | None:
    """Returns the part of a run's report; None without a ladder."""
    if not scalings:
        return None
    many, by_rate = len(scalings) > 1, scalings[0].ladder.by_rate
    of_loads = any(map(_has_loads, scalings))
    parts: list[Block] = []
    for n, scaling in enumerate(scalings):
        one = scaling.ladder.name if many else "All answers"
        more = Section(
            "Every rate" if by_rate else "All answers, models, every load" if of_loads else one,
            [*_answers(scaling), *_models(scaling), *_measured(scaling)],
            folded=True,
        )
        if of_loads and not _has_loads(scaling):
            continue
        blocks: list[Block] = [more]
        if of_loads:
            blocks = [*_lead(scaling), *_charts_beside_a_run(scaling, n), more]
        parts += [Section(scaling.ladder.name, blocks)] if many and of_loads else blocks
    return Section(section_title(scalings), parts, "scaling")


def section_title(scalings: Sequence[Scaling]) -> str:
    """Returns the title of :func:`section` without building it."""
    if scalings and scalings[0].ladder.by_rate:
        return "Capacity"
    return "Scalability" if any(map(_has_loads, scalings)) else "Answers"


def _has_loads(scaling: Scaling) -> bool:
    """Returns whether a ladder has more than one load, so that there is something to draw."""
    return scaling.ladder.points["load"].n_unique() > 1


def _charts_beside_a_run(scaling: Scaling, number: int) -> list[Chart]:
    """Returns the charts that say more than those at the top of a run's page.

    These show throughput and response times of calls as measured, and CPU and CPU WAIT in the stack.
    """
    left_out = {"cpu"}
    if scaling.best is None:
        left_out |= {"fit"} if scaling.ladder.of_work else {"fit", "response-model"}
    kept = [c for c in _charts(scaling, number) if c.id.removeprefix(f"scaling-{number}-") not in left_out]
    model = f"Model of the throughput: {scaling.best.title}" if scaling.best else ""
    return [replace(c, title=model) if c.id.endswith("-fit") else c for c in kept]


def _charts(scaling: Scaling, number: int) -> list[Chart]:
    """Returns the charts of a ladder; ``number`` is its position in the document."""
    module = rate_chart if scaling.ladder.by_rate else scaling_charts
    return [replace(c, id=f"scaling-{number}-{c.id}") for c in module.charts(scaling)]


def _sections(scaling: Scaling, number: int, name: str) -> Iterator[Section]:
    """Yields the sections of a ladder. ``name`` is the suffix of their ids, if there are several ladders."""
    if name:
        yield Section(_title(scaling), _lead(scaling), f"ladder{name}")
    head = "Delivered against due" if scaling.ladder.by_rate else "The ladder and the model"
    yield Section(head, _charts(scaling, number), f"charts{name}")
    answers = _answers(scaling)
    if answers:
        yield Section("Answers", answers, f"answers{name}", minor=True)
    yield Section("", _measured(scaling), f"measured{name}")
    if not scaling.ladder.by_rate:
        yield Section("Models", _models(scaling), f"model{name}", minor=True)
    caveats = remarks(_caveats(scaling))
    if caveats:
        yield Section("Notes", caveats, f"notes{name}", minor=True)


def _title(scaling: Scaling) -> str:
    """Returns ``cisco.csv: 32 points, 1 to 64 sessions``; of one load ``rw: 1 load, 4 sessions``."""
    points, ladder = scaling.ladder.points, scaling.ladder
    if points.is_empty():
        return f"{ladder.name}: no points"
    loads, repeats = points["load"], points["repeat"].n_unique()
    again = f" in {repeats} repeats" if repeats > 1 else ""
    if loads.n_unique() == 1:
        unit = ladder.load_unit if loads[0] != 1 else ladder.load_unit.removesuffix("s")
        return f"{ladder.name}: 1 load{again}, {format_given(loads[0])} {unit}"
    return (
        f"{ladder.name}: {counted(points.height, 'point')}{again}, {format_given(min(loads))} to "
        f"{format_given(max(loads))} {ladder.load_unit}"
    )


def _machine(known: Machine) -> str:
    """Returns ``8 cores, 16 CPUs``; empty if nothing is known."""
    counts = machine_counts(known, "CPU")
    threads = f"{counted(known.threads_per_core, 'thread')} per core" if known.threads_per_core else ""
    return ", ".join(p for p in (known.model, *counts, threads) if p)


def claims(title: str, answers: Sequence[Claim]) -> Document:
    """Returns a document of answers that need no ladder."""
    shown = [Statement(c.text, _answer_title(c), c.evidence, "note", c.id) for c in answers]
    return Document(title, [Section("Answers", [Statements(shown)])])


def _lead(scaling: Scaling) -> list[Paragraph]:
    return [Paragraph(a.text, lead=True) for a in scaling.answers if a.id == _PARAGRAPH and a.text][:1]


def _figures(scaling: Scaling) -> list[KeyFigure]:
    """Returns the most important answers that have a number."""
    by_id = {a.id: (a, a.value) for a in reversed(scaling.answers) if a.value is not None}
    return [
        KeyFigure(_answer_title(a), Cell(number(e.value, 3), e.value, e.unit), interval(e, 3))
        for a, e in [by_id[name] for name in _TILES if name in by_id][:_MOST_TILES]
    ]


def _answers(scaling: Scaling) -> list[Block]:
    """Returns the claims, and the reasons for missing ones."""
    statements = [
        Statement(a.text, _answer_title(a), a.evidence, "note" if a.value else "", a.id)
        for a in scaling.answers
        if a.id not in (_PARAGRAPH, _VETO)
    ]
    statements += [Statement(r, "unknown", tone="warning") for r in scaling.refused]
    return [Statements(statements)] if statements else []


def _answer_title(answer: Claim) -> str:
    if answer.id == "one-session" and "one" in answer.slots:
        return str(answer.slots["one"])  # in the unit of the load
    return _TITLES.get(answer.id, answer.id.replace("-", " ").capitalize())


def _measured(scaling: Scaling) -> list[Block]:
    return [] if scaling.ladder.points.is_empty() else [measured(scaling)]


def _models(scaling: Scaling) -> list[Block]:
    blocks: list[Block] = []
    best = scaling.best
    if best is not None:
        formula = best.formula if "=" in best.formula or not best.formula else f"X(N) = {best.formula}"
        text = formula + (f" ({best.cites})" if best.cites else "")
        blocks += [_parameters(best, _chosen(scaling, best)), *remarks([text] if text else [])]
        blocks.append(
            table("Models; weight: relative support by the data", _MODELS, scaling.fits, named=True)
        )
        others = [_parameters(f, f.title) for f in scaling.fits[1:]]
        blocks += [Section("Figures of the other models", others, folded=True)] if others else []
    costs = per_work(scaling.regressions)
    return [*blocks, *([costs] if costs is not None else [])]


def _chosen(scaling: Scaling, fit: Fitted) -> str:
    """Returns ``Best model: a plateau``, ``Requested model`` if another one has more weight, or ``Closest
    model, not accepted`` if residuals or measured loads speak against it."""
    is_best = fit.weight >= max(f.weight for f in scaling.fits)
    is_rejected = any(a.id == _VETO for a in scaling.answers)
    best = "Closest model, not accepted" if is_rejected else "Best model"
    name = f"{best if is_best else 'Requested model'}: {fit.title}"
    return f"{name} (weight {fit.weight:.2f}, R² {fit.r_squared:.4f})"


def _parameters(fit: Fitted, title: str) -> Table:
    """Returns a table of the parameters and the figures derived from them."""
    given = {(p.value, p.unit) for p in fit.parameters}  # a knee may be a parameter by another name
    knees = [k for k in fit.knees if (k.value, k.unit) not in given]
    estimates = [(e.name, e) for e in (*fit.parameters, *knees)]
    more = (("peak", fit.peak), ("throughput at the peak", fit.peak_throughput))
    return table(
        title, _PARAMETERS, [*estimates, *((name, e) for name, e in more if e is not None)], named=True
    )


def measured(scaling: Scaling) -> Table:
    """Returns means over repeats by load, with the prediction of the best model, without empty columns.

    The mean response time is that of all calls, as in the table of the run: repeats of higher throughput
    have more.
    """
    ladder, means = scaling.ladder, pl.exclude("load", "repeat", "response_s").mean()
    done = pl.col("throughput").filter(pl.col("response_s").is_not_null()).sum()
    response = pl.when(done > 0).then((pl.col("throughput") * pl.col("response_s")).sum() / done)
    loads = ladder.points.group_by("load").agg(means, pl.len().alias("repeats"), response.alias("response_s"))
    fitted = scaling.residuals.group_by("load").agg(pl.col("predicted", "residual", "efficiency").mean())
    rows = loads.join(fitted, on="load", how="left").sort("load").to_dicts()
    unit = ladder.throughput_unit

    def column(head: str, rank: int, name: str, text: Callable[..., str] = number, unit: str = "CPUs"):  # type: ignore[no-untyped-def]
        return Column(head, number=True, rank=rank), [known(r[name], text, unit) for r in rows]

    plain = "duration" if _of_commands(ladder) else noun("response")
    repeated = column("repeats", 5, "repeats", str, "")
    residual = (
        numeric("residual", 4),
        [_residual(r["residual"], r["predicted"]) for r in rows],
    )
    columns: list[tuple[Column, list[Cell]]] = [
        column(ladder.load_unit, 0, "load", number, ""),
        *([repeated] if any(r["repeats"] > 1 for r in rows) else []),
        column(unit, 0, "throughput", number, unit),
        column("predicted", 3, "predicted", number, unit),
        residual,
        column(
            "of rate" if ladder.by_rate else "efficiency",
            0,
            "efficiency",
            lambda v: f"{percent(v, digits=1)} %",
            "",
        ),
        column(ladder.time_name if ladder.of_work else plain, 1, "response_s", time, "s"),
        column(f"p95 per {ladder.of_work}" if ladder.of_work else "p95", 2, "response_p95_s", time, "s"),
        column("CPU", 1, "cpu"),
        column("user", 2, "cpu_user"),
        column("system", 2, "cpu_system"),
        column("CPU WAIT", 0, "cpu_wait"),
    ]
    shown = [(head, cells) for head, cells in columns if any(c.value is not None for c in cells)]
    lines = zip(*(cells for _, cells in shown), strict=True)
    title = "Measured, means over repeats" if any(r["repeats"] > 1 for r in rows) else "Measured"
    reference = scaling_charts.reference_load(scaling)
    return Table(
        f"{title}; efficiency against {reference}" if reference else title,
        [head for head, _ in shown],
        [Row(list(n)) for n in lines],
        along_axis=True,
    )


def _of_commands(ladder: Ladder) -> bool:
    return ladder.load_unit == OF_COMMANDS["load_unit"]


def _caveats(scaling: Scaling) -> list[str]:
    """Returns notes on the input and the fit, each once."""
    fit = scaling.best
    notes = [*scaling.ladder.notes, *scaling.notes, *(fit.notes if fit else ())]
    has_residuals = any(n.casefold().startswith("residuals") for n in notes)
    sentence = scaling_charts.residual_words(fit) if fit and not has_residuals else None
    return list(dict.fromkeys([*notes, *([sentence] if sentence else [])]))


def _criterion(value: float) -> str:
    return significant(value, 4)


def _weight(value: float) -> str:
    return "< 0.001" if 0 <= value < 0.0005 else f"{value:.3f}"


def _residual(residual: float | None, predicted: float | None) -> Cell:
    if residual is None or not predicted:
        return Cell(UNKNOWN)
    text = f"{100 * residual / predicted:+.1f} %"
    return Cell(text.lstrip("+-") if text[1:] == "0.0 %" else text, residual / predicted)


_Figure = tuple[str, Estimate]
_PARAMETERS: tuple[tuple[Column, Callable[[_Figure], Cell]], ...] = (
    (Column(""), lambda f: word(f[0])),
    (numeric("value"), lambda f: Cell(number(f[1].value), f[1].value, f[1].unit)),
    (Column("unit"), lambda f: word(f[1].unit)),
    (numeric("95 % interval"), lambda f: word(interval(f[1]))),
    (Column("by", rank=2), lambda f: word(f[1].method if interval(f[1]) else "")),
    (numeric("standard error", 3), lambda f: optional(f[1].std_err, number, f[1].unit)),
    (Column("", rank=1, wraps=True), lambda f: word(f[1].note)),
)
_MODELS: tuple[tuple[Column, Callable[[Fitted], Cell]], ...] = (
    (Column("model"), lambda f: word(f.title)),
    (numeric("parameters", 3), lambda f: known(len(f.parameters), str)),
    (numeric("R²"), lambda f: known(f.r_squared, lambda v: f"{v:.4f}")),
    (numeric("AICc", 1), lambda f: known(f.aicc, _criterion)),
    (numeric("BIC", 4), lambda f: known(f.bic, _criterion)),
    (numeric("weight (AICc)"), lambda f: known(f.weight, _weight)),
    (numeric("weight (BIC)", 4), lambda f: known(f.weight_bic, _weight)),
    (Column("X(N)", rank=5), lambda f: word(f.formula)),
)
