"""A comparison in words: the answer at the rungs that matter, and what to bear in mind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbdyno.conclude import number_format as fmt
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare.stopping_rule import rule
from dbdyno.conclude.compare.table import Match
from dbdyno.model.claim import Claim
from dbdyno.model.comparison import Comparison, Contrast, Line, MetricTable, value_text, verdict_text
from dbdyno.model.plan import LimitSpec
from dbdyno.model.results import Results

_FEW = 5  # repeats that a first try should have


def summary(made: Comparison, results: Results) -> Iterator[Claim]:
    """The rank at the lowest and at the highest rung of each ladder: below a limit and above it."""
    table = made.metrics[0]
    limit = _limit(results) if made.kind == "variants" else None
    for workload, series in dict.fromkeys((line.workload, line.series) for line in table.lines):
        lines = [line for line in table.lines if (line.workload, line.series) == (workload, series)]
        rungs = sorted({line.sessions for line in lines})
        for sessions in dict.fromkeys((rungs[-1], rungs[0])):
            load = fmt.load(sessions)
            said = {"load": f"{series}, {load}" if series else load, "limit": limit}
            said["ranking"] = _ranked(table, lines, sessions, made.margin)
            case = "plain" if limit is None else "above" if sessions > limit else "within"
            yield claim("rank", said, case=case)


def _ranked(table: MetricTable, lines: Sequence[Line], sessions: int, margin: float) -> str:
    claims = {
        c.variant: c
        for c in table.claims
        if not c.neighbours and c.sessions == sessions and c.series == lines[0].series
    }
    parts = []
    for line in (x for x in lines if x.sessions == sessions):
        figure = f"{line.variant} {value_text(table.unit, line.mean)}"
        found = claims.get(line.variant)
        parts.append(figure if found is None else f"{figure}, {_effect(found, margin)}")
    return "; ".join(parts)


def _effect(found: Contrast, margin: float) -> str:
    e = found.effect
    verdict = verdict_text(found.verdict, margin, found.further_repeats)
    if e.ratio is None:
        return verdict
    ends = f" ({e.low:.3f} to {e.high:.3f})" if e.low is not None and e.high is not None else ""
    return f"{e.ratio:.3f}{ends} of {found.baseline}: {verdict}"


def _limit(results: Results) -> float | None:
    """CPUs or sessions that the tightest limit of any variant grants."""
    found = [g for v in results.plan.variants if (g := granted(v.limits)) is not None]
    return min(found, default=None)


def granted(limits: LimitSpec) -> float | None:
    """CPUs or sessions at once; ``None``: not limited. A list is as the plan resolved it: ``0-5,8``."""
    counts = [limits.quota, limits.pool]
    if limits.cpus is not None:
        ends = [part.split("-") for part in limits.cpus.split(",")]
        counts.append(
            sum(int(e[-1]) - int(e[0]) + 1 for e in ends if all(x.strip().isdigit() for x in e)) or None
        )
    return min((float(c) for c in counts if c is not None), default=None)


def notes(
    made: Comparison, left_out: Sequence[tuple[str, str]], runs: Sequence[Results], matches: Sequence[Match]
) -> Iterator[Claim]:
    contrasts = [c for table in made.metrics for c in table.claims]
    family = max((len(t.claims) for t in made.metrics), default=0)
    holm = f"; p adjusted (Holm) for the {family} claims of each table" if family > 1 else ""
    yield claim("comparison-method", {"family": family, "holm": holm}, case=made.kind)
    if made.kind == "runs" or runs[0].plan.order == "ladder":
        yield claim("no-alternation", {}, case=made.kind)
    yield from _calls(matches, made.metrics[0].title)
    yield from _repeats(contrasts)
    yield from _unknown(made)
    if any(c.effect.floored for c in contrasts):
        yield claim("widened-intervals", {})
    for run in runs:
        if run.plan.experiment.until is not None:
            yield rule(run.plan.experiment.until)
        if run.info.status != "complete":
            reason = run.info.reason or "no reason recorded"
            yield claim("run-status", {"run": run.info.id, "status": run.info.status, "reason": reason})
    for cell, reason in left_out:
        yield claim("left-out", {"measurement": cell, "reason": reason}, cells=(cell,))


def _calls(matches: Sequence[Match], compared: str) -> Iterator[Claim]:
    """Calls of different size."""
    for m in matches:
        if others := [label for label in m.groups if not m.same_call(label)]:
            sizes = ", ".join(f"{label} {m.sizes[label]:,}" for label in (m.baseline, *others))
            yield claim("calls-differ", {"sizes": sizes, "compared": compared})
            return


def _unknown(made: Comparison) -> Iterator[Claim]:
    """Quantities that are known of some only."""
    everyone = list(dict.fromkeys(line.variant for line in made.metrics[0].lines))
    for table in made.metrics[1:]:
        lines = {(x.workload, x.series, x.sessions, x.variant) for x in table.lines}
        every = ((x.workload, x.series, x.sessions, x.variant) for x in made.metrics[0].lines)
        lacking = {key[-1] for key in every if key not in lines}
        if lacking:
            names = ", ".join(v for v in everyone if v in lacking)
            yield claim("unknown-quantity", {"quantity": table.title, "variants": names})


def _repeats(contrasts: Sequence[Contrast]) -> Iterator[Claim]:
    least = min((min(c.effect.n_baseline, c.effect.n_variant) for c in contrasts), default=0)
    if least < 2:
        yield claim("few-repeats", {"wanted": _FEW}, case="one")
        return
    floors = [p for c in contrasts if (p := c.effect.least_p) is not None and p >= 0.05]
    if floors:
        yield claim("few-repeats", {"repeats": least, "least": max(floors)}, case="permutation")
