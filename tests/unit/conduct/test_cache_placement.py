"""Where data are cached: sizes from the memory, plans that do not fit, reads from storage, claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from tests.unit import report_results
from tests.unit.compare_runs import noisy

from dbdyno import conduct
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.counting import from_storage
from dbdyno.conduct.measure import memory_room
from dbdyno.engines.postgres.presence import Presence
from dbdyno.engines.postgres.settings.check import _huge_pages
from dbdyno.engines.postgres.storage_reads import StorageReads
from dbdyno.kernel.machine import HERE
from dbdyno.model.errors import NotAvailable, UsageError
from dbdyno.model.plan.plan import Plan, Variant
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.observe.free_memory import Free, free_memory
from dbdyno.plan import parse_recipe, resolve
from dbdyno.plan.memory_shares import share_bytes

MB, GB = 1 << 20, 1 << 30
RANDOM = conduct.workloads()["random-read"]


def plan_of(memory_bytes: int | None, **changes: Any) -> Plan:
    experiment = conduct.recipes()["cache-placement"].model_copy(update=changes)
    return resolve(experiment, RANDOM, 2, "", memory_bytes=memory_bytes)


# -- sizes of a recipe --


@pytest.mark.parametrize(
    ("memory", "buffers", "data_mb"),
    [(2 * GB, "81MB", 40), (16 * GB, "512MB", 256), (1024 * GB, "512MB", 256)],
)
def test_sizes_of_data_and_buffers_follow_the_memory(memory: int, buffers: str, data_mb: int) -> None:
    """Of 2 GiB 4 % are 81 MiB, and 2 % are 40 MiB: 5,174 rows of 8,300 bytes."""
    plan = plan_of(memory)
    large = {v.settings["shared_buffers"] for v in plan.variants if not v.name.startswith("pages")}
    assert large == {buffers}
    (scale,) = {v.params["scale"] for v in plan.variants}
    assert isinstance(scale, int) and scale * 8_300 // MB in (data_mb - 1, data_mb)
    assert {v.params["blocks"] for v in plan.variants} == {1, 500}
    assert {c.sessions for c in plan.cells} == {100}
    reasons = {c.name: c.reason for c in plan.choices}
    assert "% of memory" in reasons["scale"] and "% of memory" in reasons["shared_buffers"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("25% of memory", 256 * MB), ("50 % of memory, at most 100MB", 100 * MB), ("0.5% of memory", GB // 200)],
)
def test_a_share_of_the_memory_is_a_size(text: str, size: int) -> None:
    assert share_bytes("x", text, GB) == size


@pytest.mark.parametrize("text", ["25MB", 3, True, "memory"])
def test_a_value_that_is_no_share_of_memory_is_left_alone(text: str | int) -> None:
    assert share_bytes("x", text, GB) is None


@pytest.mark.parametrize(
    "text", ["a bit of memory", "0% of memory", "101% of memory", "5% of memory, at most 3"]
)
def test_a_share_of_memory_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a share of the memory"):
        share_bytes("x", text, GB)


def test_a_share_of_an_unknown_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="not known") as e:
        plan_of(None)
    assert e.value.cure == "write a size"
    recipe = parse_recipe('workload = "random-read"\nparams = { blocks = "1% of memory" }', "x")
    with pytest.raises(UsageError, match="its size in memory is not known"):
        resolve(recipe, RANDOM, 2, "", memory_bytes=GB)


# -- what is free --


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


MEMINFO = "MemTotal:  16777216 kB\nMemFree:  1048576 kB\nMemAvailable:  8388608 kB\n"
V2 = {
    "proc/self/cgroup": "0::/a/b\n",
    "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/a/cgroup.controllers": "cpu memory",
    "sys/fs/cgroup/a/memory.max": f"{4 * GB}",
    "sys/fs/cgroup/a/memory.current": f"{3 * GB}",
    "sys/fs/cgroup/a/memory.stat": f"anon {2 * GB}\ninactive_file {512 * MB}\nactive_file {256 * MB}\n",
    "sys/fs/cgroup/a/b/memory.max": "max",
    "sys/fs/cgroup/a/b/memory.current": f"{GB}",
}
V1 = {
    "proc/self/cgroup": "4:memory:/a\n",
    "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{2 * GB}",
    "sys/fs/cgroup/memory/a/memory.usage_in_bytes": f"{GB}",
    "sys/fs/cgroup/memory/a/memory.stat": f"total_inactive_file {128 * MB}\ntotal_active_file {128 * MB}\n",
}


@pytest.mark.parametrize(
    ("groups", "free"), [({}, 8 * GB), (V2, GB + 768 * MB), (V1, GB + 256 * MB)], ids=["none", "v2", "v1"]
)
def test_free_memory_is_the_least_of_machine_and_control_groups(
    tmp_path: Path, groups: Mapping[str, str], free: int
) -> None:
    memory = free_memory(None, write_tree(tmp_path, {"proc/meminfo": MEMINFO, **groups}))
    assert memory is not None and memory.bytes == free
    assert memory.where == "MemAvailable" if not groups else memory.where.startswith("limit of ")


def test_without_meminfo_nothing_is_known(tmp_path: Path) -> None:
    assert free_memory(None, tmp_path) is None


def server(cache_bytes: int | None, *, here: bool = True) -> Any:
    facts = SimpleNamespace(here=here, main_pid=None)
    sizes = SimpleNamespace(cache_bytes=lambda _settings: cache_bytes)
    return SimpleNamespace(facts=lambda: facts, resetting=sizes, world=None, machine=HERE)


def test_a_plan_that_would_swap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 MiB of cache, 256 MiB of data and 100 sessions of 10 MiB are 1,768 MiB."""
    plan = plan_of(16 * GB)
    free = {"bytes": 1_700 * MB}
    monkeypatch.setattr(
        memory_room.observe, "free_memory", lambda _pid, _root: Free(free["bytes"], "limit of /a")
    )
    with pytest.raises(NotAvailable, match="would swap") as e:
        memory_room.check_room(server(512 * MB), plan, RANDOM)
    assert "limit of /a" in e.value.message and "100 sessions" in e.value.message
    assert "--sessions" in (e.value.cure or "") and "--param scale=" in (e.value.cure or "")
    memory_room.check_room(server(512 * MB, here=False), plan, RANDOM)
    free["bytes"] = 1_800 * MB
    memory_room.check_room(server(512 * MB), plan, RANDOM)
    monkeypatch.setattr(memory_room.observe, "free_memory", lambda _pid, _root: None)
    memory_room.check_room(server(512 * MB), plan, RANDOM)


def test_a_cache_that_would_swap_names_its_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_room.observe, "free_memory", lambda _pid, _root: Free(8 * GB, "MemAvailable"))
    plan = plan_of(16 * GB)
    caches = {"small": "1", "large": "900", "bare": ""}
    variants = [
        plan.variants[0].model_copy(update={"name": n, "settings": {"gb": gb} if gb else {}})
        for n, gb in caches.items()
    ]
    plan = plan.model_copy(update={"variants": tuple(variants)})
    one = server(None)
    one.resetting.cache_bytes = lambda settings: int(settings["gb"]) * GB
    with pytest.raises(NotAvailable, match=r"^variant large: a cache of 900 GiB"):
        memory_room.check_room(one, plan, RANDOM)


def test_tables_of_their_own_count_once_a_session() -> None:
    one, own = (
        memory_room.data_bytes(plan_of(16 * GB, params={"scale": 1_000, "tables": tables}), RANDOM)
        for tables in ("shared", "own")
    )
    assert (one, own) == (8_300_000, 830_000_000)


@pytest.mark.parametrize(
    ("meminfo", "pages"),
    [
        ("HugePages_Total: 100\nHugePages_Free:    64\nHugepagesize:       2048 kB\n", (64, 2 * MB)),
        ("MemTotal: 1 kB\n", (0, 0)),
    ],
)
def test_free_huge_pages_are_counted_with_their_size(meminfo: str, pages: tuple[int, int]) -> None:
    assert _huge_pages(meminfo) == pages


# -- reads from storage --

SEEN = Presence(True, "", 11, 10)


def write_processes(root: Path, **reads: tuple[int, int]) -> None:
    """Writes bytes read from storage and read calls by process (``p11``); the first is the main process."""
    ids = [name.removeprefix("p") for name in reads]
    files = {
        f"proc/{i}/io": f"rchar: 9\nsyscr: {c}\nread_bytes: {b}\n"
        for i, (b, c) in zip(ids, reads.values(), strict=True)
    }
    write_tree(root, {**files, f"proc/{ids[0]}/task/{ids[0]}/children": " ".join(ids[1:])})


def values(reads: StorageReads, presence: Presence = SEEN) -> dict[str, tuple[float | None, str]]:
    lines = reads.rows(presence, "t0", count().__next__)
    return {r["name"]: (r["value"], r["status"]) for r in lines}


def test_reads_of_all_processes_only_grow(tmp_path: Path) -> None:
    reads = StorageReads(tmp_path)
    write_processes(tmp_path, p10=(100, 1), p11=(4_096, 7), p12=(8_192, 2))
    assert values(reads) == {"storage_read_bytes": (12_388, "ok"), "read_calls": (10, "ok")}
    write_processes(tmp_path, p10=(100, 1), p11=(8_192, 9))  # 12 has ended: what it read stays
    assert values(reads) == {"storage_read_bytes": (16_484, "ok"), "read_calls": (12, "ok")}
    write_processes(tmp_path, p10=(100, 1), p11=(0, 3))  # another process of that number
    assert values(reads) == {"storage_read_bytes": (16_484, "ok"), "read_calls": (15, "ok")}
    assert reads.rows(SEEN, "start", count().__next__) == []


def test_reads_from_storage_that_cannot_be_had_have_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Presence(False, "", None, None, "not here")
    assert set(values(StorageReads(tmp_path), away).values()) == {(None, "not here")}
    assert set(values(StorageReads(tmp_path)).values()) == {(None, "not supported")}
    reads = StorageReads(tmp_path)

    def refuse(_pid: int) -> None:
        raise PermissionError

    monkeypatch.setattr(reads, "_io", refuse)
    assert set(values(reads).values()) == {(None, "not permitted")}


# -- claims --

VARIANTS = ("buffers", "pages", "buffers-rows", "pages-rows")
WORK = report_results.WORK_PER_CALL


def cell_number(cell: str) -> int:
    """Returns the repeat of a cell; figures of repeats differ a little by it."""
    return int(cell.rpartition("r")[2])


def results_of_variants(storage: float | None = 0.0, limited: bool = False) -> Results:
    """Four variants of two loads at 8 sessions, 5 repeats; each is slower than the one before it by 20 % of
    the first, so the second pair has 0.4 / 0.6 of the throughput."""
    results = noisy(report_results.World(rungs=(8,), repeats=5, variants=VARIANTS), spread=0.005, drift=0.01)
    more = []
    for cell, variant in results.tables["windows"].select("cell", "variant").rows():
        requests = WORK / 3 if variant.startswith("pages") else 0.0
        figures = {"read_requests_per_call": requests, "read_calls_per_call": requests}
        figures |= {"storage_read_bytes_per_call": storage, "calls": 100.0, "work_per_call": WORK}
        figures |= {
            "cpu_per_work_ns": 1_500.0 + cell_number(cell) if requests else 1_400.0 + cell_number(cell)
        }
        if limited and not variant.endswith("rows"):
            figures |= {"client_limits": 1.0}
        like = (
            results.tables["rates"]
            .filter((pl.col("cell") == cell) & (pl.col("scope") == "rung"))
            .row(0, named=True)
        )
        more += [like | {"name": n, "value": v, "unit": "", "status": "ok"} for n, v in figures.items()]
    added = [r["name"] for r in more]
    other_rates = results.tables["rates"].filter(~(pl.col("name").is_in(added) & (pl.col("scope") == "rung")))
    tables = {**results.tables, "rates": pl.concat([other_rates, rows("rates", more)])}
    variants = tuple(Variant(name=v, params={"blocks": 500 if v.endswith("rows") else 1}) for v in VARIANTS)
    experiment = results.plan.experiment.model_copy(update={"expect": "memory", "baseline": "buffers-rows"})
    plan = results.plan.model_copy(update={"variants": variants, "experiment": experiment})
    return replace(results, plan=plan, tables=tables)


def placements(results: Results) -> list[Claim]:
    return [c for c in compare_variants(results).conclusions if c.id.startswith("cache-placement")]


def test_the_place_matters_for_one_load_and_hardly_for_the_other() -> None:
    """0.8 of the throughput is the limit: the pairs have 0.8 and 0.67, with noise of half a percent."""
    which, calls, batch = placements(results_of_variants())
    assert (calls.slots["pages"], calls.slots["cache"], calls.slots["ratio"]) == (
        "pages",
        "buffers",
        pytest.approx(0.8, rel=0.02),
    )
    assert batch.case == "matters" and batch.slots["ratio"] == pytest.approx(2 / 3, rel=0.02)
    assert batch.value is not None and batch.value.low is not None and batch.value.low < 2 / 3 < 0.7
    assert batch.slots["load"] == "blocks=500, 8 sessions"
    assert batch.slots["calls"] == pytest.approx(1 / 3)
    assert which.case == "matters"
    assert re.search(r"blocks=500 \(0\.6\d+ of the throughput\)", str(which.slots["matters"]))


def test_pages_in_both_caches_and_page_tables_are_named_if_known() -> None:
    results = results_of_variants()
    plain = placements(results)[2]
    assert "data_both_bytes_before" not in plain.slots
    figures = [
        {
            "cell": c,
            "workload": "lio",
            "variant": v,
            "sessions": 8,
            "repeat": 1,
            "phase": "end",
            "key": key,
            "value": size * (2 if v.startswith("pages") else 1),
            "status": "ok",
        }
        for c, v in results.tables["windows"].select("cell", "variant").rows()
        for key, size in (("data_both_bytes", 8 * MB), ("page_tables_bytes", 100 * MB))
    ]
    known = replace(results, tables={**results.tables, "memory_figures": rows("memory_figures", figures)})
    claim = placements(known)[2]
    assert (claim.slots["cache"], claim.slots["pages"]) == ("buffers-rows", "pages-rows")
    sizes = {"data_both_bytes": (8 * MB, 16 * MB), "page_tables_bytes": (100 * MB, 200 * MB)}
    for name, ends in sizes.items():
        assert (claim.slots[f"{name}_before"], claim.slots[f"{name}_after"]) == ends
    assert claim.text.startswith(plain.text) and len(claim.text) > len(plain.text)


def test_placement_is_not_claimed_with_reads_from_storage_or_unknown_ones() -> None:
    assert not placements(results_of_variants(storage=None))
    assert not placements(results_of_variants(storage=9 * WORK))
    assert placements(results_of_variants(storage=7 * WORK))


def test_the_servers_cpu_time_is_compared_if_the_client_limits() -> None:
    _, batch, calls = placements(results_of_variants(limited=True))
    assert batch.slots["load"].startswith("blocks=500")
    assert calls.case == "little-cpu"
    assert calls.slots["ratio"] == pytest.approx(1_503 / 1_403)
    assert calls.value is not None and calls.value.unit == "of the server's CPU time"


@pytest.mark.parametrize(
    ("storage", "id", "severity"),
    [
        (0.0, "memory-only", "good"),
        (7 * WORK, "memory-only", "good"),
        (9 * WORK, "read-from-storage", "warning"),
        (None, "storage-reads-unknown", "warning"),
    ],
)
def test_reads_from_storage_in_a_test_of_caches_are_a_claim(
    storage: float | None, id: str, severity: str
) -> None:
    results = results_of_variants(storage=storage)
    case = Case(results.plan, results.environment, results.tables, results.info.workloads)
    (claim,) = from_storage(case)
    assert (claim.id, claim.severity) == (id, severity)
    plain = results.plan.model_copy(
        update={"experiment": results.plan.experiment.model_copy(update={"expect": None})}
    )
    assert not list(from_storage(Case(plain, results.environment, results.tables, results.info.workloads)))
