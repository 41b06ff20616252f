"""Data in the database's cache, in the page cache, and with direct I/O: nothing is read from storage, and
copies take CPU time in the kernel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.db.conftest import Bench

pytestmark = pytest.mark.db

RECIPE = """
workload = "random-read"
sessions = "2"
measure = "1s"
settle = "200ms"
expect = "memory"
params = { blocks = 50, scale = 2048 }
variants.buffers.settings = { shared_buffers = "64MB" }
variants.pages.settings = { shared_buffers = "1MB" }
variants.direct.settings = { shared_buffers = "64MB", debug_io_direct = "data" }
variants.huge.settings = { shared_buffers = "100GB", huge_pages = "on" }
"""
LIO = 50 * 3  # an index of two levels, and the row's block
STRAY = 100  # bytes per logical read, of 8,192


def of_variants(document: dict[str, Any], name: str) -> dict[str, float]:
    variants = {w["cell"]: w["variant"] for w in document["windows"]}
    rows = [r for r in document["rates"] if r["name"] == name and r["scope"] == "rung"]
    return {variants[r["cell"]]: r["value"] for r in rows}


def kernel_ns(document: dict[str, Any], variant: str) -> float:
    """Returns CPU time of a logical read in the kernel."""
    rows = [
        r
        for r in document["ledger"]
        if r["variant"] == variant and r["scope"] == "rung" and r["account"] == "run.system"
    ]
    return float(sum(r["aas"] for r in rows)) * 1e9 / of_variants(document, "work_per_s")[variant]


def test_nothing_is_read_from_storage_and_the_copies_take_time_in_the_kernel(fresh_bench: Bench) -> None:
    recipe = fresh_bench.home / "place.toml"
    recipe.write_text(RECIPE.replace("100GB", "64MB"))
    done = fresh_bench.here("run", str(recipe))
    assert done.returncode == 0, done.stderr
    assert "not all is read" not in done.stderr  # the embedded server's own pg_prewarm
    document = fresh_bench.last()
    claims = {f["id"]: f["value"] for f in document["findings"]}
    # of valid measurements alone; on a busy machine few calls share a page of a catalog
    assert claims.keys() & {"memory-only", "read-from-storage", "driver-starved"}
    assert "storage-reads-unknown" not in claims and claims.get("read-from-storage", 0) < STRAY
    work = of_variants(document, "work_per_call")
    assert {"buffers", "pages"} <= work.keys() and set(work.values()) == {LIO}
    read = {v: n / LIO for v, n in of_variants(document, "read_calls_per_call").items()}
    assert read["buffers"] < 0.02 and 0.2 < read["pages"] < 0.5  # strays: a busy machine has few calls
    assert kernel_ns(document, "pages") > 3 * kernel_ns(document, "buffers")
    assert {r["cache"] for r in document["resets"]} == {"warm"}
    compared = (document["comparison"] or {"conclusions": ()})["conclusions"]
    placements = [
        c["said"] for c in compared if c["id"] == "cache-placement"
    ]  # none: the client was short of CPU
    for values in placements:
        assert values["cache"] in ("buffers", "direct") and values["pages"] == "pages"
        assert values["system"] > values["system_before"]
    recipe.write_text(RECIPE)
    refused = fresh_bench.here("run", str(recipe))
    assert refused.returncode == 2 and "would swap" in refused.stderr
    cleaned = fresh_bench.here("clean")
    assert cleaned.returncode == 0, cleaned.stderr
