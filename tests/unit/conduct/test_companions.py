"""The order in which the companions of a measurement are asked, for each of its moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.fakery import made_cell, plan_cell

from dbdyno.conduct.companion import Companion, Companions
from dbdyno.observe import NoWatch

CELL, WATCH, LOAD, RAW = plan_cell(1), NoWatch(), object(), made_cell({})
MOMENTS: dict[str, tuple[Any, ...]] = {
    "before": (CELL,),
    "connected": (LOAD,),
    "look": (WATCH, lambda _how: WATCH, LOAD),
    "window_over": (),
    "between": (CELL, 1),
    "last": (CELL,),
    "leaving": (),
    "after": ([RAW],),
    "saved": (RAW,),
}
FORWARDS = {"before", "connected", "look", "saved"}


class Noting(Companion):
    """Notes its name each time that it is asked."""

    def __init__(self, name: str, notes: list[str]) -> None:
        for moment in MOMENTS:
            setattr(self, moment, self._noting(name, notes, getattr(super(), moment)))

    @staticmethod
    def _noting(name: str, notes: list[str], then: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any) -> Any:
            notes.append(name)
            return then(*arguments)

        return asked


def test_all_moments_of_the_protocol_are_tried() -> None:
    public = {name for name in vars(Companion) if not name.startswith("_")}
    assert public == set(MOMENTS) == {name for name in vars(Companions) if not name.startswith("_")}


@pytest.mark.parametrize("moment", MOMENTS)
def test_companions_are_asked_forwards_on_the_way_in_and_backwards_on_the_way_out(moment: str) -> None:
    notes: list[str] = []
    getattr(Companions(Noting("a", notes), Companion(), Noting("b", notes)), moment)(*MOMENTS[moment])
    assert notes == (["a", "b"] if moment in FORWARDS else ["b", "a"])


def test_each_companion_gets_the_cells_as_those_after_it_have_left_them() -> None:
    class Adding(Companion):
        def __init__(self, name: str) -> None:
            self._name = name

        def after(self, raws: Any) -> Any:
            return [*raws, self._name]

    assert list(Companions(Adding("a"), Adding("b")).after([RAW])) == [RAW, "b", "a"]
