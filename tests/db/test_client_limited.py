"""A real load that the driver cannot carry: it is reported first, shown, and in no conclusion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.db.conftest import Bench

pytestmark = [pytest.mark.db, pytest.mark.alone]  # others at work would be the limit


@pytest.mark.parametrize("observed", [(), ("--no-observe",)], ids=["observed", "not observed"])
def test_one_thread_for_24_sessions_of_brief_calls_is_the_limit(
    bench: Bench, tmp_path: Path, observed: tuple[str, ...]
) -> None:
    """A nice value that leaves the driver last in the queue stands for a busy client."""
    script = tmp_path / "one.sql"
    script.write_text("select 1")
    words = ("--script", str(script), "--dsn", bench.dsn, "--sessions", "24", "--driver", "threads=1")
    words += ("--measure", "2s", "--settle", "300ms")
    done = bench.dbdyno("run", *words, *observed, under=("nice", "-n", "19"))
    assert done.returncode == 0, done.stderr
    shown = bench.last()
    (limited,) = (f for f in shown["findings"] if f["id"] == "client-limited")
    assert (limited["severity"], limited["unit"]) == ("invalid", "of session time") and limited[
        "value"
    ] > 0.25
    assert shown["summary"][0] == limited["claim"]
    assert "at 24 sessions" in limited["claim"] and "One driver core carries about" in limited["claim"]
    assert "Peak" not in " ".join(shown["summary"])
    assert [r["status"] for r in shown["rungs"]] == ["client"]
    assert not {"peak", "scales-to"} & {f["id"] for f in shown["findings"]}
