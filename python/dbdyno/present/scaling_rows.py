"""What every form of a scaling's report shares: short numbers with intervals, and the rows of its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from dbdyno.model.analyses import Fitted, Machine, Scaling
from dbdyno.model.claim import Claim, Estimate
from dbdyno.model.units import counted, format_ns, significant
from dbdyno.present.document import UNKNOWN, Cell, Column, Row, Table, known, optional, table, word
from dbdyno.present.figures import percent

PARAGRAPH = "paragraph"
"""The answer that is a text for everybody."""
_TITLES = {
    "one-cpu": "One CPU",
    "at-cpus": "At as many as CPUs",
    "one-more-session": "One more",
    "cpu-wait-onset": "CPU WAIT begins",
    "smt-yield": "SMT yield",
    "cpu-per-work": "CPU per unit of work",
    "cpu-inflation": "CPU inflation",
    "reason": "Why it bends",
}
_TILES = ("one-session", "peak", "knee", "scales-to", "smt-yield", "second-knee", "cpu-wait-onset")
_DEPENDENT = 0.05


def title(scaling: Scaling) -> str:
    """``cisco.csv: 32 points, 1 to 64 sessions``."""
    points, ladder = scaling.ladder.points, scaling.ladder
    if points.is_empty():
        return f"{ladder.name}: no points"
    loads = points["load"]
    measured = f"{points.height} points" if points.height != 1 else "1 point"
    repeats = points["repeat"].n_unique()
    again = f" in {repeats} repeats" if repeats > 1 else ""
    return f"{ladder.name}: {measured}{again}, {min(loads):g} to {max(loads):g} {ladder.load_unit}"


def chosen(scaling: Scaling) -> str:
    """``Best model: a plateau``; another one that was put first is not called so."""
    if scaling.best is None:
        return "No model was fitted"
    is_best = scaling.best.weight >= max(f.weight for f in scaling.fits)
    return f"{'Best model' if is_best else 'Requested model'}: {scaling.best.title}"


def machine(known: Machine) -> str:
    """``8 cores, 16 CPUs``; empty: nothing is known."""
    parts = [known.model or ""]
    parts += [counted(known.cores, "core")] if known.cores else []
    parts += [counted(known.cpus, "CPU")] if known.cpus else []
    parts += [f"{known.threads_per_core} threads a core"] if known.threads_per_core else []
    return ", ".join(p for p in parts if p)


def paragraph(scaling: Scaling) -> str | None:
    return next((a.text for a in scaling.answers if a.id == PARAGRAPH), None)


def answers(scaling: Scaling) -> list[Claim]:
    return [a for a in scaling.answers if a.id != PARAGRAPH]


def tiles(scaling: Scaling, most: int = 5) -> list[tuple[Claim, Estimate]]:
    """The answers with a number that matter most, in their order."""
    found = {a.id: (a, a.value) for a in reversed(scaling.answers) if a.value is not None}
    return [found[name] for name in _TILES if name in found][:most]


def answer_title(answer: Claim) -> str:
    return _TITLES.get(answer.id, answer.id.replace("-", " ").capitalize())


def number(value: float | None, digits: int = 4) -> str:
    """Four significant digits, thousands parted; of whole numbers no more than they have."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == round(value) and abs(value) < 1e7:
        return f"{value:,.0f}"
    if value != 0 and abs(value) < 1e-6:
        return f"{value:.{digits - 1}e}"
    return significant(value, digits)


def interval(e: Estimate, digits: int = 4) -> str:
    """``33.1 .. 39.2``, ``at least 33.1``; empty: none."""
    low, high = (v if v is not None and math.isfinite(v) else None for v in (e.low, e.high))
    if low is not None and high is not None:
        return f"{number(low, digits)} .. {number(high, digits)}"
    if low is not None:
        return f"at least {number(low, digits)}"
    return "" if high is None else f"at most {number(high, digits)}"


def figures_of(fit: Fitted) -> Iterator[tuple[str, Estimate]]:
    """Parameters, then what follows from them."""
    yield from ((p.name, p) for p in fit.parameters)
    told = {(p.value, p.unit) for p in fit.parameters}  # a knee may be a parameter by another name
    yield from ((k.name, k) for k in fit.knees if (k.value, k.unit) not in told)
    if fit.peak is not None:
        yield "peak", fit.peak
    if fit.peak_throughput is not None:
        yield "throughput at the peak", fit.peak_throughput


def parameters(fit: Fitted, title: str) -> Table:
    return table(title, _PARAMETERS, figures_of(fit), named=True)


def models(scaling: Scaling) -> Table:
    """All models, the best first."""
    return table("Models; weight: relative support by the data", _MODELS, scaling.fits, named=True)


def rungs(scaling: Scaling) -> list[dict[str, Any]]:
    """Means over repeats a load, with what the best model has there; the missing is None."""
    means = pl.exclude("load", "repeat").mean()
    measured = scaling.ladder.points.group_by("load").agg(means, pl.len().alias("repeats"))
    fitted = scaling.residuals.group_by("load").agg(pl.col("predicted", "residual", "efficiency").mean())
    return measured.join(fitted, on="load", how="left").sort("load").to_dicts()


def measured(scaling: Scaling) -> Table:
    """Means over repeats for each load; columns without a figure are left out."""
    rows, ladder = rungs(scaling), scaling.ladder
    repeats = any(r["repeats"] > 1 for r in rows)
    columns: list[tuple[str, int, list[Cell]]] = [
        (ladder.load_unit, 0, _cells(rows, "load", number)),
        ("repeats", 5, _cells(rows, "repeats", str) if repeats else []),
        (ladder.throughput_unit, 0, _cells(rows, "throughput", number, ladder.throughput_unit)),
        ("predicted", 3, _cells(rows, "predicted", number, ladder.throughput_unit)),
        ("residual", 4, [_residual(r["residual"], r["predicted"]) for r in rows]),
        ("efficiency", 0, _cells(rows, "efficiency", lambda v: f"{percent(v, digits=1)} %")),
        ("response", 1, _cells(rows, "response_s", _time, "s")),
        ("p95", 2, _cells(rows, "response_p95_s", _time, "s")),
        ("CPU", 1, _cells(rows, "cpu", number, "CPUs")),
        ("user", 2, _cells(rows, "cpu_user", number, "CPUs")),
        ("system", 2, _cells(rows, "cpu_system", number, "CPUs")),
        ("CPU WAIT", 0, _cells(rows, "cpu_wait", number, "CPUs")),
    ]
    shown = [c for c in columns if any(cell.value is not None for cell in c[2])]
    lines = zip(*(cells for _, _, cells in shown), strict=True)
    heads = [Column(head, number=True, rank=rank) for head, rank, _ in shown]
    return Table("Measured, means over repeats", heads, [Row(list(line)) for line in lines])


def residual_words(fit: Fitted) -> str | None:
    """Whether the residuals are independent, in a sentence."""
    if fit.durbin_watson is None or not math.isfinite(fit.durbin_watson):
        return None
    p = fit.autocorrelation_p
    told = f"Durbin-Watson of the residuals: {fit.durbin_watson:.3f} (2: independent)"
    if p is None:
        return f"{told}."
    related = "correlated" if p < _DEPENDENT else "not visibly correlated"
    return f"{told}, p = {p:.2g}: residuals of neighbouring loads are {related}."


def caveats(scaling: Scaling) -> list[str]:
    """What was put in order, what the fit says of itself; each once."""
    fit = scaling.best
    said = [*scaling.ladder.notes, *scaling.notes, *(fit.notes if fit else ())]
    told = any(n.startswith("residuals") for n in said)
    words = residual_words(fit) if fit and not told else None
    return list(dict.fromkeys([*said, *([words] if words else [])]))


def _criterion(value: float) -> str:
    return f"{value:,.2f}" if math.isfinite(value) else UNKNOWN


def _weight(value: float) -> str:
    return "< 0.001" if 0 <= value < 0.0005 else f"{value:.3f}"


def _residual(residual: float | None, predicted: float | None) -> Cell:
    if residual is None or not predicted:
        return Cell(UNKNOWN)
    text = f"{100 * residual / predicted:+.1f} %"
    return Cell(text.lstrip("+-") if text[1:] == "0.0 %" else text, residual / predicted)


def _time(seconds: float) -> str:
    return format_ns(seconds * 1e9)


def _cells(rows: list[dict[str, Any]], column: str, text: Callable[[Any], str], unit: str = "") -> list[Cell]:
    return [known(r[column], text, unit) for r in rows]


_Figure = tuple[str, Estimate]
_PARAMETERS: tuple[tuple[Column, Callable[[_Figure], Cell]], ...] = (
    (Column(""), lambda f: word(f[0])),
    (Column("value", number=True), lambda f: Cell(number(f[1].value, 5), f[1].value, f[1].unit)),
    (Column("unit"), lambda f: word(f[1].unit)),
    (Column("95 % interval", number=True), lambda f: word(interval(f[1], 5))),
    (Column("by", rank=2), lambda f: word(f[1].method if interval(f[1]) else "")),
    (Column("standard error", number=True, rank=3), lambda f: optional(f[1].std_err, number, f[1].unit)),
    (Column("", rank=1, wraps=True), lambda f: word(f[1].note)),
)
_MODELS: tuple[tuple[Column, Callable[[Fitted], Cell]], ...] = (
    (Column("model"), lambda f: word(f.title)),
    (Column("parameters", number=True, rank=3), lambda f: known(len(f.parameters), str)),
    (Column("R²", number=True), lambda f: known(f.r_squared, lambda v: f"{v:.5f}")),
    (Column("AICc", number=True, rank=1), lambda f: known(f.aicc, _criterion)),
    (Column("BIC", number=True, rank=4), lambda f: known(f.bic, _criterion)),
    (Column("weight (AICc)", number=True), lambda f: known(f.weight, _weight)),
    (Column("weight (BIC)", number=True, rank=4), lambda f: known(f.weight_bic, _weight)),
    (Column("X(N)", rank=5), lambda f: word(f.formula)),
)
