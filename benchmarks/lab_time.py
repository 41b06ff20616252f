"""Time travel in the lab: from the end of a gesture to the drawing, in headless Chromium.

An observation of 24 hours in windows of 10 s with 16 series, made from one window of the fake server, whose
figures are varied. 40 spans are selected by dragging; each is then zoomed to. The page's clock measures from
the end of the gesture to the painted chart, and to the painted tables of the span.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.fakery import WITH_ENGINES
from tests.stored_runs import busier, observation, observed_window

from dbdyno.model.schema.tables import conform
from dbdyno.store import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

WINDOWS, WINDOW_S, CLASSES, STATEMENTS, GESTURES = 8640, 10, 13, 30, 40
CHART_MS, TABLES_MS = 50, 300
_WATCH = """
(function () {
  window.times = { chart: [], tables: [], zoom: [] };
  function painted(since, into) {
    requestAnimationFrame(function () {
      var after = new MessageChannel();
      after.port1.onmessage = function () { into.push(performance.now() - since); };
      after.port2.postMessage(0);
    });
  }
  var since = null;
  addEventListener("pointerup", function () {
    since = performance.now();
    painted(since, times.chart);
  }, true);
  addEventListener("click", function (e) {
    if (e.target.id === "time-in") painted(performance.now(), times.zoom);
  }, true);
  new MutationObserver(function () {
    if (since !== null) painted(since, times.tables);
    since = null;
  }).observe(document.documentElement, { attributeFilter: ["data-shown"] });
})()
"""


def main(_count: int, _seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        began = time.monotonic()
        run = of_a_day(root / "store", observed_window(root / "first", WINDOW_S, sessions=16))
        print(f"made {WINDOWS} windows in {time.monotonic() - began:.0f} s", flush=True)
        with _lab(run) as url:
            times = _gestures(root, url, run)
    for name, limit in (("chart", CHART_MS), ("zoom", CHART_MS), ("tables", TABLES_MS)):
        p50, p95 = np.percentile(times[name], [50, 95])
        print(f"{name:7} {len(times[name])} times: p50 {p50:.0f} ms, p95 {p95:.0f} ms (at most {limit} ms)")


def of_a_day(root: Path, window: Run, count: int = WINDOWS) -> Run:
    """Returns a stored observation of ``count`` windows."""
    chance, wide = np.random.default_rng(1), dict[str, pl.DataFrame]()

    def change(table: str, frame: pl.DataFrame, _: int) -> pl.DataFrame:
        if table not in wide:
            wide[table] = _widened(table, frame)
        return busier(wide[table], pl.Series(chance.uniform(0.5, 1.5, wide[table].height)))

    return observation(root, window, [WINDOW_S * n for n in range(count)], change)


def _widened(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the table with more wait classes and statements than the fake server has."""
    label = {"ledger": "detail", "event_seconds": "name", "events": "wait_class"}.get(table)
    if label is not None:
        sleeping = frame.filter(pl.col(label).str.starts_with("IO"))
        if "who" in frame.columns:
            sleeping = sleeping.filter(pl.col("who") == "rung")
        more = [
            sleeping.with_columns(pl.col(label).str.replace("IO", f"Class{n}", literal=True))
            for n in range(1, CLASSES)
        ]
        return pl.concat([frame, *more])
    if table == "statements":
        return _statements(frame)
    return frame


def _statements(frame: pl.DataFrame) -> pl.DataFrame:
    head = frame.head(1)
    if head.is_empty():
        return frame
    each = [head.with_columns(query_id=pl.lit(1000 + n), rank=pl.lit(n + 1)) for n in range(STATEMENTS)]
    return conform("statements", pl.concat(each).cast({"query_id": pl.Int64, "rank": pl.Int64}))


@contextmanager
def _lab(run: Run) -> Iterator[str]:
    """Serves the store of the run, and yields the address that lets a browser in."""
    command = [sys.executable, "-m", "dbdyno", "web", "--listen", "0", "--store", str(run.path.parent)]
    around = {**os.environ, "PYTHONPATH": WITH_ENGINES, "PYTHONUNBUFFERED": "1"}
    lab = subprocess.Popen(command, env=around, stdout=subprocess.PIPE, text=True)
    try:
        assert lab.stdout is not None
        yield next(m[0] for line in lab.stdout if (m := re.search(r"http://\S+", line)))
    finally:
        lab.terminate()
        lab.wait()


def _gestures(root: Path, url: str, run: Run) -> dict[str, list[float]]:
    from chromium import Chromium  # type: ignore[import-not-found]

    program = next(p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p)
    browser = Chromium(program, root / "profile")
    try:
        page = browser.page(width=1280, height=900, dark=False)
        page.open(url)
        page.wait("location.search === ''")
        began = time.monotonic()
        page.open(f"{url.partition('/?')[0]}/time/{run.id}")
        page.wait("document.documentElement?.dataset.shown !== undefined")
        print(f"first page: {time.monotonic() - began:.1f} s", flush=True)
        page.evaluate(_WATCH)
        place = page.evaluate("document.querySelector('.u-over').getBoundingClientRect().toJSON()")
        chance = random.Random(2)
        for n in range(1, GESTURES + 1):
            _drag(page, place, sorted(chance.uniform(0.01, 0.99) for _ in range(2)))
            page.wait(f"times.tables.length === {n} && times.chart.length === {n}")
            page.evaluate("document.getElementById('time-in').click()")
            page.wait(f"times.zoom.length === {n}")
            page.evaluate("document.getElementById('time-out').click()")
        assert page.errors() == [], page.errors()
        times: dict[str, list[float]] = page.evaluate("times")
        return times
    finally:
        browser.close()


def _drag(page: Any, place: dict[str, float], ends: list[float]) -> None:
    y = place["y"] + place["height"] / 2
    first, last = (place["x"] + place["width"] * e for e in ends)
    page.drag(first, y, last, y)
