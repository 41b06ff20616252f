"""Devices on the screen, at every width."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.unit import report_results

from dbdyno import present
from dbdyno.model.results.results import Results
from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.tables import rows
from dbdyno.present.figures import figures, selection
from dbdyno.present.run import devices

SDA = {
    "device": "sda1",
    "places": "data, temporary files",
    "layers": "sda1 on sda",
    "counted": True,
    "wall_s": 10.0,
    "reads_per_s": 100.0,
    "read_bytes_per_s": 819_200.0,
    "read_await_ns": 2e6,
    "writes_per_s": 300.0,
    "written_bytes_per_s": 4_096_000.0,
    "write_await_ns": 3e6,
    "request_bytes": 12_288.0,
    "utilisation": 0.6,
    "in_flight": 1.1,
    "status": "ok",
}
NFS = {"places": "WAL", "counted": False, "status": "no device: nfs4"}
GONE = {"device": "sdb", "places": "tablespace fast", "counted": True, "status": "vanished"}


def _text(width: int, *devices: dict[str, Any]) -> str:
    results: Results = report_results.results()
    pick = selection.pick_of(results)
    assert pick is not None
    cell = results.tables["windows"].filter(cell=pick.cell).row(0, named=True)
    head = {c.name: cell[c.name] for c in CELL}
    shown = rows("device_io", [{**head, "source": "devices", **device} for device in devices])
    console = Console(file=io.StringIO(), width=width)
    changed = replace(results, tables={**results.tables, "device_io": shown})
    console.print(present.details(changed, "devices"))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = _text(width, SDA, NFS, GONE).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("sda1 ") for line in lines)


def test_a_device_has_its_figures_and_what_has_none_says_why() -> None:
    text = _text(160, SDA, NFS, GONE)
    assert re.search(r"^sda1 .* 100 .*0\.819 .*2\.00 ms .*300 .*4\.10 .*3\.00 ms", text, re.MULTILINE)
    assert re.search(r"^none +WAL .*no device: nfs4", text, re.MULTILINE)
    (gone,) = re.findall(r"^sdb .*", text, re.MULTILINE)
    assert "vanished" in gone and "?" in gone and " 0 " not in gone
    assert "sda1 on sda. What lies below contains the figures of what lies on it." in text


def test_a_number_has_the_unit_of_its_head() -> None:
    heads = {column.head: cell(SDA) for column, cell in devices._COLUMNS if column.head.endswith("MB/s")}
    assert {h: (c.value, c.unit) for h, c in heads.items()} == {
        "read MB/s": (pytest.approx(0.8192), "MB/s"),
        "write MB/s": (pytest.approx(4.096), "MB/s"),
    }


def test_an_asymmetric_interval_is_no_single_number() -> None:
    assert figures.plus_minus((0.43, 2.32))[:2] == ("-57 +132 %", None)
    assert figures.plus_minus((0.98, 1.02)).value == pytest.approx(0.02)


def test_what_is_assumed_or_not_permitted_is_explained_with_the_cure() -> None:
    text = _text(160, SDA | {"places": "data, WAL (unless a link)"})
    assert "Unless a link: the directory may not be looked at" in text and "Not permitted" not in text
    hidden = {"places": "data", "counted": False, "status": "not permitted"}
    text = " ".join(_text(160, hidden).split())
    assert "Not permitted: the server's directories are not known to this user: run dbdyno as the" in text
    assert "Unless a link" not in text
