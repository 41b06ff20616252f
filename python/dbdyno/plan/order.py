"""The order of cells: in blocks, every variant once in each, so that drift of the machine cancels."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dbdyno.model.plan import Choice, Experiment, Order


class Place(NamedTuple):
    """What comes where. Cells of one block are compared with each other."""

    block: int
    repeat: int
    variant: str
    sessions: int


def chosen_order(experiment: Experiment, variants: int, choices: list[Choice]) -> Order:
    """``interleaved`` where there is something to compare."""
    if experiment.order is not None:
        if experiment.order == "ladder" and variants > 1:
            why = "drift of the machine counts as a difference between variants: --order interleaved"
            choices.append(Choice(name="order", value="variant after variant", reason=why))
        return experiment.order
    if variants == 1:
        return "ladder"
    why = "each block has every variant once, with another one first each time: drift cancels out"
    choices.append(Choice(name="order", value="interleaved", reason=why))
    return "interleaved"


def places(
    order: Order, variants: Sequence[str], ladder: Sequence[int], repeats: int, seed: int
) -> Iterator[Place]:
    """Every cell once.

    ``ladder``: variant after variant within a repeat. ``interleaved``: rung after rung, the variants rotated
    by one from block to block (a Latin square over as many blocks as there are variants). ``shuffled``: rungs
    within each repeat, and variants within each block, by ``seed``.
    """
    for repeat in range(1, repeats + 1):
        if order == "ladder":
            for variant in variants:
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
