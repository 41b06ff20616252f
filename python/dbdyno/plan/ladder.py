"""Parses the ladder: ``1,2,4,8`` | ``FROM:TO`` | ``FROM:TO:STEP`` | ``FROM:TO:xFACTOR``. A number may be
``cores`` or ``2cpus``."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.literals import INTERLEAVED, SERVER_AFTER_SERVER, STARTED_AND_RUNNING
from dbdyno.model.plan.plan import Choice, Experiment, LimitSpec, Order, cores_under, cpus_under
from dbdyno.model.plan.servers import is_dsn, is_started
from dbdyno.model.text import cpu_lists

MAX_SESSIONS = 5000
MAX_RUNGS = 1000
_MOST_DIGITS = 9  # of a session count: int() refuses thousands of them with an error of its own
_FORMS = "write 1,2,4,8 or FROM:TO (every count) or FROM:TO:STEP or FROM:TO:x2 (doubling) or auto or auto:64"


_COUNTED = re.compile(r"\b(\d{0,4})(cpus|cores)\b")


def marks(
    limits: LimitSpec, cpus: float, siblings: Sequence[Sequence[int]] | None, allowed: Iterable[int]
) -> tuple[int, ...]:
    """Returns the session counts that equal the cores (if their CPUs are known) and the CPUs that may be
    used. The difference between the two shows the gain from SMT threads. The counts are ascending, and the
    last is that of the CPUs."""
    usable = cpus_under(limits, cpus)
    cores = cores_under(limits, siblings, allowed)
    counts = [usable, usable if cores is None else min(len(cores), usable)]
    return tuple(sorted({max(1, math.floor(count)) for count in counts}))


def parse_ladder(text: str, cpus: float = 1.0, cores: float | None = None) -> tuple[int, ...]:
    """Returns the session counts, ascending and distinct. ``FROM`` and ``TO`` are always rungs.

    ``cpus`` in the text stands for the usable CPUs, rounded up: with 4 of them ``1:2cpus`` is ``1:8``.
    ``cores`` stands for their cores, or for as many as CPUs if the cores are unknown. Raises
    :class:`UsageError` for a count outside 1..5000 and for more than 1000 rungs.
    """
    counts = {"cpus": max(1, math.ceil(cpus)), "cores": max(1, math.ceil(cores or cpus))}
    parts = _COUNTED.sub(lambda m: str(int(m[1] or 1) * counts[m[2]]), text).split(",")
    if len(parts) > MAX_RUNGS:
        raise UsageError(
            f"--sessions: a list of {len(parts):,} entries is too long", f"at most {MAX_RUNGS:,} entries"
        )
    rungs = sorted({r for part in parts for r in _part(part.strip(), text)})
    if len(rungs) > MAX_RUNGS:
        raise UsageError(
            f"--sessions {text}: {len(rungs)} load levels are too many",
            f"at most {MAX_RUNGS}: give a larger step",
        )
    return tuple(rungs)


def default_ladder(cpus: float, marked: Iterable[int] = ()) -> tuple[int, ...]:
    """Returns 1, 2, 4, ... up to four times the CPUs, always with the number of CPUs and the counts
    ``marked``."""
    whole = max(1, math.floor(cpus))
    top = min(4 * max(1, math.ceil(cpus)), MAX_SESSIONS)
    doubling = {2**i for i in range(top.bit_length()) if 2**i <= top}
    return tuple(sorted(doubling | {whole, top, *marked}))


def _part(part: str, whole: str) -> list[int]:
    fields = part.split(":")
    if len(fields) == 1:
        return [_count(part, whole)]
    if len(fields) > 3:
        raise UsageError(f"--sessions {whole}: {part!r} has too many colons", _FORMS)
    low, high = _count(fields[0], whole), _count(fields[1], whole)
    if low > high:
        raise UsageError(f"--sessions {whole}: {low} is larger than {high}", _FORMS)
    step = fields[2] if len(fields) == 3 else "1"
    if step[:1] in ("x", "X"):
        return _geometric(low, high, step[1:], whole)
    return [*range(low, high + 1, _count(step, whole)), high]


def _geometric(low: int, high: int, factor_text: str, whole: str) -> list[int]:
    try:
        factor = float(factor_text)
    except ValueError:
        factor = 0.0
    if not 1 < factor < MAX_SESSIONS:
        raise UsageError(f"--sessions {whole}: the factor must be larger than 1", _FORMS)
    rungs, at = [], float(low)
    while at < high:
        rungs.append(round(at))
        at = max(at * factor, round(at) + 1)
    return [*rungs, high]


def _count(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise UsageError(f"--sessions {whole}: {text!r} is not a session count", _FORMS)
    value = int(text)
    if not 1 <= value <= MAX_SESSIONS:
        raise UsageError(f"--sessions {whole}: {value} is outside 1..{MAX_SESSIONS}", _FORMS)
    return value


# -- the order of cells: in blocks, every variant once in each, so that drift of the machine cancels --


class Place(NamedTuple):
    """The position of a cell in the run. Cells of the same block are compared with each other."""

    block: int
    repeat: int
    variant: str
    sessions: int


def chosen_order(
    experiment: Experiment, variants: int, choices: list[Choice], *, searched: bool = False
) -> Order:
    """Returns the order of cells: ``interleaved`` by default if there are several variants; ``ladder`` if
    dbdyno starts their servers, so that each repeat needs one start of each. ``searched``: an auto ladder,
    which measures all variants at a load before the next."""
    if has_started(experiment) and not searched and experiment.order in (None, "ladder") and variants > 1:
        running = any(spec.server and is_dsn(spec.server) for spec in experiment.variants.values())
        why = STARTED_AND_RUNNING if running else SERVER_AFTER_SERVER
        choices.append(Choice(name="order", value="server after server", reason=why))
        return "ladder"
    if experiment.order is not None:
        if experiment.order == "ladder" and variants > 1:
            why = "drift of the machine counts as a difference between variants: --order interleaved"
            choices.append(Choice(name="order", value="variant after variant", reason=why))
        return experiment.order
    if variants == 1:
        return "ladder"
    choices.append(Choice(name="order", value="interleaved", reason=INTERLEAVED))
    return "interleaved"


def has_started(experiment: Experiment) -> bool:
    """Returns whether variants name servers that dbdyno starts."""
    return any(is_started(spec.server) for spec in experiment.variants.values())


def places(
    order: Order,
    variants: Sequence[str],
    ladder: Sequence[int],
    repeats: int,
    seed: int,
    *,
    rotated: bool = False,
) -> Iterator[Place]:
    """Yields the place of every cell once.

    ``ladder``: variant after variant within a repeat; ``rotated``: another one first in each repeat.
    ``interleaved``: rung after rung, with the variants rotated by one from block to block (a Latin square
    over as many blocks as variants). ``shuffled``: random rungs within each repeat and random variants within
    each block, by ``seed``.
    """
    for repeat in range(1, repeats + 1):
        if order == "ladder":
            first = (repeat - 1) % len(variants) if rotated else 0
            for variant in (*variants[first:], *variants[:first]):
                for n, sessions in enumerate(ladder):
                    yield Place((repeat - 1) * len(ladder) + n + 1, repeat, variant, sessions)
            continue
        chance = random.Random(f"{seed}/{repeat}") if order == "shuffled" else None
        rungs = list(ladder) if chance is None else chance.sample(list(ladder), len(ladder))
        for n, sessions in enumerate(rungs):
            block = (repeat - 1) * len(ladder) + n + 1
            turn = (repeat - 1 + n) % len(variants)
            group = [*variants[turn:], *variants[:turn]]
            for variant in group if chance is None else chance.sample(list(variants), len(variants)):
                yield Place(block, repeat, variant, sessions)


# -- CPUs as recipes may also name them: ``first:2`` of those that may be used here --

_FIRST = re.compile(r"first:(\d{1,6})\Z")


def first_of(text: str, allowed: Sequence[int], who: str) -> str:
    """Returns the CPUs that ``first:2`` stands for; any other list unchanged. Raises :class:`UsageError`."""
    match = _FIRST.match(text.strip())
    if match is None:
        cpu_lists.parse(text, f"{who}: cpus")
        return text
    count = int(match[1])
    if not 1 <= count <= len(allowed):
        raise UsageError(
            f"{who}: cpus = {text!r}, and {len(allowed)} CPU(s) may be used here",
            "`dbdyno topology` shows which, and why",
        )
    return cpu_lists.text(sorted(allowed)[:count])
