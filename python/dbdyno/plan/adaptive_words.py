"""What an auto ladder found, in words."""

from __future__ import annotations

from dbdyno.model.plan import Goal
from dbdyno.model.units import format_ns, format_rate
from dbdyno.plan.adaptive_findings import Done, Findings
from dbdyno.plan.adaptive_goal import Sides
from dbdyno.plan.ladder import MAX_SESSIONS
from dbdyno.stats.knee import END, KNEE, NOISE, Bend, bend, noise_of
from dbdyno.stats.mean import Mean
from dbdyno.stats.shares import wilson_of

_FALLS = 0.95  # below this share of the peak throughput is said to fall


def knee_found(findings: Findings, *, cut: str = "") -> Done:
    """``cut``: why no further rung is measured although one was wanted."""
    throughputs = findings.throughputs()
    if not throughputs:
        fault = next((s.fault for s in findings.seen if s.fault), "no call ended well")
        return Done(f"no load level is usable: {fault}", cure="see the claims about each load level")
    knee, end, last = bend(throughputs, KNEE), bend(throughputs, END), max(throughputs)
    noise = noise_of(throughputs)
    evidence = f"{len(throughputs)} load levels; noise {noise.share:.1%} ({noise.source})"
    quieter = (
        "measure longer, when the machine is quiet, or with --repeats" if noise.share > 2 * NOISE else ""
    )
    tail = _ends(findings, last) if end.at == last else _growth_ends(throughputs, end)
    cut = f"; {cut}" if cut else ""
    if knee.at == last:
        words = f"throughput has no knee up to {_n(last)}{_efficiency(throughputs, last)}; {tail}{cut}"
        higher = f"measure higher loads: --ladder auto:{min(MAX_SESSIONS, 8 * last)}"
        return Done(words, low=last, evidence=evidence, cure="" if findings.blocked() else higher)
    words = (
        f"the knee is at {_n(knee.at)}{_range(knee)}: beyond it an additional session adds less than half "
        f"of the most that one adds; {tail}{cut}"
    )
    return Done(words, knee.at, knee.low, knee.high, knee.high is not None, evidence, quieter)


def _growth_ends(throughputs: dict[int, Mean], end: Bend[int]) -> str:
    peak = max(throughputs, key=lambda n: throughputs[n].value)
    last = max(throughputs)
    fall = throughputs[last].value / throughputs[peak].value
    words = f"growth ends at {_n(end.at)}{_range(end)}"
    return words + (f", throughput at {last} is {fall:.0%} of the peak" if fall < _FALLS else "")


def _ends(findings: Findings, last: int) -> str:
    if (blocked := findings.blocked()) is not None:
        return f"the ladder ends there because {blocked[0]} is not usable ({blocked[1]})"
    capped = " the highest allowed" if last >= findings.rule.top else " the highest measured"
    return f"it still grows at {last},{capped}"


def _efficiency(throughputs: dict[int, Mean], last: int) -> str:
    first = min(throughputs)
    if first == last:
        return ""
    share = throughputs[last].value / last / (throughputs[first].value / first)
    return f" (efficiency {share:.0%} of that at {first})"


def _range(bend: Bend[int]) -> str:
    if bend.low is None and bend.high is None:
        return ""
    if bend.high is None:
        return f" (above {bend.low}; noise hides the exact place)"
    return f" (between {bend.low or 1} and {bend.high})"


def goal_found(findings: Findings, goal: Goal, *, cut: str = "") -> Done:
    sides = Sides(findings, goal)
    if not sides.of:
        return knee_found(findings, cut=cut)
    before, after = sides.before, sides.after
    sought, other = (after, before) if sides.rate else (before, after)
    cut = f"; {cut}" if cut else ""
    if sought is None:
        return _not_met(sides, cut)
    which = "lowest" if sides.rate else "highest"
    words = f"{which} load that meets {goal.text}: {_n(sought)} ({_shown(sides, sought)})"
    words += _other_side(sides, sought, other) + _strays(sides)
    ends = sorted(n for n in (before, after) if n is not None)
    found = _confidence(sides, sought)
    low, high = (ends[0], ends[-1]) if len(ends) == 2 else (ends[0], None)
    return Done(words + cut, sought, low, high, found=True, evidence=found)


def _not_met(sides: Sides, cut: str) -> Done:
    rung = max(sides.of, key=lambda n: _typical(sides, n)) if sides.rate else min(sides.of)
    words = (
        f"no load up to {_n(max(sides.of))} meets {sides.goal.text}; the maximum is at {_n(rung)}"
        if sides.rate
        else f"even {_n(rung)} {'does' if rung == 1 else 'do'} not meet {sides.goal.text}"
    )
    cure = (
        "a looser target, or a faster server"
        if sides.rate
        else "a looser target, or shorter calls: --call-target, parameters of the workload"
    )
    return Done(f"{words} ({_shown(sides, rung)}){_strays(sides)}{cut}", low=None, high=rung, cure=cure)


def _other_side(sides: Sides, sought: int, other: int | None) -> str:
    rule = sides.findings.rule
    spent = len(sides.findings.tried) >= rule.most_rungs
    why = f": the limit is {rule.most_rungs} load levels" if spent else ""
    if other is not None:
        gap = abs(other - sought) > 1
        fails = f"{other} {'fails' if other == 1 else 'fail'} with {_shown(sides, other)}"
        return f"; {fails}" + (f", loads between were not measured{why}" if gap else "")
    if sides.rate:
        return ""
    if (blocked := sides.findings.blocked()) is not None:
        return f"; {blocked[0]} is not usable ({blocked[1]})"
    return f"; none higher was measured{why or f' (at most {rule.top})'}"


def _strays(sides: Sides) -> str:
    """Where the verdict turns back beyond the boundary."""
    found = sides.stray()
    if not found:
        return ""
    which = ", ".join(f"{n} ({_figure(sides, n)})" for n in found)
    return f"; not monotonic: at higher loads {which} " + ("fail it" if sides.rate else "meet it again")


def _shown(sides: Sides, rung: int) -> str:
    """``18.2 ms, 3 of 3 repeats``."""
    failed = max(s.failed for s in sides.of[rung])
    errors = f", {failed:.1%} of the calls failed" if failed > 0 else ""
    met, repeats = sides.met(rung), len(sides.of[rung])
    return f"{_figure(sides, rung)}{errors}; met in {met} of {repeats} repeat{'' if repeats == 1 else 's'}"


def _figure(sides: Sides, rung: int) -> str:
    mean = Mean.of(s.figure for s in sides.of[rung] if s.figure is not None)
    shape = (lambda v: f"{format_rate(v)} calls/s") if sides.rate else format_ns
    ends = mean.interval95
    between = f" [{shape(max(0.0, ends[0]))} to {shape(ends[1])}]" if ends is not None else ""
    return shape(mean.value) + between


def _typical(sides: Sides, rung: int) -> float:
    return Mean.of(s.figure for s in sides.of[rung] if s.figure is not None).value


def _confidence(sides: Sides, rung: int) -> str:
    met, repeats = sides.met(rung), len(sides.of[rung])
    low, high = wilson_of(met, repeats)
    return (
        f"{met} of {repeats} repeats at {_n(rung)} met it (95 % interval {low:.0%} to {high:.0%}, "
        "Wilson); intervals of the figure are Student's t over repeats"
    )


def _n(sessions: int) -> str:
    return f"{sessions} session{'' if sessions == 1 else 's'}"
