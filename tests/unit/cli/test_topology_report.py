"""The topology as text and picture: the cputoolkit's table, facts, drawings, and the command."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import tarfile
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from tests.unit.observe_trees import BIG, golden, printed_lines, unpack

from dbdyno import present
from dbdyno.cli.app import app
from dbdyno.model.engine.topology import Topology
from dbdyno.model.errors import UsageError
from dbdyno.observe import limits, opened, record, topology

SVG = "{http://www.w3.org/2000/svg}"
TREES = [
    "ec2-c4-4xlarge",
    "power9-lpar-smt4",
    "v2-container-cpuset",
    "arm64-altra-2x80",
    "arm-board",
    "no-sys",
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["topology", *arguments], catch_exceptions=True)


def test_the_table_is_what_cpu_topology_printed() -> None:
    begin = next(i for i, line in enumerate(printed_lines()) if line.startswith("model name"))
    assert present.topology_table(topology(golden(BIG))) == printed_lines()[begin:]


def test_the_table_marks_what_is_unknown() -> None:
    lines = present.topology_table(topology(golden("arm-board")))
    assert lines[0] == "model name      : ?"
    assert [line[36:] for line in lines[1:]] == ["0 1", "? ?", "? ?", "? ?", "? ?"]


def test_facts_of_a_container_name_its_cpus_quota_and_cpuset() -> None:
    t = topology(golden("v2-container-cpuset"))
    printed = facts(t)
    assert printed["CPUs"] == "64 online, 2 sockets, 2 NUMA nodes, 32 cores: AMD EPYC 9124 16-Core Processor"
    assert printed["may be used"] == "8 of 64: 4-7,36-39; together as much as 3 CPUs (quota)"
    assert printed["why"].endswith("(v2); quota 3 CPUs of /sys/fs/cgroup")
    assert printed["may not"] == "0-3,8-35,40-63 outside the cpuset of the control group"
    assert printed["caches"].endswith("L3 32 MiB per 8 CPUs (8)")
    assert printed["frequency"] == "?"
    assert "look from the host" in "".join(present.topology_facts(t, 10_000))


def test_facts_show_distances_as_a_matrix() -> None:
    lines = present.topology_facts(topology(golden("power9-lpar-smt4")))
    at = next(i for i, line in enumerate(lines) if line.startswith("NUMA"))
    assert [line.split()[-2:] for line in lines[at + 1 : at + 3]] == [["10", "20"], ["20", "10"]]
    assert lines[at].endswith("to 0  to 8")


def facts(t: Topology) -> dict[str, str]:
    return {line[:14].strip(): line[14:] for line in present.topology_facts(t, 10_000) if line[:14].strip()}


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_picture_of_160_cpus_keeps_its_width_and_has_each_cpu_once(width: int) -> None:
    lines = present.topology_picture(topology(golden(BIG)), width)
    boxes, legend = lines[:-1], lines[-1]
    assert max(map(len, boxes)) <= width
    cells = [line for line in boxes if not re.search("[┌├└]", line)]
    assert sorted(int(n) for line in cells for n in re.findall(r"\d+", line)) == list(range(160))
    marked = {int(n) for line in cells for n in re.findall(r"×(\d+)", line)}
    assert marked == set(range(160)) - {*range(1, 11), *range(41, 51)}
    assert "×: this process may not run there" in legend


def test_the_picture_puts_threads_of_a_core_in_one_cell_and_caches_around_their_cores() -> None:
    picture = present.topology_picture(topology(golden("v2-container-cpuset")))
    assert sum(line.count("─ L3 32 MiB ") for line in picture) == 8
    assert any("│  4 36 │  5 37 │  6 38 │  7 39 │" in line for line in picture)


def test_the_picture_names_nodes_within_a_socket(tmp_path: Path) -> None:
    root = unpack("ec2-c4-4xlarge", tmp_path)
    node = root / "sys/devices/system/node"
    (node / "node1").mkdir()
    (node / "online").write_text("0-1\n")
    (node / "node0/cpulist").write_text("0-3,8-11\n")
    (node / "node1/cpulist").write_text("4-7,12-15\n")
    text = "\n".join(present.topology_picture(topology(root)))
    assert re.search(r"─ socket 0, L3 25 MiB ─.*\n.*─ node 0, 30 GiB ─.*─ node 1 ─", text)


def test_the_picture_shows_memory_without_cpus_and_says_when_it_knows_no_limits(tmp_path: Path) -> None:
    root = unpack("arm-board", tmp_path)
    for path, text in {"online": "0,2", "node0/cpulist": "0-1", "node2/cpulist": ""}.items():
        file = root / "sys/devices/system/node" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    lines = present.topology_picture(topology(root))
    assert any("─ node 2, no CPUs ─" in line for line in lines)
    assert "unknown" in lines[-1]
    assert not any("×" in line for line in lines)


@pytest.mark.parametrize("name", [*TREES, BIG])
def test_the_svg_is_sound_and_has_each_cpu_once(name: str, tmp_path: Path) -> None:
    t = topology(golden(name))
    drawn = ElementTree.parse(present.write_topology_svg(t, tmp_path / "out.svg")).getroot()
    assert drawn.find(f"{SVG}title") is not None
    assert drawn.find(f"{SVG}desc") is not None
    numbers = [e.text or "" for e in drawn.iter(f"{SVG}text") if "number" in e.get("class", "")]
    assert sorted(int(n) for n in numbers if n != "n") == [c.cpu for c in t.cpus]
    width, height = (float(drawn.get(k, "0")) for k in ("width", "height"))
    assert drawn.get("viewBox") == f"0 0 {width:g} {height:g}"
    style = drawn.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme:dark" in style
    assert "var(" not in style


def test_the_svg_stays_within_its_frame(tmp_path: Path) -> None:
    drawn = ElementTree.fromstring(
        present.write_topology_svg(topology(golden(BIG)), tmp_path / "out.svg").read_text()
    )
    right, bottom = float(drawn.get("width", "0")), float(drawn.get("height", "0"))
    corners = list(_corners(drawn, 0, 0))
    assert len(corners) > 160
    assert all(x <= right and y <= bottom for x, y in corners)


def _corners(e: ElementTree.Element, x: float, y: float) -> list[tuple[float, float]]:
    """Returns the lower right corner of every rectangle, with the moves of its groups."""
    if moved := re.fullmatch(r"translate\((\S+) (\S+)\)", e.get("transform", "")):
        x, y = x + float(moved[1]), y + float(moved[2])
    corners = []
    if e.tag == f"{SVG}rect" and "%" not in e.get("width", ""):
        corners.append((x + float(e.get("width", "0")), y + float(e.get("height", "0"))))
    return corners + [corner for child in e for corner in _corners(child, x, y)]


def test_the_command_shows_this_machine() -> None:
    result = run()
    assert result.exit_code == 0
    for word in ("CPUs", "may be used", "SMT", "clocksource", "socket", "A cell is a core"):
        assert word in result.output


def test_terminals_without_line_drawing_get_plain_letters() -> None:
    root = str(golden("v2-container-cpuset"))
    result = CliRunner(charset="latin-1").invoke(app, ["topology", "--root", root], catch_exceptions=False)
    assert result.output.isascii()
    assert "|  4 36 |  5 37 |" in result.output
    assert "x0x32" in result.output


def test_json_holds_the_whole_topology() -> None:
    root = golden("power9-lpar-smt4")
    document = json.loads(run("--json", "--root", str(root)).output)
    assert document["cpus"][8] == {
        "cpu": 8,
        "online": True,
        "socket": 0,
        "die": None,
        "core": 1,
        "core_id": 8,
        "node": 0,
        "thread": 0,
        "caches": [1, 11, 21, 31],
        "allowed": True,
        "why_not": None,
        "min_mhz": None,
        "max_mhz": None,
        "governor": None,
    }
    assert Topology.model_validate(document) == topology(root)


def test_the_command_writes_the_other_forms(tmp_path: Path) -> None:
    root = str(golden("ec2-c4-4xlarge"))
    assert run("--table", "--root", root).output.splitlines()[3].split()[-1] == "16"
    assert run("--parse", "--root", root).output.splitlines()[9] == "8,0,0,0"
    assert run("--svg", str(tmp_path / "m.svg"), "--root", root).output.strip() == str(tmp_path / "m.svg")
    assert (tmp_path / "m.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "--json"], "exclude each other"),
        (["--root", "{empty}"], "has no CPU information"),
        (["--root", "{text}"], "is not a recorded machine"),
        (["--record", "{empty}/none/x.tar"], "cannot write"),
        (["--svg", "{empty}/none/x.svg"], "cannot write"),
    ],
)
def test_wrong_options_of_topology_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no tar file")
    ran = run(*(a.format(empty=tmp_path / "empty", text=tmp_path / "text") for a in arguments))
    assert message in str(ran.exception)


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz"])
def test_a_recorded_machine_reads_as_the_machine(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"here.{suffix}"
    assert record(file) > 10
    with opened(file) as tree:
        assert topology(tree) == topology()


def test_golden_machines_survive_recording(tmp_path: Path) -> None:
    root = golden("power9-lpar-smt4")
    record(tmp_path / "m.tar", root)
    with opened(tmp_path / "m.tar") as tree:
        assert topology(tree) == topology(root)


def test_a_recording_holds_no_more_of_a_process_than_its_cpus(tmp_path: Path) -> None:
    record(tmp_path / "here.tar")
    with opened(tmp_path / "here.tar") as tree:
        assert {line.partition(":")[0] for line in (tree / "proc/self/status").read_text().splitlines()} == {
            "Cpus_allowed",
            "Cpus_allowed_list",
        }
        mounts = (tree / "proc/self/mountinfo").read_text().splitlines()
        assert all(re.search(r" - (cgroup2?|proc) ", line) for line in mounts)


def test_a_hostile_tar_writes_nothing_outside(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        for name in ("../escaped", "/tmp/dbdyno-escaped", "sys/fine"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
        link = tarfile.TarInfo("sys/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with opened(tmp_path / "bad.tar") as tree:
        assert [p.name for p in tree.rglob("*") if not p.is_dir()] == ["fine"]
        assert not (tree.parent / "escaped").exists()
    assert not Path("/tmp/dbdyno-escaped").exists()


ZEROS = bytes(1 << 20)


def _member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("suffix", ["tar.gz", "tar.xz", "tar"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, b"S"])
def test_a_tar_without_end_is_not_unpacked(
    tmp_path: Path, suffix: str, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents, names and headers of files are limited; tar keeps the latter two in memory. The test's limit
    is 8 MiB."""
    monkeypatch.setattr(limits, "_MOST_TREE_BYTES", 8 << 20)
    file, content = tmp_path / f"bomb.{suffix}", _member("sys/x", 1 << 30, kind) + 9 * ZEROS
    packed = {"tar.gz": gzip.compress, "tar.xz": lzma.compress, "tar": bytes}[suffix](content)
    file.write_bytes(packed)
    assert suffix == "tar" or len(packed) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="larger than 8 MiB when unpacked"), opened(file):
            pass
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_tar_of_many_files_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_MOST_FILES", 100)
    (tmp_path / "many.tar").write_bytes(b"".join(_member(f"sys/{n}", 0) for n in range(200)) + bytes(1024))
    with pytest.raises(UsageError, match="more than 100 files"), opened(tmp_path / "many.tar"):
        pass


def test_a_fifo_in_place_of_a_tar_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.tar")
    with pytest.raises(UsageError, match="a FIFO"), opened(tmp_path / "m.tar"):
        pass


def test_a_tar_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "here.tar.gz")
    content = (tmp_path / "here.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match="not a recorded machine"), opened(tmp_path / "cut.tar.gz"):
        pass
