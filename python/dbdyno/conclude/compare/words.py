"""A comparison in words: the answer at the rungs that matter, and what to bear in mind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dbdyno.conclude.compare.stopping_rule import rule
from dbdyno.model.comparison import Claim, Comparison, Line, MetricTable, value_text, verdict_text
from dbdyno.model.results import Results
from dbdyno.model.variant import LimitSpec

_FEW = 5  # repeats that a first try should have


def summary(made: Comparison, results: Results) -> Iterator[str]:
    """The rank at the lowest and at the highest rung of each ladder: below a limit and above it."""
    table = made.metrics[0]
    limit = _limit(results) if made.kind == "variants" else None
    for workload, series in dict.fromkeys((line.workload, line.series) for line in table.lines):
        lines = [line for line in table.lines if (line.workload, line.series) == (workload, series)]
        rungs = sorted({line.sessions for line in lines})
        for sessions in dict.fromkeys((rungs[-1], rungs[0])):
            where = f"{series}, {_sessions(sessions)}" if series else _sessions(sessions)
            yield f"At {where}{_against(sessions, limit)}: {_ranked(table, lines, sessions, made.margin)}."


def _ranked(table: MetricTable, lines: Sequence[Line], sessions: int, margin: float) -> str:
    claims = {
        c.variant: c
        for c in table.claims
        if not c.neighbours and c.sessions == sessions and c.series == lines[0].series
    }
    parts = []
    for line in (x for x in lines if x.sessions == sessions):
        figure = f"{line.variant} {value_text(table.unit, line.mean)}"
        claim = claims.get(line.variant)
        parts.append(figure if claim is None else f"{figure} ({_effect(claim, margin)})")
    return "; ".join(parts)


def _effect(claim: Claim, margin: float) -> str:
    e = claim.effect
    verdict = verdict_text(claim.verdict, margin, claim.further_repeats)
    if e.ratio is None:
        return verdict
    ends = f" [{e.low:.3f}, {e.high:.3f}]" if e.low is not None and e.high is not None else ""
    return f"{e.ratio:.3f}{ends} of {claim.baseline}: {verdict}"


def _sessions(n: int) -> str:
    return f"{n} session{'' if n == 1 else 's'}"


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


def _against(sessions: int, limit: float | None) -> str:
    if limit is None:
        return ""
    return f" ({'above' if sessions > limit else 'within'} the tightest limit, {limit:g})"


def notes(made: Comparison, left_out: Sequence[str], runs: Sequence[Results]) -> Iterator[str]:
    claims = [c for table in made.metrics for c in table.claims]
    yield _method(made)
    if made.kind == "runs":
        yield (
            "Two runs do not alternate: drift between them counts as a difference. The variants of one "
            "recipe are compared block by block."
        )
    elif runs[0].plan.order == "ladder":
        yield "The variants did not alternate (order: ladder): drift of the machine counts as a difference."
    yield from _repeats(claims)
    yield from _unknown(made)
    if any(c.effect.floored for c in claims):
        yield (
            "Where repeats agree better than the noise inside their measurements or the resolution of the "
            "figure allows, the interval is widened to these."
        )
    for run in runs:
        if run.plan.experiment.until is not None:
            yield rule(run.plan.experiment.until)
        if run.info.status != "complete":
            yield f"Run {run.info.id} is {run.info.status}: {run.info.reason or 'no reason recorded'}."
    yield from (f"Left out: {cell}" for cell in left_out)


def _method(made: Comparison) -> str:
    how = "repeats paired by block" if made.kind == "variants" else "the repeats of each run"
    family = max((len(t.claims) for t in made.metrics), default=0)
    holm = f"; p adjusted (Holm) for the {family} claims of each table" if family > 1 else ""
    return f"Ratio of means with Fieller's 95 % interval over {how}{holm}."


def _unknown(made: Comparison) -> Iterator[str]:
    """Quantities that are known of some only."""
    everyone = list(dict.fromkeys(line.variant for line in made.metrics[0].lines))
    for table in made.metrics[1:]:
        lines = {(x.workload, x.series, x.sessions, x.variant) for x in table.lines}
        every = ((x.workload, x.series, x.sessions, x.variant) for x in made.metrics[0].lines)
        lacking = {key[-1] for key in every if key not in lines}
        if lacking:
            names = ", ".join(v for v in everyone if v in lacking)
            yield f"Unknown for some variants: {table.title}, for {names}."


def _repeats(claims: Sequence[Claim]) -> Iterator[str]:
    least = min((min(c.effect.n_baseline, c.effect.n_variant) for c in claims), default=0)
    if least < 2:
        yield (
            "n=1: intervals cover the noise within the measurement only and decide nothing. "
            f"Use --repeats {_FEW}."
        )
        return
    floors = {
        c.effect.least_p: least for c in claims if c.effect.least_p is not None and c.effect.least_p >= 0.05
    }
    if floors:
        yield (
            f"With this number of repeats the permutation p cannot be below {max(floors):.2g}; the verdicts "
            "use Student's t, which assumes normal means."
        )
