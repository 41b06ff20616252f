"""Devices in the live view: sums of the latest reads, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakery import made_cell

from dbdyno.cli.observe_view import _devices
from dbdyno.observe.glance_devices import DevicesNow, devices_now

S, MS = 1_000_000_000, 1_000_000
ZERO = dict.fromkeys(("reads", "read_bytes", "read_ns", "writes", "written_bytes", "write_ns"), 0)
ZERO |= dict.fromkeys(("io_ns", "weighted_ns", "in_flight"), 0)


def read(at_s: float, device: str, **figures: int) -> dict[str, Any]:
    at_ns = int(at_s * S)
    return {"before_ns": at_ns, "after_ns": at_ns, "device": device, "status": "ok", **ZERO, **figures}


def place(device: str, below: str | None = None) -> dict[str, Any]:
    row = {"before_ns": 0, "after_ns": 0, "place": "data", "path": "/d", "device": device, "status": "ok"}
    return row | {"below": below}


def now(places: list[dict[str, Any]], *reads: dict[str, Any]) -> DevicesNow | None:
    return devices_now(made_cell({"places": places, "devices": reads}).tables)


def test_sums_of_two_devices_and_not_of_the_disk_below_them() -> None:
    places = [place("sda1", "sda"), place("sda2", "sda")]
    last = {"reads": 100, "read_ns": 300 * MS, "read_bytes": 819_200, "weighted_ns": S}
    reads = [read(1, d) for d in ("sda1", "sda2", "sda")]
    reads += [
        read(2, "sda1", reads=1),
        read(3, "sda1", **last),
        read(3, "sda2", writes=50, write_ns=150 * MS),
    ]
    reads += [read(3, "sda", reads=100, writes=50)]
    assert now(places, *reads) == DevicesNow(50, 25, 409_600, 3 * MS, 0.5)


def test_what_is_not_known_is_none() -> None:
    assert now([]) is None and now([place("sda")]) is None
    assert now([place("sda")], read(1, "sda")) is None
    assert now([place("sda")], read(1, "sda", reads=5), read(2, "sda", reads=4)) is None
    assert now([place("sda"), place("sdb")], read(1, "sda"), read(2, "sda"), read(2, "sdb")) is None


@pytest.mark.parametrize(
    ("width", "text"),
    [(80, "I/O 1.25 k/s 5.00 ms"), (120, "devices 1.20 k r/s 50.0 w/s, await 5.00 ms, 6.25 in flight")],
)
def test_the_line_has_more_words_where_there_is_room(width: int, text: str) -> None:
    assert _devices(DevicesNow(1200, 50, 9e6, 5 * MS, 6.25), width) == text
    assert _devices(None, width) == "devices ?"
