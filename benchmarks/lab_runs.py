"""The lab's list of 1,000 and of 10,000 runs: from the request to drawn rows in Chromium, and a poll."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SIZES = (1_000, 10_000)
WANTED_S = 0.3
"""For the first page of 1,000 runs."""
COPIED = ("manifest.json", "findings.json", "conclusions.json", "rungs.parquet")
DRAWN = """new MutationObserver(function (_, watch) {
  watch.disconnect();
  requestAnimationFrame(function () { setTimeout(function () { window.rowsDrawn = performance.now(); }); });
}).observe(document, {subtree: true, attributeFilter: ["data-rows"]});"""
"""Notes the time of the frame after the first rows, from the begin of the navigation."""


def main(count: int, _seconds: float) -> None:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("no Chromium here: apt-get install chromium", flush=True)
        return
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser"), str(ROOT / "tests" / "unit")]
    from chromium import Chromium  # type: ignore[import-not-found]  # of the tests
    from tests.stored_runs import derived_run

    with tempfile.TemporaryDirectory() as place:
        browser = Chromium(program, Path(place) / "profile")
        try:
            model = derived_run(Path(place) / "model")
            for size in SIZES:
                store = filled(Path(place) / f"store-{size}", model, size)
                print(f"{size:6,} runs: {measured(browser, store, max(3, count))}", flush=True)
        finally:
            browser.close()


def filled(store: Path, model: Path, size: int) -> Path:
    """Copies the JSON of a run, and the derived files that a list reads, under many ids."""
    document = json.loads((model / "run.json").read_text())
    store.mkdir(mode=0o700)
    for n in range(size):
        started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=7 * n)
        run = store / f"{started:%Y%m%d-%H%M%S}-lio-{n % 65536:04x}"
        (run / "derived").mkdir(parents=True)
        for name in ("plan.json", "environment.json", *(f"derived/{n}" for n in COPIED)):
            os.link(model / name, run / name)
        labels = {"name": f"night {n}" if n % 3 else "", "tags": ["nightly"] if n % 2 else [], "note": ""}
        own = {"id": run.name, "started": started.isoformat(), "ended": started.isoformat(), **labels}
        (run / "run.json").write_text(json.dumps(document | own))
    return store


def measured(browser: Any, store: Path, count: int) -> str:
    words = [sys.executable, "-m", "dbdyno", "web", "--listen", "0", "--store", str(store)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            entry = next(line.strip() for line in server.stdout if "http://" in line)
            page = browser.page(width=1280, height=900, dark=False)
            page._call("Page.addScriptToEvaluateOnNewDocument", source=DRAWN)
            begun = time.monotonic()
            page.open(entry)
            page.wait("window.rowsDrawn")
            first = time.monotonic() - begun
            times = [opened(page, entry.partition("?")[0]) for _ in range(count)]
            poll = page.evaluate(POLL)
            memory = next(
                line
                for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
                if "VmHWM" in line
            )
            page.close()
        finally:
            server.terminate()
    limit = f" (wanted <= {WANTED_S} s)" if len(list(store.iterdir())) < 2_000 else ""
    return (
        f"rows drawn after {statistics.median(times):.3f} s, at most {max(times):.3f} s of {count}{limit}; "
        f"the first time, without an index, {first:.2f} s; a poll without changes {poll:.0f} ms; "
        f"server at most {int(memory.split()[1]) / 1024:.0f} MiB"
    )


POLL = """(async function () {
  var tag = JSON.parse(document.getElementById("run-list").textContent).tag, times = [];
  for (var n = 0; n < 5; n++) {
    var begun = performance.now();
    await fetch("/runs.json", { headers: { "If-None-Match": '"' + tag + '"' } });
    times.push(performance.now() - begun);
  }
  return times.sort(function (a, b) { return a - b; })[2];
})()"""


def opened(page: Any, url: str) -> float:
    """Returns the seconds from the begin of the navigation to the frame with the rows."""
    page.evaluate("window.rowsDrawn = 0")
    page.open(url)
    page.wait("window.rowsDrawn")
    time.sleep(0.5)  # curves are asked for: they shall not disturb the next navigation
    return float(page.evaluate("window.rowsDrawn")) / 1e3
