"""Memory of recorded machines and groups, of a program that maps known amounts; the page cache as fincore."""

import contextlib
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.observe_trees import golden

from dbdyno import _core
from dbdyno.engines.postgres.cached_relations import Buffers, largest, relation_rows
from dbdyno.engines.postgres.relation_files import Counted, Key, Layout, PageCache, Part
from dbdyno.engines.postgres.server_memory import shared_by_node
from dbdyno.model.engine.caching import State
from dbdyno.observe.memory import figures, group_rows, host_rows, meminfo
from dbdyno.observe.process_memory import ProcessReader, executables, mapped

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = mmap.PAGESIZE


def by_key(rows: object, node: int | None = None) -> dict[str, tuple[int | None, str]]:
    return {r["key"]: (r["value"], r["status"]) for r in rows if r["node"] == node}  # type: ignore[attr-defined]


def test_a_machine_of_two_nodes_with_swap_and_huge_pages() -> None:
    rows = list(host_rows(golden("memory-v2-2-nodes")))
    whole, node = by_key(rows), by_key(rows, 1)
    assert whole["total_bytes"] == (96 * GIB, "ok")
    assert whole["page_cache_bytes"] == ((40_500_000 + 500_000 + 100_000 - 8_100_000) * KIB, "ok")
    assert whole["kernel_bytes"] == ((3_000_000 + 900_000 + 10_000 + 60_000 + 150_000) * KIB, "ok")
    assert whole["huge_pages_total"] == (512, "ok") and whole["huge_page_bytes"] == (2 * MIB, "ok")
    assert whole["swapped_out_total"] == (262_144 * PAGE, "ok")
    assert whole["reclaimed_total"] == (5_210 * PAGE, "ok")  # not counted twice by kind of page
    assert node["total_bytes"] == (32 * GIB, "ok") and node["page_cache_bytes"] == (8_000_000 * KIB, "ok")
    assert "swap_total_bytes" not in node


def test_a_group_of_v2_has_the_tightest_limit_above_it() -> None:
    result = by_key(group_rows(42, golden("memory-v2-2-nodes")))
    assert result == {
        "limit_bytes": (16 * GIB, "ok"),
        "used_bytes": (12 * GIB, "ok"),
        "page_cache_bytes": (2 * GIB, "ok"),
        "anonymous_bytes": (2 * GIB, "ok"),
        "reclaimed_total": (700 * PAGE, "ok"),
        "pressure_some_ns": (1_234_567_000, "ok"),
        "pressure_full_ns": (1_000_001_000, "ok"),
    }


def test_a_group_of_v1_beside_an_empty_v2() -> None:
    result = by_key(group_rows(42, golden("memory-v1")))
    assert result["limit_bytes"] == (4 * GIB, "ok") and result["used_bytes"] == (900_000_000, "ok")
    assert result["page_cache_bytes"] == (867_090_432 - 8_998_912, "ok")
    assert result["anonymous_bytes"] == (22_618_112, "ok")
    assert result["pressure_some_ns"] == result["reclaimed_total"] == (None, "not supported")


def test_a_group_that_is_not_seen_has_no_rows() -> None:
    assert list(group_rows(4_000_000)) == []


def test_what_the_kernel_does_not_print_is_not_zero() -> None:
    result = figures(meminfo("MemTotal: 100 kB\nMemFree: 40 kB\n"))
    assert result["free_bytes"] == 40 * KIB
    assert result["page_cache_bytes"] is result["kernel_bytes"] is result["anonymous_bytes"] is None


def test_parts_of_this_machine_are_no_more_than_all_of_it() -> None:
    result = {k: v for k, (v, _) in by_key(host_rows()).items()}
    parts = ("free_bytes", "anonymous_bytes", "shared_bytes", "page_cache_bytes", "kernel_bytes")
    assert 0 < sum(result[p] or 0 for p in parts) <= 1.02 * (result["total_bytes"] or 0)


# -- processes --------------------------------------------------------------------------------------


def test_figures_of_recorded_processes_are_read() -> None:
    result = {
        r["pid"]: r
        for r in ProcessReader(golden("memory-v1")).rows({7: "session", 8: "other", 9: "other"}, 10**9)
    }
    assert set(result) == {7, 8}  # the third has ended
    assert result[7]["pss_bytes"] == 331 * KIB and result[7]["anonymous_bytes"] == 116 * KIB
    assert result[7]["page_tables_bytes"] == 120 * KIB and result[7]["swapped_bytes"] == 16 * KIB
    assert result[8]["status"] == "not supported" and "pss_bytes" not in result[8]
    assert result[8]["page_tables_bytes"] == 40 * KIB


_IDLE = """
import mmap, sys
opened = open(sys.argv[1], "rb")
"""
_TOUCHES = """
own = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, 32 << 20)
of_file = mmap.mmap(opened.fileno(), 16 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ)
for n in range(0, 64 << 20, 4096): own[n] = 1
for n in range(0, 32 << 20, 4096): shared[n] = 1
sum(of_file[n] for n in range(0, 16 << 20, 4096))
"""
_READY = 'print("ready", flush=True); sys.stdin.read()'


@contextlib.contextmanager
def touching(file: Path) -> Iterator[tuple[int, int]]:
    """A program that touches 64 MiB of its own, 32 shared ones, 16 of a file; one that touches none."""
    with contextlib.ExitStack() as stack:
        pids = []
        for code in (_IDLE + _TOUCHES + _READY, _IDLE + _READY):
            words = [sys.executable, "-c", code, str(file)]
            proc = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert proc.stdout is not None and proc.stdout.readline() == b"ready\n"
            pids.append(proc.pid)
        yield pids[0], pids[1]


@pytest.fixture
def file(disk_path: Path) -> Path:
    path = disk_path / "file"
    path.write_bytes(os.urandom(16 * MIB))
    return path


def test_a_program_that_touches_known_amounts(file: Path) -> None:
    with touching(file) as (busy, idle):
        result = {r["pid"]: r for r in ProcessReader().rows({busy: "session", idle: "other"}, 10**10)}
    more = {
        c: result[busy][c] - result[idle][c]
        for c in ("anonymous_bytes", "shared_bytes", "file_bytes", "pss_bytes")
    }
    assert more["anonymous_bytes"] == pytest.approx(64 * MIB, abs=2 * MIB)
    assert more["shared_bytes"] == pytest.approx(32 * MIB, abs=2 * MIB)
    assert more["file_bytes"] == pytest.approx(16 * MIB, abs=4 * MIB)
    assert more["pss_bytes"] == pytest.approx(112 * MIB, abs=6 * MIB)
    assert result[busy]["page_tables_bytes"] - result[idle]["page_tables_bytes"] > 40 * 4 * KIB


def test_processes_without_time_are_lost_and_come_first_the_next_time() -> None:
    reader, own_pid = ProcessReader(), os.getpid()
    others = {1: "other", own_pid: "dbdyno"}
    first = list(reader.rows(others, 0))
    assert [r["status"] for r in first][1:] == ["lost"] and "pss_bytes" not in first[1]
    assert next(iter(reader.rows(others, 10**9)))["pid"] == own_pid


def test_programs_are_the_files_mapped_to_be_executed() -> None:
    maps = """55d0 r--p 00000000 fe:01 10 /usr/bin/server
55d1 r-xp 00001000 fe:01 10                 /usr/bin/server
7f00 r-xp 00000000 fe:01 11 /lib/a library.so
7f01 r-xp 00000000 fe:01 12 /lib/gone.so (deleted)
7f02 rw-p 00000000 fe:01 13 /data/file
7fff r-xp 00000000 00:00 0 [vdso]
"""
    assert mapped("/r", maps) == {
        ("fe:01", "10"): "/r/usr/bin/server",
        ("fe:01", "11"): "/r/lib/a library.so",
    }
    result = executables(10**10)
    assert result["status"] in ("ok", "not permitted")
    assert result["value"] is None or result["value"] > MIB
    assert executables(0)["status"] == "lost"


# -- page cache -------------------------------------------------------------------------------------


def numbers(*blocks: int) -> bytes:
    return b"".join(n.to_bytes(8, "big") for n in blocks)


def fincore(file: Path) -> int:
    done = subprocess.run(["fincore", "-bno", "RES", str(file)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(shutil.which("fincore") is None, reason="no fincore here: apt-get install util-linux")
def test_a_file_that_is_read_in_part_as_fincore_counts_it(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), 3 * MIB, 4 * MIB)
    ((size, cached, within, status),) = _core.page_cache([(file, numbers(*range(512, 640)), 0)], 8192, 10**9)
    assert (size, status) == (16 * MIB, "ok")
    assert cached == fincore(file)
    if cached < 16 * MIB:  # else a file system that drops nothing
        assert 3 * MIB <= cached <= 4 * MIB and within == MIB
    scattered = numbers(*range(0, 2048, 2))  # as many ranges make it read pages one by one
    ((_, _, half, _),) = _core.page_cache([(file, scattered, 0)], 8192, 10**9)
    assert half is not None and abs(half - cached / 2) <= 2 * 8192


def test_blocks_without_bytes_are_refused(file: Path) -> None:
    with pytest.raises(ValueError, match="zero"):
        _core.page_cache([(file, numbers(0), 0)], 0, 10**9)


def test_numbers_of_blocks_beyond_all_files_are_of_none(file: Path) -> None:
    last = 2**64 - 1
    ((size, _, within, status),) = _core.page_cache([(file, numbers(last), last - 1)], 8192, 10**9)
    assert (size, status) == (16 * MIB, "ok") and within is not None and within <= 8192


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run the tests as root")
def test_a_file_of_somebody_else_has_no_figure(file: Path) -> None:
    file.chmod(0o644)
    for parent in file.parents[:4]:
        if str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    os.seteuid(65534)
    try:
        result = _core.page_cache([(file, b"", 0), (Path("/etc/shadow"), b"", 0)], 8192, 10**9)
    finally:
        os.seteuid(0)
    assert [(cached, status) for _, cached, _, status in result] == [(None, "not permitted")] * 2


def test_relations_are_counted_in_turn(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 8192)
    files = {Key(5, 1663, n): [Part(str(f), 0, 0)] for n, f in ((1, file), (2, tmp_path / "other"))}
    pages, layout = PageCache(), Layout(8192, GIB)
    first = pages.counted(files, {}, layout, 0)
    assert [c.status for c in first.values()] == ["ok", "lost"] and list(first) == list(files)
    assert next(iter(pages.counted(files, {}, layout, 0))) == Key(5, 1663, 2)
    files[Key(5, 1663, 2)] = [Part(str(tmp_path / "gone"), 0, 0)]
    assert pages.counted(files, {}, layout, 10**9)[Key(5, 1663, 2)].cached_bytes is None


# -- relations --------------------------------------------------------------------------------------


def test_relations_are_known_as_far_as_both_sides_are() -> None:
    table, index, foreign = (Key(5, 1663, n) for n in (1, 2, 3))
    buffers = {table: Buffers(10, 2, 1), foreign: Buffers(3)}
    files = {table: Counted(100 * 8192, 50 * 8192, 7 * 8192, "ok"), index: Counted(8192, None, None, "lost")}
    names = {table: ("db", "public.t", "table"), index: ("db", "public.t_pkey", "index")}
    rows = {r["relation"]: r for r in relation_rows(8192, buffers, files, names, lambda _: State())}
    assert (rows["public.t"]["cached_bytes"], rows["public.t"]["both_bytes"]) == (10 * 8192, 7 * 8192)
    assert rows["public.t"]["status"] == "ok" and rows["public.t"]["pinned_bytes"] == 8192
    index_row = rows["public.t_pkey"]
    assert index_row["status"] == "lost" and index_row["cached_bytes"] == 0
    assert index_row["page_cache_bytes"] is index_row["both_bytes"] is None
    assert rows["(others)"]["cached_bytes"] == 3 * 8192
    blind = relation_rows(8192, None, files, names, lambda _: State("not permitted"))
    assert {r["relation"]: r["status"] for r in blind} == {
        "public.t": "not permitted",
        "public.t_pkey": "lost",
    }
    assert all(r["cached_bytes"] is r["both_bytes"] is None for r in blind)


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=400))
def test_no_page_is_lost_between_rows_and_their_sum(counts: list[tuple[int, int]]) -> None:
    keys = [Key(5, 1663, n) for n in range(len(counts))]
    buffers = {k: Buffers(n) for k, (n, _) in zip(keys, counts, strict=True)}
    files = {k: Counted(80, n * 8, 0, "ok") for k, (_, n) in zip(keys, counts, strict=True)}
    names = {k: ("db", str(k.filenode), "table") for k in largest(buffers, files, 8)}
    rows = relation_rows(8, buffers, files, names, lambda _: State())
    assert sum(r["cached_bytes"] for r in rows) == 8 * sum(n for n, _ in counts)
    assert sum(r["page_cache_bytes"] for r in rows) == 8 * sum(n for _, n in counts)
    assert len(rows) <= 201


def test_shared_memory_by_node_of_a_process() -> None:
    maps = r"""7f3a00000000 default file=/dev/zero\040(deleted) dirty=66 N0=40 N1=26 kernelpagesize_kB=4
7f3b00000000 prefer:1 file=/anon_hugepage\040(deleted) huge dirty=3 N1=3 kernelpagesize_kB=2048
55a300000000 default file=/usr/bin/server mapped=10 N0=10 kernelpagesize_kB=4
7ffd00000000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4
"""
    assert shared_by_node(maps) == {0: 40 * 4 * KIB, 1: 26 * 4 * KIB + 3 * 2 * MIB}
