"""Summarises a comparison: the answer at the rungs that matter, remarks, and the contribution of each account
of session time to the difference, per call or work unit.

The ledger accounts for all of a session's time. So the accounts' seconds per unit add up to sessions / rate,
and their differences to the whole difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.effects import LIMITED, CellFigures, known, moments_of_pairs, moments_of_samples
from dbdyno.conclude.compare.stopping_rule import rule
from dbdyno.conclude.compare.table import ALPHA, Match
from dbdyno.model.plan.plan import LimitSpec
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import (
    Account,
    Comparison,
    Contrast,
    Line,
    MetricTable,
    Verdict,
    Why,
    interval_text,
    ratio_text,
    value_text,
)
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import ByCell
from dbdyno.model.text.nouns import at_once
from dbdyno.model.units import counted, joined
from dbdyno.stats.estimates import students_quantile
from dbdyno.stats.significance import outliers
from dbdyno.stats.two_groups import Moments

_ADVISED_REPEATS = (
    5  # repeats advised in a remark: C(10, 5) = 252, so a permutation test can reach 5 % with some margin
)


def summary(
    comparison: Comparison, results: Results, matches: Sequence[Match], *, named: bool = False
) -> Iterator[Claim]:
    """Yields the verdicts at the highest and the lowest rung of each ladder, which are usually above and
    below a limit, each with all rungs of the same verdicts. ``named`` adds the name of the quantity."""
    table = comparison.metrics[0]
    ends = paced.ends(matches)
    limit = _limit(results) if comparison.kind == "variants" else None
    for workload, series in dict.fromkeys((line.workload, line.series) for line in table.lines):
        if ends and (workload, series) not in ends:
            continue
        lines = [line for line in table.lines if (line.workload, line.series) == (workload, series)]
        rungs = sorted({line.sessions for line in lines})
        groups = {n: _by_verdict(table, lines, n) for n in rungs}
        alike = {n: str([(v, sorted(c.variant for c in g)) for v, g in x.items()]) for n, x in groups.items()}
        for n in [rungs[-1], *(rungs[:1] if alike[rungs[0]] != alike[rungs[-1]] else [])]:
            others = [other for other in rungs if other != n and alike[other] == alike[n]]
            load = fmt.load(n) + (f" ({table.title})" if named else "")
            values: dict[str, Any] = {"load": f"{series}, {load}" if series else load, "limit": limit}
            values["sessions"] = [n, *others]
            case = "plain" if limit is None else "above" if n > limit else "within"
            parts = []
            for verdict, contrasts in groups[n].items():
                alone = verdict == "undecided" and len(groups[n]) == 1
                parts.append("all-undecided" if alone else verdict.replace(" ", "-"))
                values |= _listed(table, lines, verdict, contrasts, "or" if alone else "and")
            if undecided := groups[n].get("undecided"):
                parts.append(_ending(undecided, values))
            if parts == ["all-undecided", "single"] and (figures := _figures(table, lines, undecided)):
                parts, values["undecided"] = ["one-undecided"], f"{figures} {comparison.baseline}'s"
            if others:
                values["others"] = at_once(joined([fmt.load_number(other) for other in others]))
                parts.append("others")
            values |= {"baseline": comparison.baseline, "margin": f"{100 * comparison.margin:g} %"}
            yield claim("rank", values, case=case, parts=parts)


_VERDICTS: tuple[Verdict, ...] = ("better", "worse", "no difference", "equal", "undecided")


def _by_verdict(table: MetricTable, lines: Sequence[Line], sessions: int) -> dict[Verdict, list[Contrast]]:
    """Returns the contrasts with the baseline at a rung by their verdicts, those of one verdict by rank."""
    of = {
        c.variant: c
        for c in table.claims
        if not c.neighbours
        and (c.sessions, c.series, c.workload) == (sessions, lines[0].series, lines[0].workload)
    }
    ranked = [of[x.variant] for x in lines if x.sessions == sessions and x.variant in of]
    groups = {v: [c for c in ranked if c.verdict == v] for v in _VERDICTS}
    return {v: contrasts for v, contrasts in groups.items() if contrasts}


_WITH_FIGURES = 3
"""Most variants of one verdict whose ratios are in the sentence; all are in the table below."""
_NAMED = 5
"""Most variants of one verdict that are named."""


def _listed(
    table: MetricTable,
    lines: Sequence[Line],
    verdict: Verdict,
    contrasts: Sequence[Contrast],
    last: str,
) -> dict[str, str]:
    """Returns the names of the variants with a verdict, with their ratios if these are few."""
    means = {x.variant: x.mean for x in lines if x.sessions == contrasts[0].sessions}
    alike = verdict in ("equal", "no difference")  # the baseline follows in the sentence
    names = []
    for c in contrasts[:_NAMED]:
        figures = [value_text(table.unit, means[c.variant])] if len(contrasts) == 1 else []
        if c.effect.ratio is not None and len(contrasts) <= _WITH_FIGURES:
            figures.append(f"{ratio_text(c.effect, c.effect.ratio)} times")
        if (ends := interval_text(c.effect)) and len(contrasts) == 1:
            figures.append(ends)
        names.append(c.variant if alike or not figures else f"{c.variant} ({', '.join(figures)})")
    if more := len(contrasts) - len(names):
        names.append(f"{more:,} more")
    slot = verdict.replace(" ", "_")
    return {
        slot: joined(names, "" if alike else last),
        f"{slot}_are": "is" if len(contrasts) == 1 else "are",
    }


def _figures(table: MetricTable, lines: Sequence[Line], contrasts: Sequence[Contrast] | None) -> str:
    """Returns ``B: 13.8 k calls/s, 405 times`` of the only contrast; empty if there are more or no ratio."""
    if contrasts is None or len(contrasts) > 1:
        return ""
    (c,) = contrasts
    if c.effect.ratio is None:
        return ""
    mean = next(x.mean for x in lines if (x.variant, x.sessions) == (c.variant, c.sessions))
    return f"{c.variant}: {value_text(table.unit, mean)}, {ratio_text(c.effect, c.effect.ratio)} times"


def _ending(undecided: Sequence[Contrast], values: dict[str, Any]) -> str:
    """Returns the part that says which measurement would decide, and fills in its values."""
    if min(min(c.effect.n_baseline, c.effect.n_variant) for c in undecided) < 2:
        values["wanted"] = _ADVISED_REPEATS
        return "single"
    further = [c.further_repeats for c in undecided if c.further_repeats is not None]
    if len(further) < len(undecided):
        return "ends"
    values["more"] = max(further)
    return "more"


def _limit(results: Results) -> float | None:
    """Returns the CPUs or sessions that the tightest limit of any variant grants; None without a limit."""
    limits = [g for v in results.plan.variants if (g := granted(v.limits)) is not None]
    return min(limits, default=None)


def granted(limits: LimitSpec) -> float | None:
    """Returns CPUs or sessions at once that the limits allow; None if unlimited. CPU lists are as the plan
    resolved them: ``0-5,8``."""
    counts = [limits.quota, limits.pool]
    if limits.cpus is not None:
        ends = [part.split("-") for part in limits.cpus.split(",")]
        counts.append(
            sum(int(e[-1]) - int(e[0]) + 1 for e in ends if all(x.strip().isdigit() for x in e)) or None
        )
    return min((float(c) for c in counts if c is not None), default=None)


def _starts(run: Results) -> Claim:
    """Returns how often the servers of variants were started, and whether intervals contain that."""
    starts = {
        v.name: run.info.applied[v.name].starts for v in run.plan.variants if v.name in run.info.applied
    }
    started = {name: n for name, n in starts.items() if n}
    least, most = min(started.values(), default=0), max(started.values(), default=0)
    each = counted(most, "start") if least == most else ", ".join(f"{v} {n}" for v, n in started.items())
    repeats = max((cell.repeat for cell in run.plan.cells), default=1)
    return claim("server-starts", {"each": each}, least, case="one" if min(least, repeats) < 2 else "several")


def notes(
    comparison: Comparison,
    left_out: Sequence[tuple[str, str]],
    runs: Sequence[Results],
    matches: Sequence[Match],
) -> Iterator[Claim]:
    contrasts = [c for table in comparison.metrics for c in table.claims]
    family = max((len(t.claims) for t in comparison.metrics), default=0)
    tested = family > 1 and any(c.p_holm is not None for c in contrasts)
    holm = f"; p adjusted (Holm) for the {family} claims of each table" if tested else ""
    yield claim("comparison-method", {"family": family, "holm": holm}, case=comparison.kind)
    if comparison.kind == "variants" and runs[0].plan.starts_servers:
        yield _starts(runs[0])
    elif comparison.kind == "runs" or runs[0].plan.order == "ladder":
        yield claim("no-alternation", {}, case=comparison.kind)
    yield from _calls(matches, comparison.metrics[0].title)
    yield from _repeats(comparison.metrics[0].claims)
    yield from _outliers(comparison.metrics[0], matches)
    yield from _unknown(comparison)
    renamed = {old: later for why in comparison.why for old, later in why.renamed.items()}
    for old, later in renamed.items():
        values = {"earlier": old, "later": joined(later)}
        yield claim("renamed-waits", values, case="one" if len(later) == 1 else "split")
    if any(c.effect.floored for c in contrasts):
        yield claim("widened-intervals", {})
    for run in runs:
        if run.plan.experiment.until is not None:
            yield rule(run.plan.experiment.until)
        if run.info.status != "complete":
            reason = run.info.reason or "no reason recorded"
            yield claim("run-status", {"run": run.info.id, "status": run.info.status, "reason": reason})
    yield from _lost_pairs(runs[0], left_out, matches)
    for cell, reason in left_out:
        yield claim("left-out", {"measurement": cell, "reason": reason}, cells=(cell,))


def _lost_pairs(
    results: Results, left_out: Sequence[tuple[str, str]], matches: Sequence[Match]
) -> Iterator[Claim]:
    """Yields how many repeats of a pair of variants are compared if any of them was left out."""
    reasons = dict(left_out)
    for m in (m for m in matches if m.paired):
        windows = results.tables["windows"].filter(
            (pl.col("workload") == m.workload)
            & (pl.col("sessions") == m.sessions)
            & pl.col("rate_per_s").eq_missing(m.rate_per_s)
        )
        for label in (v for v in m.groups if v != m.baseline):
            rows = windows.filter(pl.col("variant").is_in([m.baseline, label]))
            lost = rows.filter(pl.col("cell").is_in([*reasons]))
            pairs = m.groups[m.baseline].keys() & m.groups[label].keys()
            if lost.is_empty() or not pairs:
                continue
            repeats = set(lost["repeat"])
            limited = {reasons[cell] for cell in lost["cell"]} == {LIMITED}
            values = {
                "variant": f"{m.series} {label}".strip(),
                "baseline": m.baseline,
                "load": fmt.load(m.sessions),
                "pairs": len(pairs),
                "repeats": len(pairs | repeats),
                "lost": f"{len(repeats)} {'limited by the client' if limited else 'unusable'}",
                "are": "is" if len(repeats) == 1 else "are",
                "partner": "its partner" if len(repeats) == 1 else "their partners",
            }
            case = "pair" if len(m.groups) == 2 else "several"
            yield claim("lost-pairs", values, case=case, cells=tuple(lost["cell"]))


def _calls(matches: Sequence[Match], compared: str) -> Iterator[Claim]:
    """Yields a remark if calls differ in size."""
    for m in matches:
        if others := [label for label in m.groups if not m.same_call(label)]:
            sizes = ", ".join(f"{label} {m.sizes[label]:,}" for label in (m.baseline, *others))
            yield claim("calls-differ", {"sizes": sizes, "compared": compared})
            return


def _unknown(comparison: Comparison) -> Iterator[Claim]:
    """Yields a remark per quantity that is known for some of the variants only."""
    everyone = list(dict.fromkeys(line.variant for line in comparison.metrics[0].lines))
    set_by_rate = paced.THROUGHPUT if comparison.metrics[0].metric in paced.RANKING else ()
    for table in (t for t in comparison.metrics[1:] if t.metric not in set_by_rate):
        lines = {(x.workload, x.series, x.sessions, x.variant) for x in table.lines}
        every = ((x.workload, x.series, x.sessions, x.variant) for x in comparison.metrics[0].lines)
        lacking = {key[-1] for key in every if key not in lines}
        if lacking:
            names = ", ".join(v for v in everyone if v in lacking)
            yield claim("unknown-quantity", {"quantity": table.title, "variants": names})


def _outliers(table: MetricTable, matches: Sequence[Match]) -> Iterator[Claim]:
    """Yields repeats that do not fit the others. For pairs their ratio is examined, because drift cancels in
    it."""
    for match in matches:
        base = known(match.groups[match.baseline], table.metric)
        for label, cells in match.groups.items():
            by_repeat = known(cells, table.metric)
            if match.paired:
                common = by_repeat.keys() & base.keys() if label != match.baseline else ()
                by_repeat = {r: by_repeat[r] / base[r] for r in sorted(common) if base[r] > 0}
            repeats, figures = list(by_repeat), list(by_repeat.values())
            if not (places := outliers(figures)):
                continue
            rest = [v for i, v in enumerate(figures) if i not in places]
            shift = math.fsum(figures) / len(figures) / (math.fsum(rest) / len(rest)) - 1
            what = f"{label} to {match.baseline}" if match.paired else f"{match.series} {label}".strip()
            texts = [
                fmt.plain(figures[i]) if match.paired else value_text(table.unit, figures[i]) for i in places
            ]
            values = {
                "repeats": ", ".join(str(repeats[i]) for i in places),
                "values": ", ".join(texts),
                "sample": f"{what} at {fmt.load(match.sessions)}",
                "effect": f"{'raises' if shift > 0 else 'lowers'} it by {fmt.percent(abs(shift))}",
            }
            case = "ratio" if match.paired else "mean"
            yield claim("repeat-outlier", values, case=case, cells=[cells[repeats[i]].cell for i in places])


def _repeats(contrasts: Sequence[Contrast]) -> Iterator[Claim]:
    least = min((min(c.effect.n_baseline, c.effect.n_variant) for c in contrasts), default=0)
    if least < 2:
        yield claim("few-repeats", {"wanted": _ADVISED_REPEATS}, case="one")
        return
    floors = [p for c in contrasts if (p := c.effect.least_p) is not None and p >= ALPHA]
    if floors:
        yield claim("few-repeats", {"repeats": least, "least": max(floors)}, case="permutation")


# -- why --

BRACKET, MEASURED = "runq.throttled_bracket", "runq.throttled"
INSIDE = frozenset({BRACKET, MEASURED, "block_io"})
"""Accounts that lie within other accounts: they are shown but not added."""

_Name = tuple[str, str | None]
_Seconds = Mapping[_Name, float]


def whys(
    matches: Sequence[Match],
    ledgers: Mapping[str, pl.DataFrame],
    rate: str,
    unit: str,
    earlier: Mapping[str, str],
) -> Iterator[Why]:
    """Yields the accounts behind each variant's difference from its baseline at each rung. ``ledgers`` holds
    the table ``ledger`` by run; :attr:`Match.of` gives each label's run. ``rate`` is what the time is divided
    by, ``earlier`` has the earlier names of events."""
    parts = {name: ByCell({"ledger": ledger}) for name, ledger in ledgers.items()}
    for match in matches:
        per_unit = {
            label: _per_unit(parts[match.of.get(label, "")], cells, rate)
            for label, cells in match.groups.items()
        }
        for label in (v for v in match.groups if v != match.baseline):
            why = _why(match, label, per_unit[match.baseline], per_unit[label], unit, earlier)
            if why is not None:
                yield why


def _per_unit(parts: ByCell, cells: Mapping[int, CellFigures], rate: str) -> dict[int, _Seconds]:
    """Returns by repeat the seconds of session time per unit in each account; cells without a ledger are left
    out."""
    seconds: dict[int, _Seconds] = {}
    for repeat, cell in cells.items():
        per_s = cell.rates.get(rate)
        rows = _accounts(parts.table("ledger", cell.cell))
        if per_s and rows.height:
            summed = rows.group_by("account", "detail", maintain_order=True).agg(pl.col("aas").sum())
            seconds[repeat] = {(a, d): s / per_s for a, d, s in summed.rows()}
    return seconds


def _accounts(ledger: pl.DataFrame) -> pl.DataFrame:
    """Returns the rung's known accounts without parts of others; throttling is measured, or else its upper
    bound."""
    whole = pl.col("parent").is_null() | pl.col("account").is_in(INSIDE)
    rows = ledger.filter((pl.col("scope") == "rung") & whole)
    if (rows["account"] == MEASURED).any():
        rows = rows.filter(pl.col("account") != BRACKET)
    bound = pl.when(pl.col("account") == BRACKET).then("high")
    return rows.with_columns(aas=pl.coalesce("aas", bound)).filter(pl.col("aas").is_not_null())


def _why(
    match: Match,
    label: str,
    baseline: Mapping[int, _Seconds],
    variant: Mapping[int, _Seconds],
    unit: str,
    earlier: Mapping[str, str],
) -> Why | None:
    if match.paired:
        common = baseline.keys() & variant.keys()
        baseline, variant = ({r: side[r] for r in sorted(common)} for side in (baseline, variant))
    if not baseline or not variant:
        return None
    names_by_side = _same_names(baseline, variant, earlier)
    baseline, variant = (
        {r: _under(cell, names) for r, cell in side.items()}
        for side, names in zip((baseline, variant), names_by_side, strict=True)
    )
    names = dict.fromkeys(n for side in (baseline, variant) for cell in side.values() for n in cell)
    whole = _mean_whole(variant) - _mean_whole(baseline)
    accounts = [_account(match, n, baseline, variant, whole) for n in names]
    accounts.sort(key=lambda a: (a.inside, -abs(a.difference_s)))
    return Why(
        workload=match.workload,
        sessions=match.sessions,
        series=match.series,
        baseline=match.baseline,
        variant=label,
        unit=unit,
        repeats=min(len(baseline), len(variant)),
        baseline_s=_mean_whole(baseline),
        variant_s=_mean_whole(variant),
        difference_s=whole,
        accounts=tuple(accounts),
        renamed=_renamed(chain(*(names.items() for names in names_by_side)), earlier),
    )


def _same_names(
    baseline: Mapping[int, _Seconds], variant: Mapping[int, _Seconds], earlier: Mapping[str, str]
) -> tuple[dict[_Name, _Name], dict[_Name, _Name]]:
    """Returns for each side the events that the other has under another name, with the name of both: versions
    of a server rename events, and spell them in another case. An event that was split has several names."""
    ours, theirs = ({n for cell in side.values() for n in cell} for side in (baseline, variant))
    spelled: dict[tuple[str, str], _Name] = {(a, d.casefold()): (a, d) for a, d in ours if d}
    later: list[dict[_Name, _Name]] = [
        {(a, d): (a, earlier[d]) for a, d in side if d and d in earlier and (a, earlier[d]) in other}
        for side, other in ((ours, theirs), (theirs, ours))
    ]
    cases: dict[_Name, _Name] = {
        (a, d): spelled[a, d.casefold()] for a, d in theirs - ours if d and (a, d.casefold()) in spelled
    }
    return later[0], {**cases, **later[1]}


def _renamed(names: Iterable[tuple[_Name, _Name]], earlier: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the later names by the earlier one, without those that differ in case alone."""
    renamed: dict[str, tuple[str, ...]] = {}
    for later, name in sorted({(own or "", common or "") for (_, own), (_, common) in names}):
        if earlier.get(later) == name:
            renamed[name] = (*renamed.get(name, ()), later)
    return renamed


def _under(cell: _Seconds, names: Mapping[_Name, _Name]) -> _Seconds:
    """Returns the seconds of a cell under other names of events."""
    if not names:
        return cell
    seconds: dict[_Name, float] = {}
    for name, s in cell.items():
        seconds[names.get(name, name)] = seconds.get(names.get(name, name), 0.0) + s
    return seconds


def _mean_whole(cells: Mapping[int, _Seconds]) -> float:
    """Returns the mean sum of all accounts that are added."""
    return math.fsum(s for cell in cells.values() for (a, _), s in cell.items() if a not in INSIDE) / len(
        cells
    )


def _account(
    match: Match, name: _Name, baseline: Mapping[int, _Seconds], variant: Mapping[int, _Seconds], whole: float
) -> Account:
    """Returns the change of one account. An event that a cell's ledger does not name took no time there."""
    xs, ys = ([cell.get(name, 0.0) for cell in side.values()] for side in (baseline, variant))
    x, y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    half = _half_width(xs, ys, match.paired)
    inside = name[0] in INSIDE
    return Account(
        account=name[0],
        detail=name[1],
        inside=inside,
        baseline_s=x,
        variant_s=y,
        difference_s=y - x,
        low_s=None if half is None else y - x - half,
        high_s=None if half is None else y - x + half,
        share=None if inside or not whole else (y - x) / whole,
    )


def _half_width(xs: Sequence[float], ys: Sequence[float], paired: bool) -> float | None:
    """Returns half of the difference's 95 % interval (Student's t); None with fewer than two values on a
    side."""
    if min(len(xs), len(ys)) < 2:
        return None
    pairs = list(zip(xs, ys, strict=True)) if paired else []
    m: Moments = moments_of_pairs(pairs) if paired else moments_of_samples(xs, ys, 1.0)
    return students_quantile(m.degrees) * math.sqrt(m.variance(1.0))
