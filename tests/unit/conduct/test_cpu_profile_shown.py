"""The CPU profile on terminal and page and exported: top list, drawing, folded stacks, pprof, Firefox."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from tests.fakery import climb
from tests.unit.profiles import with_profile

from dbdyno import present
from dbdyno.conclude.compare.cpu_profile import between
from dbdyno.conduct.derive.derive import derive
from dbdyno.model.errors import UsageError
from dbdyno.model.results.results import Results
from dbdyno.model.sources.code_areas import parsed
from dbdyno.present.charts import flame
from dbdyno.present.document.document import Flame
from dbdyno.present.run import cpu_profile

SHARES = {"scan": 0.5, "lock": 0.2, "copy": 0.1, "read": 0.15, "again": 0.05}
AREAS = parsed("[access/heap]\nheap*\n[executor]\nExec* main\n[storage/lmgr]\nLWLock*", "postgres")


def made(profiled: bool = True, shares: Mapping[int, Mapping[str, float]] | None = None) -> Results:
    climbed = climb("fake:cpus=4", [1, 4])
    shares_by_sessions = shares or {1: SHARES, 4: SHARES}
    cells = [
        with_profile(c, shares_by_sessions[c.meta.cell.sessions]) if profiled else c for c in climbed.cells
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["dbdyno.conduct.derive.derive"], "code_areas", lambda _: AREAS)
        return derive(climbed.info, climbed.plan, climbed.environment, cells)


@pytest.fixture(scope="module")
def results() -> Results:
    return made()


def cpu(results: Results, account: str = "run") -> float:
    rows = results.tables["ledger"].filter((pl.col("sessions") == 4) & (pl.col("scope") == "rung"))
    return float(rows.filter(pl.col("account") == account)["aas"].item())


@pytest.mark.whole
def test_the_tree_holds_all_time_and_a_frame_its_callees(results: Results):
    root = flame.tree(flame.stacks(results, cpu_profile.pick_of(results)))
    assert root.value == pytest.approx(cpu(results))
    main = root.children["postgres:executor`main"]
    assert main.value == pytest.approx(root.value)
    assert main.children["postgres:executor`ExecScan"].value == pytest.approx(
        sum(c.value for c in main.children["postgres:executor`ExecScan"].children.values())
    )


def test_the_tree_of_a_wait_event_or_a_statement_holds_its_time(results: Results):
    pick = cpu_profile.pick_of(results)
    _, rows = present.hot(results, "wait", 5)
    waited = {r["name"]: r["aas"] for r in rows}
    root = flame.tree(flame.stacks(results, pick, {"wait": "IO/DataFileRead"}))
    assert root.value == pytest.approx(waited["IO/DataFileRead"])
    assert root.value == pytest.approx(cpu(results, "run.system")), "no other stack is in the kernel"
    assert {n.text for n in _leaves(root)} == {"kernel:ext4`ext4_file_read_iter"}
    of_statement = flame.tree(flame.stacks(results, pick, {"statement": "42"}))
    assert of_statement.value == pytest.approx(cpu(results))
    with pytest.raises(UsageError, match="IO/WalSync"):
        cpu_profile.picture(results, pick, {"wait": "IO/WalSync"})


def _leaves(node: flame.Node) -> Iterator[flame.Node]:
    for child in node.children.values():
        yield from _leaves(child)
    if not node.children:
        yield node


@pytest.mark.parametrize(
    ("by", "first"),
    [
        ("function", "heapgettup"),
        ("module", "postgres:access/heap"),
        ("wait", "no wait event"),
        ("statement", "42"),
        ("session", None),
    ],
)
def test_the_top_list_begins_with_most_time(results: Results, by: str, first: str | None):
    _, rows = present.hot(results, by, 5)
    assert first is None or rows[0]["name"] == first
    assert [r["aas"] for r in rows] == sorted((r["aas"] for r in rows), reverse=True)
    assert sum(r["aas"] for r in rows) == pytest.approx(cpu(results))


def test_the_top_list_fits_into_80_columns(results: Results, capsys):
    from rich.console import Console

    table, _ = present.hot(results, "function", 5)
    Console(width=80).print(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("heapgettup" in line for line in lines)


def test_a_run_without_a_profile_says_how_to_get_one():
    plain = made(profiled=False)
    with pytest.raises(UsageError) as caught:
        present.hot(plain, "function", 5)
    assert "--profile" in str(caught.value.cure)
    assert "Where CPU time went" not in str(present.run_document(plain).blocks)


def test_page_and_drawing_load_nothing_from_elsewhere(results: Results, tmp_path: Path):
    page = present.write_flame(results, tmp_path / "f.html").read_text()
    assert "heapgettup" in page and "http://" not in page.replace("http://www.w3.org", "")
    drawing = present.write_flame(results, tmp_path / "f.svg").read_text()
    root = ElementTree.fromstring(drawing)
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(t.startswith("heapgettup (postgres:access/heap)") for t in titles)


def test_folded_stacks_hold_all_time_in_microseconds_per_second(results: Results, tmp_path: Path):
    [path] = present.export(results, None, "folded", tmp_path / "x")
    lines = path.read_text().splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == pytest.approx(1e6 * cpu(results), rel=1e-4)
    assert any(line.startswith("sessions;main;ExecScan;pread64;vfs_read_[k];") for line in lines)


def test_two_loads_are_compared_in_a_differential_flame_graph(tmp_path: Path):
    results = made(shares={1: SHARES, 4: {**SHARES, "lock": 0.6}})
    low, high = (present.pick_at(results, n) for n in (1, 4))
    change = between(results, low.rung, results, high.rung, (low.label, high.label))
    first = max(change.functions, key=lambda c: c.difference_ns)
    assert first.name == "LWLockAttemptLock" and first.p_holm is not None and first.p_holm < 0.01
    assert (change.unit, change.baseline, change.variant) == ("LIO", "1 session", "4 sessions")
    document = cpu_profile.difference(results, high, results, low, change)
    [drawn] = [b for b in document.blocks if isinstance(b, Flame)]
    assert drawn.compared and drawn.root[2] == pytest.approx(change.difference_ns, rel=1e-3)
    path = present.write_flame_change(((results, low), (results, high)), change, tmp_path / "d.svg")
    assert "difference" in path.read_text()


def fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """Returns the fields of a protocol buffer message, read without a schema."""
    parts: list[tuple[int, int | bytes]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            parts.append((key >> 3, varint()))
        else:
            assert key & 7 == 2
            size = varint()
            parts.append((key >> 3, message[at : at + size]))
            at += size
    return parts


def unpack_numbers(message: bytes) -> list[int]:
    return [int(v) for _, v in fields(b"".join(b"\x08" + p for p in _varints(message)))]


def _varints(message: bytes) -> list[bytes]:
    parts, start = [], 0
    for n, byte in enumerate(message):
        if byte < 0x80:
            parts.append(message[start : n + 1])
            start = n + 1
    return parts


def test_pprof_holds_stacks_and_cpu_nanoseconds(results: Results, tmp_path: Path):
    [path] = present.export(results, None, "pprof", tmp_path / "x.pb.gz")
    message = fields(gzip.decompress(path.read_bytes()))
    texts = [v.decode() for n, v in message if n == 6 and isinstance(v, bytes)]
    functions = {dict(f)[1]: texts[int(dict(f)[2])] for n, v in message if n == 5 and (f := fields(bytes(v)))}
    samples = [dict(fields(bytes(v))) for n, v in message if n == 2]
    spent = sum(unpack_numbers(bytes(s[2]))[1] for s in samples)
    wall_s = results.tables["windows"].filter(pl.col("sessions") == 4)["wall_s"].sum()
    assert spent == pytest.approx(cpu(results) * wall_s * 1e9, rel=1e-6)
    stacks = [[functions[i] for i in unpack_numbers(bytes(s[1]))] for s in samples]
    assert ["heapgettup", "ExecScan", "main", "sessions"] in stacks, "the leaf comes first"
    assert texts[0] == ""


def test_firefox_tables_refer_to_one_another(results: Results, tmp_path: Path):
    [path] = present.export(results, None, "firefox", tmp_path / "x.json")
    thread = json.loads(path.read_text())["threads"][0]
    for name in ("frameTable", "funcTable", "stackTable", "resourceTable", "samples"):
        table = thread[name]
        assert all(len(column) == table["length"] for column in table.values() if isinstance(column, list)), (
            name
        )

    def functions(stack: int | None) -> list[str]:
        if stack is None:
            return []
        function = thread["frameTable"]["func"][thread["stackTable"]["frame"][stack]]
        name = thread["stringArray"][thread["funcTable"]["name"][function]]
        return [*functions(thread["stackTable"]["prefix"][stack]), name]

    stacks = [functions(s) for s in thread["samples"]["stack"]]
    assert ["main", "ExecScan", "heapgettup"] in stacks
    wall_s = results.tables["windows"].filter(pl.col("sessions") == 4)["wall_s"].sum()
    assert sum(thread["samples"]["weight"]) == pytest.approx(1e3 * wall_s * cpu(results), rel=1e-6)
