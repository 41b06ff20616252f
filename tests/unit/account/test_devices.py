"""Devices in a window: figures worked out by hand, as iostat(1) of sysstat defines them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakery import made_cell

from dbdyno.account.devices import device_io, device_io_total, device_time
from dbdyno.account.window import windows
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.raw import TABLES

S, MS = 1_000_000_000, 1_000_000
T0, T1 = 10 * S, 20 * S
COUNTS = [c.name for c in TABLES["devices"] if c.type == "i64" and c.name not in ("before_ns", "after_ns")]
DATA = {
    "before_ns": T0 - S,
    "after_ns": T0 - S,
    "place": "data",
    "path": "/data",
    "filesystem": "ext4",
    "device": "sda1",
    "status": "ok",
}
ON_DISK = {"layers": "sda1 on sda", "below": "sda"}


def read(at_ns: int, device: str = "sda1", status: str = "ok", **figures: int | None) -> dict[str, Any]:
    counts = dict.fromkeys(COUNTS, None if status != "ok" else 0)
    return {"before_ns": at_ns, "after_ns": at_ns, "device": device, **counts, **figures, "status": status}


def cell(*reads: dict[str, Any], places: Any = ({**DATA, **ON_DISK},)) -> RawCell:
    return made_cell({"places": places, "devices": reads}, t0=T0, t1=T1)


def only(raw: RawCell, device: str = "sda1") -> dict[str, Any]:
    (row,) = [r for r in device_io([raw]).iter_rows(named=True) if r["device"] == device]
    return row


BUSY = {
    "reads": 1000,
    "read_bytes": 8_192_000,
    "read_ns": 2000 * MS,
    "writes": 3000,
    "written_bytes": 40_960_000,
    "write_ns": 9000 * MS,
    "flushes": 200,
    "flush_ns": 800 * MS,
    "io_ns": 6000 * MS,
    "weighted_ns": 11_000 * MS,
}


def test_a_device_that_mount_points_name_is_marked() -> None:
    wal = {**DATA, **ON_DISK, "place": "WAL", "path": "/data/pg_wal", "status": "assumed"}
    row = only(cell(read(T0), read(T1, **BUSY), places=({**DATA, **ON_DISK}, wal)))
    assert (row["places"], row["status"], row["reads"]) == ("data, WAL (unless a link)", "ok", 1000)


def test_rates_of_a_window() -> None:
    row = only(
        cell(read(T0, reads=5, read_bytes=512), read(T1, **{**BUSY, "reads": 1005, "read_bytes": 8_192_512}))
    )
    assert row["wall_s"] == 10 and row["status"] == "ok" and row["counted"]
    assert (row["reads_per_s"], row["read_bytes_per_s"], row["read_await_ns"]) == (100, 819_200, 2 * MS)
    assert (row["writes_per_s"], row["written_bytes_per_s"], row["write_await_ns"]) == (
        300,
        4_096_000,
        3 * MS,
    )
    assert (row["flushes_per_s"], row["flush_await_ns"]) == (20, 4 * MS)
    assert row["request_bytes"] == 49_152_000 / 4000
    assert row["utilisation"] == 0.6 and row["in_flight"] == pytest.approx(1.1)


def test_reads_before_and_after_the_window_do_not_count() -> None:
    outside = (read(T0 - 2 * S), read(T1 + 2 * S, writes=99))
    row = only(cell(outside[0], read(T0 + MS, writes=10), read(T1 - MS, writes=20), outside[1]))
    assert row["writes"] == 10 and row["wall_s"] == pytest.approx(9.998)


def test_unknown_is_not_zero() -> None:
    row = only(cell(read(T0, flushes=None, flush_ns=None), read(T1, flushes=None, flush_ns=None)))
    assert row["flushes"] is None and row["flushes_per_s"] is None and row["flush_await_ns"] is None
    assert row["reads_per_s"] == 0 and row["read_await_ns"] is None, "no read has no duration"


def test_times_wrap_at_32_bits_of_milliseconds() -> None:
    near_the_end = (2**32 - 500) * MS
    row = only(cell(read(T0, weighted_ns=near_the_end), read(T1, weighted_ns=4500 * MS)))
    assert row["status"] == "ok" and row["weighted_ns"] == 5000 * MS and row["in_flight"] == 0.5


@pytest.mark.parametrize(("before", "after"), [(7, 6), (2**32 - 1, 3)])
def test_a_counter_that_went_back_makes_all_unknown(before: int, after: int) -> None:
    row = only(cell(read(T0, writes=before, reads=1), read(T1, writes=after, reads=9)))
    assert row["status"] == "reset" and row["writes"] is None and row["reads_per_s"] is None


def test_a_time_that_went_back_a_little_did_not_wrap() -> None:
    assert only(cell(read(T0, io_ns=500 * MS), read(T1, io_ns=400 * MS)))["status"] == "reset"


def test_a_device_that_vanishes_leaves_the_others() -> None:
    places = ({**DATA, "device": "sda"}, {**DATA, "place": "WAL", "device": "sdb"})
    gone = read(T0 + 5 * S, "sdb", "vanished")
    reads = [read(T0, "sda"), read(T0, "sdb"), gone, read(T1, "sda", writes=50), read(T1, "sdb", "vanished")]
    raw = cell(*reads, places=places)
    assert (only(raw, "sda")["writes"], only(raw, "sda")["status"]) == (50, "ok")
    assert (only(raw, "sdb")["writes"], only(raw, "sdb")["status"]) == (None, "vanished")


def test_no_read_and_one_read() -> None:
    assert only(cell())["status"] == "lost"
    assert only(cell(read(T0)))["status"] == "too short"


def test_each_request_is_counted_once() -> None:
    """WAL and data on two partitions of a disk, temporary files on a loop device over the first."""
    places = [
        {**DATA, **ON_DISK},
        {**DATA, "place": "WAL", "device": "sda2", "layers": "sda2 on sda", "below": "sda"},
        {
            **DATA,
            "place": "temporary files",
            "device": "loop0",
            "layers": "loop0 on sda1 on sda",
            "below": "sda1, sda",
        },
        {**DATA, "place": "tablespace t", "device": None, "status": "no device: tmpfs"},
    ]
    devices = ("sda1", "sda2", "sda", "loop0")
    reads = [read(at, d, writes=w) for at, w in ((T0, 0), (T1, 10)) for d in devices]
    table = {r["device"]: r for r in device_io([cell(*reads, places=places)]).iter_rows(named=True)}
    assert {d: r["counted"] for d, r in table.items()} == {
        "sda1": True, "sda2": True, "sda": False, "loop0": False, None: False,
    }  # fmt: skip
    assert table["sda"]["below"] == "sda1, sda2, loop0" and table["sda1"]["below"] == "loop0"
    assert table["sda"]["places"] is None and table["sda2"]["places"] == "WAL"
    assert table[None]["places"] == "tablespace t" and table[None]["status"] == "no device: tmpfs"
    assert table[None]["reads"] is None


def test_totals_over_repeats_are_made_of_sums() -> None:
    first = cell(read(T0), read(T1, reads=100, read_ns=100 * MS))
    second = cell(read(T0), read(T1, reads=900, read_ns=2700 * MS))
    cells = [first, second]
    total = device_io_total(windows(cells), device_io(cells)).filter(device="sda1").to_dicts()
    assert len(total) == 1 and total[0]["cell"] == "all" and total[0]["repeat"] == 0
    assert total[0]["reads_per_s"] == 50 and total[0]["read_await_ns"] == 2.8 * MS


def test_a_total_leaves_out_what_is_unknown_and_says_so() -> None:
    unknown = cell(read(T0, reads=7), read(T1, reads=6))
    cells = [cell(read(T0), read(T1, reads=100)), unknown]
    (total,) = device_io_total(windows(cells), device_io(cells)).filter(device="sda1").to_dicts()
    assert (total["reads"], total["wall_s"], total["reads_per_s"]) == (100, 10, 10)
    assert total["status"] == "limited"
    (lost,) = device_io_total(windows([unknown]), device_io([unknown])).filter(device="sda1").to_dicts()
    assert (lost["reads"], lost["wall_s"], lost["status"]) == (None, None, "reset")


def test_steps_over_time() -> None:
    raw = cell(*(read(T0 + n * S, writes=n * n, write_ns=n * n * MS) for n in range(-2, 13)))
    steps = device_time([raw]).to_dicts()
    assert [s["writes_per_s"] for s in steps] == [2 * n + 1 for n in range(10)]
    assert (steps[0]["start_s"], steps[-1]["end_s"]) == (0, 10)
    assert {s["write_await_ns"] for s in steps} == {MS}


def test_a_run_of_before_has_no_rows() -> None:
    assert device_io([made_cell({})]).is_empty() and device_time([made_cell({})]).is_empty()
