"""Builds the document of a suite: the answer, the matrix of its benchmarks, and what is behind each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dbdyno.model.plan.kinds import kind_named, speaking_of
from dbdyno.model.results.comparison import Comparison, Contrast, value_text
from dbdyno.model.results.suite import SuiteMatrix, SuiteRow
from dbdyno.model.schema.data_sources.costs import BY_ID
from dbdyno.model.units import format_amount
from dbdyno.present.document.document import (
    UNKNOWN,
    Block,
    Cell,
    Column,
    Document,
    Paragraph,
    Row,
    Section,
    Statement,
    Statements,
    Table,
    known,
    numeric,
    remarks,
    word,
)
from dbdyno.present.figures import compare_rows
from dbdyno.present.figures.figures import plus_minus
from dbdyno.present.figures.jsondoc import FORMAT
from dbdyno.present.run import cpu_profile

_ANSWERS = ("suite-answer", "suite-measured", "suite-failed", "suite-stopped")
_COSTS = ("cpu_ns", "cpu_user_ns", "cpu_system_ns", "client_cpu_ns", "logical_reads", "wal_bytes")
"""Costs of a call in the table of a suite without variants."""
_FUNCTIONS = 10


def document(matrix: SuiteMatrix) -> Document:
    """Returns the page of a suite."""
    behind = [s for row in matrix.rows if (s := _behind(row, matrix)) is not None]
    blocks = [*_matrix(matrix), *_causes(matrix)]
    if behind:
        blocks.append(Section("Each benchmark", behind, "each", detail=True))
    blocks.append(Section("Runs", [_runs(matrix)], "runs", folded=True))
    return Document(_title(matrix), blocks, lead=_lead(matrix))


def brief(matrix: SuiteMatrix) -> Document:
    """Returns the document for a terminal."""
    more = remarks([f"Again, or as a page: dbdyno show {matrix.id}; dbdyno report {matrix.id}"])
    return Document(_title(matrix), [*_matrix(matrix), *_causes(matrix)], lead=_lead(matrix), more=more)


def record(matrix: SuiteMatrix) -> dict[str, Any]:
    """Returns the suite for JSON, without the comparisons of its runs: ``dbdyno compare RUN --json``."""
    return {"format": FORMAT, **matrix.model_dump(mode="json", exclude={"comparisons"})}


def _title(matrix: SuiteMatrix) -> str:
    return f"Suite {matrix.suite} on {matrix.server}" if matrix.server else f"Suite {matrix.suite}"


def _lead(matrix: SuiteMatrix) -> list[Paragraph]:
    answers = [c for c in matrix.conclusions if c.id.startswith(_ANSWERS)]
    return [Paragraph(c.text, "warning" if c.severity == "warning" else "", lead=True) for c in answers]


def _remarks(matrix: SuiteMatrix) -> list[Paragraph]:
    rest = [c for c in matrix.conclusions if not c.id.startswith(_ANSWERS)]
    return remarks(f"{c.text}{f' To do: {c.advice}.' if c.advice else ''}" for c in rest)


# -- the matrix --


def _matrix(matrix: SuiteMatrix) -> Iterator[Block]:
    others = matrix.variants[1:]
    if not others:
        yield Section("Benchmarks", [_alone(matrix), *_remarks(matrix)], "matrix")
        return
    if len(others) > 1:
        yield Section("Benchmarks by variant", [_overview(matrix), *_remarks(matrix)], "matrix")
    for variant in others:
        title = f"{variant} against {matrix.variants[0]}"
        end = _remarks(matrix) if len(others) == 1 else []
        yield Section(title, [_pair(matrix, variant), *end], f"against-{variant}", minor=len(others) > 1)


def _name(row: SuiteRow, matrix: SuiteMatrix) -> Cell:
    several = len({r.sessions for r in matrix.rows if r.benchmark == row.benchmark}) > 1
    name = f"{row.benchmark}, {row.sessions} sessions" if several else row.benchmark
    return Cell(name, name, note=row.doc, target=_id(row) if row.run in matrix.comparisons else "")


def _id(row: SuiteRow) -> str:
    return f"benchmark-{row.benchmark}-{row.sessions}"


def _rate(row: SuiteRow, variant: str) -> Cell:
    mean = row.means.get(variant)
    return Cell(UNKNOWN, note=row.reason) if mean is None else compare_rows.figure(row.unit, mean)


def _contrast(row: SuiteRow, variant: str) -> Contrast | None:
    return next((c for c in row.contrasts if c.variant == variant), None)


def _pair(matrix: SuiteMatrix, variant: str) -> Table:
    """Returns one row per benchmark: both rates, their ratio, and the verdict for all rows together."""
    base = matrix.variants[0]
    verdict, ratio, *rest = compare_rows.EFFECT
    columns = [Column("benchmark"), numeric(base, 1), numeric(variant, 1), ratio, rest[0], verdict]
    columns += [numeric("CPU/call", 1)._replace(name="CPU time of a call, ratio"), *rest[1:]]
    rows = []
    for row in matrix.rows:
        claim = _contrast(row, variant)
        ours = [_rate(row, v) for v in (base, variant)]
        if claim is None:
            effect = [word(row.reason or "not compared"), *[word("")] * (len(compare_rows.EFFECT) - 1)]
            tone = compare_rows.TONES["undecided"]
        else:
            effect = compare_rows.effect_cells(claim, matrix.margin)
            tone = compare_rows.TONES.get(claim.verdict, "")
        shown = [*ours, effect[1], effect[2], effect[0], _cpu(row, variant, matrix.margin), *effect[3:]]
        rows.append(Row([_name(row, matrix), *shown], tone))
    return Table("calls per second; the largest difference first", columns, rows).without_unknown()


def _cpu(row: SuiteRow, variant: str, margin: float) -> Cell:
    """Returns the ratio of the CPU time of a call, and in a word whether it differs."""
    claim = next((c for c in row.cpu if c.variant == variant), None)
    if claim is None:
        return Cell(UNKNOWN)
    verdict, ratio, interval, *_ = compare_rows.effect_cells(claim, margin)
    decided = {"better": ", less", "worse": ", more"}.get(claim.verdict, "")
    tone = compare_rows.TONES.get(claim.verdict, "") if decided else ""
    note = f"{interval.text}; {verdict.text}"
    return Cell(f"{ratio.text}{decided}", claim.effect.ratio, note=note, tone=tone)


def _overview(matrix: SuiteMatrix) -> Table:
    """Returns one row per benchmark, and a column of ratios for each variant."""
    base, *others = matrix.variants
    columns = [Column("benchmark"), numeric(f"{base}, calls/s"), *(numeric(v) for v in others)]
    rows = [
        Row([_name(r, matrix), _rate(r, base), *(_ratio(r, v, matrix.margin) for v in others)])
        for r in matrix.rows
    ]
    return Table(f"Ratio to {base} with 95 % interval, and verdict", columns, rows)


def _ratio(row: SuiteRow, variant: str, margin: float) -> Cell:
    claim = _contrast(row, variant)
    if claim is None:
        return Cell(UNKNOWN, note=row.reason)
    verdict, ratio, interval, *_ = compare_rows.effect_cells(claim, margin)
    word_only = verdict.text.partition(":")[0]
    text = f"{ratio.text} ({interval.text}) {word_only}"
    return Cell(text, claim.effect.ratio, note=verdict.text, tone=compare_rows.TONES.get(claim.verdict, ""))


def _alone(matrix: SuiteMatrix) -> Table:
    """Returns throughput and costs of a call by benchmark, where nothing is compared."""
    variant = matrix.variants[0] if matrix.variants else ""
    costs = [f for f in _COSTS if any(f in r.costs.get(variant, {}) for r in matrix.rows)]
    columns = [Column("benchmark"), numeric("calls/s"), numeric("±95 %", 1)]
    columns += [numeric(BY_ID[f].title, 2) for f in costs]
    columns += [Column("a call is", wraps=True, rank=3)]
    rows = []
    for row in matrix.rows:
        mean, low, high = (x.get(variant) for x in (row.means, row.low, row.high))
        ends = None if not mean or low is None or high is None else (low / mean, high / mean)
        own = row.costs.get(variant, {})
        amounts = [_amount(own.get(f), BY_ID[f].unit) for f in costs]
        what = row.doc if mean is not None else row.reason
        rows.append(Row([_name(row, matrix), _rate(row, variant), plus_minus(ends), *amounts, word(what)]))
    return Table("Throughput, and costs of a call", columns, rows).without_unknown()


def _amount(value: float | None, unit: str) -> Cell:
    return known(value, lambda v: format_amount(v, unit), unit)


# -- what is behind a row --


def _causes(matrix: SuiteMatrix) -> Iterator[Section]:
    causes = [(row, cause) for row in matrix.rows for cause in row.causes.values()]
    items = [
        Statement(c.claim.text, id=c.claim.id, target=_id(row), evidence=f"dbdyno compare {row.run}")
        for row, c in causes
    ]
    if items:
        yield Section("What changed with it", [Statements(items)], "causes")


def _behind(row: SuiteRow, matrix: SuiteMatrix) -> Section | None:
    """Returns the costs of a benchmark's calls, and the functions of its profile, on both sides."""
    comparison = matrix.comparisons.get(row.run)
    if comparison is None:
        return None
    with speaking_of(kind_named(comparison.run_kind)):
        blocks = [*_changed(row, comparison, matrix), *_functions(row, comparison)]
    more = Paragraph(f"All quantities, and why: dbdyno compare {row.run}", "muted")
    return Section(f"{row.benchmark}: {row.doc}", [*blocks, more], _id(row), folded=True)


def _changed(row: SuiteRow, comparison: Comparison, matrix: SuiteMatrix) -> Iterator[Block]:
    """Yields, by variant, the rates and the costs that differ, and then all costs."""
    for claim in row.contrasts:
        base, ours = (value_text(row.unit, row.means[v]) for v in (claim.baseline, claim.variant))
        verdict = compare_rows.verdict(claim, matrix.margin)
        yield Paragraph(f"{claim.variant} {ours}, {claim.baseline} {base}: {verdict}")
        if (cause := row.causes.get(claim.variant)) is not None:
            yield Paragraph(cause.claim.text)
        for change in comparison.operation_costs:
            if (change.variant, change.sessions) == (claim.variant, row.sessions):
                yield compare_rows.cost_table(change, comparison)
                yield Paragraph("p is adjusted for the costs of this benchmark alone.", "muted")


def _functions(row: SuiteRow, comparison: Comparison) -> Iterator[Block]:
    for change in comparison.costs:
        if change.sessions == row.sessions:
            yield from cpu_profile.cost_tables(change, _FUNCTIONS)


def _runs(matrix: SuiteMatrix) -> Table:
    columns: Sequence[Column] = [Column("benchmark"), Column("run"), Column("a call is", wraps=True)]
    return Table("", columns, [Row([word(r.benchmark), word(r.run), word(r.doc)]) for r in matrix.rows])
