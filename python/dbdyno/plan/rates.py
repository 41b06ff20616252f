"""Paced load: parses rates, arrivals and think times, and assigns them to measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.pacing import Pacing, Think
from dbdyno.model.plan.plan import Cell, Choice, Experiment, Plan, VariantSpec
from dbdyno.model.units import NS_PER_S, format_given, format_ns, parse_duration_ns

MAX_RATE = 1_000_000
MAX_RATES = 1000
BUSY = 0.25
"""Share of the CPUs that the highest rate should use, if the planner chooses the size of a call."""
_LEAST_SESSIONS, _PER_CPU = 16, 8
_FORMS = "write 100,200,400 or FROM:TO:STEP or FROM:TO:x1.5 or auto or auto:2000, in calls per second"
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(k?)(?:/s)?\Z")
AUTO = "auto"


def is_paced(experiment: Experiment) -> bool:
    """Returns whether calls become due at a rate."""
    return experiment.rate is not None or experiment.rates is not None or bool(experiment.phases)


def parse_rate(text: str, option: str = "--rate") -> float:
    """Returns the rate of ``500`` | ``500/s`` | ``0.5`` | ``2k``. Raises :class:`UsageError`."""
    match = _NUMBER.match(text.strip())
    value = float(match[1]) * (1000 if match[2] else 1) if match else 0.0
    if not 0.01 <= value <= MAX_RATE:
        raise UsageError(
            f"{option} {text}: not a rate from 0.01 to {MAX_RATE:,}", "write calls per second: 500 or 500/s"
        )
    return value


def parse_rates(text: str) -> tuple[float, ...]:
    """Returns the rates, ascending and distinct. ``FROM`` and ``TO`` are always among them. Raises
    :class:`UsageError`."""
    parts = text.split(",")
    if len(parts) > MAX_RATES:
        raise UsageError(f"--rates: a list of {len(parts):,} entries is too long", f"at most {MAX_RATES:,}")
    rates = sorted({r for part in parts for r in _part(part.strip(), text)})
    if len(rates) > MAX_RATES:
        raise UsageError(f"--rates {text}: {len(rates)} rates are too many", f"at most {MAX_RATES}")
    return tuple(rates)


def _part(part: str, whole: str) -> list[float]:
    fields = part.split(":")
    if len(fields) == 1:
        return [parse_rate(part, "--rates")]
    if len(fields) != 3:
        raise UsageError(f"--rates {whole}: {part!r} is no list of rates", _FORMS)
    low, high = parse_rate(fields[0], "--rates"), parse_rate(fields[1], "--rates")
    by_factor = fields[2][:1] in ("x", "X")
    try:
        step = float(fields[2][1:] if by_factor else fields[2].removesuffix("/s"))
    except ValueError:
        step = 0.0
    if low > high or step <= (1 if by_factor else 0) or not math.isfinite(step):
        raise UsageError(f"--rates {whole}: {part!r} is no list of rates", _FORMS)
    steps = [low]
    while steps[-1] < high and len(steps) <= MAX_RATES:
        steps.append(min(high, steps[-1] * step if by_factor else steps[-1] + step))
    if steps[-1] < high:
        raise UsageError(f"--rates {whole}: {part!r} is more than {MAX_RATES:,} rates", "give a larger step")
    return [float(f"{r:.4g}") if r not in (low, high) else r for r in steps]


def auto_top(experiment: Experiment) -> int | None:
    """Returns the highest rate of a search; ``None`` if all rates are listed. Raises :class:`UsageError`."""
    if experiment.phases:
        return None  # a target is then checked in each
    if experiment.rates is None or experiment.rates.strip().partition(":")[0] != AUTO:
        for name, value in (("--target", experiment.target), ("--rungs", experiment.rungs)):
            if value is not None:
                rates = (
                    f"--rate {experiment.rate}" if experiment.rates is None else f"--rates {experiment.rates}"
                )
                raise UsageError(f"{name} {value}: {rates} already says every rate", "--rates auto")
        return None
    _, colon, top = experiment.rates.strip().partition(":")
    return math.ceil(parse_rate(top, "--rates auto:")) if colon else MAX_RATE


def listed(experiment: Experiment) -> tuple[float | None, ...]:
    """Returns the listed rates. A search, or a load without a rate, has the single element ``None``. Phases
    have a single placeholder, because each has its own rate."""
    if experiment.rates is not None:
        return (None,) if auto_top(experiment) is not None else parse_rates(experiment.rates)
    if experiment.phases:
        return (1.0,)  # each has its own
    return (None if experiment.rate is None else parse_rate(experiment.rate),)


def check(experiment: Experiment) -> None:
    """Raises :class:`UsageError` for options that contradict each other."""
    if not is_paced(experiment):
        for name, value in (
            ("--arrivals", experiment.arrivals),
            ("--latency-limit", experiment.latency_limit),
        ):
            if value is not None:
                raise UsageError(f"{name} {value}: there is no rate", "add --rate 500 or --rates 100,200,400")
        return
    if experiment.rate is not None and experiment.rates is not None:
        raise UsageError("both --rate and --rates were given", "give one of them")
    drivers = [experiment.driver, *(v.driver for v in experiment.variants.values())]
    if experiment.think or any(d.think for d in drivers):
        raise UsageError(
            "a think time with a rate: the rate alone says when calls begin",
            "leave out --think, or leave out the rate: then sessions think between their calls",
        )
    if any(d.rounds for d in drivers):
        raise UsageError(
            "rounds with a rate: in rounds all sessions begin together",
            "leave out rounds, or leave out the rate",
        )
    if experiment.rates is not None and len(experiment.variants) > 1:
        raise UsageError(
            f"--rates {experiment.rates} with {len(experiment.variants)} variants",
            "compare variants at one rate: --rate 500; or run each variant by itself, and dbdyno compare",
        )


def sessions_for(experiment: Experiment, cpus: float, choices: list[Choice]) -> str:
    """Returns the numbers of sessions that the rates are run with. Raises :class:`UsageError` for several
    rates with several numbers."""
    sessions = experiment.sessions
    if sessions is None:
        count = max(_LEAST_SESSIONS, _PER_CPU * math.ceil(cpus))
        why = (
            f"{_PER_CPU} a CPU, at least {_LEAST_SESSIONS}: so many calls can be in progress at once, "
            "others that are due wait for a session; --sessions chooses otherwise"
        )
        choices.append(Choice(name="sessions", value=str(count), reason=why))
        return str(count)
    if sessions.strip().partition(":")[0] == AUTO or (
        experiment.rates is not None and re.search(r"[,:]", sessions)
    ):
        raise UsageError(
            f"--sessions {sessions} with rates: a ladder of both at once",
            "one number: --sessions 32; or one rate for every number: --rate 500 --sessions 8,16,32",
        )
    return sessions


def call_target(experiment: Experiment, cpus: float, most_ns: int) -> tuple[int, Choice] | None:
    """Returns the duration of a call in ns with which the listed rates can be delivered; ``None`` if no
    rates are listed."""
    listed_ = [r for r in listed(experiment) if r is not None]
    if not listed_:
        return None
    target_ns = int(min(most_ns, max(10_000, BUSY * cpus * NS_PER_S / max(listed_))))
    reason = f"so that calls at {format_given(max(listed_))}/s use about {BUSY:.0%} of {cpus:g} CPUs"
    return target_ns, Choice(name="call target", value=format_ns(target_ns), reason=reason)


def fewer_sessions(plan: Plan, room: int, reason: str) -> Plan:
    """Returns ``plan`` paced over ``room`` sessions, the number that the server has room for. A number that
    the user chose stays."""
    if plan.experiment.sessions is not None:
        return plan
    cells = tuple(
        c.model_copy(update={"sessions": room, "id": c.id.replace(f"-s{c.sessions}-", f"-s{room}-")})
        for c in plan.cells
    )
    choices = [c for c in plan.choices if c.name != "sessions"]
    choices.append(Choice(name="most sessions", value=str(room), reason=reason))
    return plan.model_copy(update={"cells": cells, "choices": tuple(choices)}).sealed()


def pacing_of(experiment: Experiment, rate: float | None) -> Pacing | None:
    """Returns the pacing at this rate; ``None`` without a rate."""
    if rate is None:
        return None
    limit = experiment.latency_limit
    if limit is not None and limit.isdecimal():
        limit += "ms"  # as in pgbench
    limit_ns = None if limit is None else parse_duration_ns(limit, "--latency-limit")
    if limit_ns == 0:
        raise UsageError(f"--latency-limit {limit}: must be above 0", "write a duration: 50ms")
    return Pacing(rate_per_s=rate, arrivals=experiment.arrivals or "poisson", latency_limit_ns=limit_ns)


def at_load(cell: Cell, load: int) -> Cell:
    """Returns the cell at another load: at another rate if it is paced, else with another number of
    sessions."""
    if cell.pacing is None:
        return cell.model_copy(update={"sessions": load})
    return cell.model_copy(update={"pacing": cell.pacing.model_copy(update={"rate_per_s": float(load)})})


def renumbered(cell: Cell, number: int, repeat: int, block: int) -> Cell:
    """Returns the cell with its position in the run, from which its id and its seed follow."""
    rate = "" if cell.pacing is None else f"-{cell.pacing.rate_per_s:g}ps"
    name = f"{number:04}-{cell.workload}-{cell.variant}-s{cell.sessions}{rate}-r{repeat}"
    return cell.model_copy(update={"id": name, "repeat": repeat, "block": block, "seed": cell.seed + number})


_THINK = ("10ms", "exponential 10ms", "uniform 5ms 15ms")


def think_of(experiment: Experiment, spec: VariantSpec) -> tuple[int, Think | None]:
    """Returns the mean pause of a session between two calls in ns, and its distribution. Raises
    :class:`UsageError`."""
    texts = (spec.driver.think, experiment.driver.think, experiment.think)
    text = next((t for t in texts if t), None)
    return (0, None) if text is None else parse_think(text)


def parse_think(text: str) -> tuple[int, Think | None]:
    """Returns the think time of ``10ms`` | ``exponential 10ms`` | ``uniform 5ms 15ms``. Raises
    :class:`UsageError`."""
    kind, *words = text.split() or [""]
    if kind not in ("constant", "exponential", "uniform"):
        return parse_duration_ns(text, "--think"), None
    times = [parse_duration_ns(w, "--think") for w in words]
    if len(times) != (2 if kind == "uniform" else 1) or times != sorted(times):
        raise UsageError(f"--think {text}: not a think time", f"write one of: {', '.join(_THINK)}")
    if kind == "constant":
        return times[0], None
    if kind == "exponential":
        return times[0], Think(kind="exponential")
    return sum(times) // 2, Think(kind="uniform", low_ns=times[0], high_ns=times[1])


def shown(rates: Sequence[float]) -> str:
    """Returns a text such as ``100, 200, 400/s``."""
    return ", ".join(format_given(r) for r in rates) + "/s"
