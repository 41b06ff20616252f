"""What an auto ladder found: the figures that the catalogue's entries ``auto-ladder`` and ``target`` say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dbdyno.model.plan import Goal
from dbdyno.model.units import format_ns, format_rate
from dbdyno.plan.adaptive_findings import Done, Findings
from dbdyno.plan.adaptive_goal import Sides
from dbdyno.plan.ladder import MAX_SESSIONS
from dbdyno.stats.knee import END, KNEE, NOISE, Bend, bend, noise_of
from dbdyno.stats.mean import Mean
from dbdyno.stats.shares import wilson_of

_FALLS = 0.95  # below this share of the peak throughput is said to fall


def knee_found(findings: Findings, *, cut: bool = False) -> Done:
    """``cut``: the ladder wanted a further rung, which the limit of their number forbids."""
    throughputs = findings.throughputs()
    if not throughputs:
        fault = next((s.fault for s in findings.seen if s.fault), "no call ended well")
        return Done("auto-ladder", "unusable", {"fault": fault})
    knee, end, last = bend(throughputs, KNEE), bend(throughputs, END), max(throughputs)
    noise = noise_of(throughputs)
    said: dict[str, Any] = {"levels": len(throughputs), "noise": noise.share, "source": noise.source}
    said |= {"at": knee.at, "low": knee.low or 1, "high": knee.high, "last": last}
    tail = [*(_above(findings, said) if end.at == last else _growth_ends(throughputs, end, said))]
    limit = _limit(findings, said) if cut else []
    if knee.at == last:
        return Done("auto-ladder", "none", said, (*_efficiency(throughputs, said), *tail, *limit), low=last)
    noisy = ["noisy"] if noise.share > 2 * NOISE else []
    parts = (*_range(knee, "knee"), *tail, *limit, *noisy)
    return Done("auto-ladder", "knee", said, parts, knee.at, knee.low, knee.high, knee.high is not None)


def _growth_ends(throughputs: dict[int, Mean], end: Bend[int], said: dict[str, Any]) -> Iterator[str]:
    peak = max(m.value for m in throughputs.values())
    said |= {"end": end.at, "end_low": end.low or 1, "end_high": end.high}
    said["share"] = throughputs[max(throughputs)].value / peak
    yield "ends"
    yield from _range(end, "end")
    if said["share"] < _FALLS:
        yield "falls"


def _above(findings: Findings, said: dict[str, Any]) -> list[str]:
    """Why the ladder ends though throughput still grows."""
    if (blocked := findings.blocked()) is not None:
        said |= {"blocked": blocked[0], "why": blocked[1]}
        return ["blocked"]
    said["higher"] = min(MAX_SESSIONS, 8 * said["last"])
    return ["grows-to-the-limit" if said["last"] >= findings.rule.top else "grows"]


def _efficiency(throughputs: dict[int, Mean], said: dict[str, Any]) -> list[str]:
    first, last = min(throughputs), said["last"]
    if first == last:
        return []
    share = throughputs[last].value / last / (throughputs[first].value / first)
    said |= {"efficiency": share, "first": first}
    return ["efficiency"]


def _range(found: Bend[int], what: str) -> list[str]:
    if found.low is None and found.high is None:
        return []
    return [f"{what}-above" if found.high is None else f"{what}-between"]


def _limit(findings: Findings, said: dict[str, Any]) -> list[str]:
    said["limit"] = len(findings.tried)
    return ["limit"]


def goal_found(findings: Findings, goal: Goal, *, cut: bool = False) -> Done:
    """``cut`` as of :func:`knee_found`."""
    sides = Sides(findings, goal)
    if not sides.of:
        return knee_found(findings, cut=cut)
    before, after = sides.before, sides.after
    sought, other = (after, before) if sides.rate else (before, after)
    if sought is None:
        return _not_met(sides, cut=cut)
    said = _values(sides, sought)
    parts = [*_failed(said), *_other_side(sides, said, other), *_strays(sides, said)]
    if cut and "limit" not in parts:
        parts += _limit(findings, said)
    ends = sorted(n for n in (before, after) if n is not None)
    low, high = (ends[0], ends[-1]) if len(ends) == 2 else (ends[0], None)
    case = "lowest" if sides.rate else "highest"
    return Done("target", case, said, tuple(parts), sought, low, high, found=True)


def _not_met(sides: Sides, *, cut: bool) -> Done:
    rung = max(sides.of, key=lambda n: _mean(sides, n).value) if sides.rate else min(sides.of)
    said = _values(sides, rung) | {"top": max(sides.of)}
    parts = (*_failed(said), *_strays(sides, said), *(_limit(sides.findings, said) if cut else []))
    return Done("target", "too-slow" if sides.rate else "not-met", said, parts, high=rung)


def _values(sides: Sides, rung: int) -> dict[str, Any]:
    met, repeats = sides.met(rung), len(sides.of[rung])
    low, high = wilson_of(met, repeats)
    return {
        "goal": sides.goal.text,
        "at": rung,
        "figure": _figure(sides, rung),
        "met": met,
        "repeats": repeats,
        "low": low,
        "high": high,
        "failed": max(s.failed for s in sides.of[rung]),
    }


def _failed(said: dict[str, Any]) -> list[str]:
    return ["failed"] if said["failed"] > 0 else []


def _other_side(sides: Sides, said: dict[str, Any], other: int | None) -> Iterator[str]:
    """What is known of the load next to the one that was sought, on the other side of the goal."""
    rule, findings = sides.findings.rule, sides.findings
    if other is not None:
        said |= {"other": other, "other_figure": _figure(sides, other)}
        said |= {"other_met": sides.met(other), "other_repeats": len(sides.of[other])}
        said["other_failed"] = max(s.failed for s in sides.of[other])
        yield from ["other", "other-failed"] if said["other_failed"] > 0 else ["other"]
        if abs(other - said["at"]) <= 1:
            return
        yield "gap"
    elif sides.rate:
        return
    elif (blocked := findings.blocked()) is not None:
        said |= {"blocked": blocked[0], "why": blocked[1]}
        yield "blocked"
        return
    else:
        yield "none-higher"
    if len(findings.tried) >= rule.most_rungs:
        yield from _limit(findings, said)
    elif other is None:
        said["allowed"] = rule.top
        yield "top"


def _strays(sides: Sides, said: dict[str, Any]) -> list[str]:
    """Where the verdict turns back beyond the boundary."""
    found = sides.stray()
    said["strays"] = ", ".join(f"{n} ({_figure(sides, n)})" for n in found)
    return ["fails-again" if sides.rate else "meets-again"] if found else []


def _figure(sides: Sides, rung: int) -> str:
    """``18.2 ms (17.1 ms to 19.3 ms)``: the mean over repeats with Student's interval."""
    mean = _mean(sides, rung)
    shape = (lambda v: f"{format_rate(v)} calls/s") if sides.rate else format_ns
    ends = mean.interval95
    between = f" ({shape(max(0.0, ends[0]))} to {shape(ends[1])})" if ends is not None else ""
    return shape(mean.value) + between


def _mean(sides: Sides, rung: int) -> Mean:
    return Mean.of(s.figure for s in sides.of[rung] if s.figure is not None)
