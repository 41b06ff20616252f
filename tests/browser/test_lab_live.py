"""The live page in a real browser: a real observation of a real server with pgbench beside it, and a run."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from chromium import Page
from test_report_page import TOO_WIDE
from tests.browser.conftest import Open, OpenLab
from tests.conftest import Servers
from tests.db.conftest import PROGRAM
from tests.db.pgbench import load
from tests.waiting import eventually
from tests.web.conftest import Started
from tests.web.running import observing

pytestmark = pytest.mark.browser
HEADLINE = "document.getElementById('live-headline').textContent"
PAINTED = """(function (canvas) {
  var all = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
  for (var i = 0; i < all.length; i += 4) {
    if (all[i + 3] === 255) seen.add(all[i] << 16 | all[i + 1] << 8 | all[i + 2]);
  }
  return seen.size;
})(document.querySelector('#live-chart canvas'))"""


def test_windows_appear_until_paused_and_the_end_leads_to_the_run(
    tmp_path: Path,
    start_lab: Started,
    open_lab: OpenLab,
    open_page: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dbdyno.web.channel.LOOK_S", 0.05)
    observed = observing(tmp_path / "store")
    observed.window()
    lab = start_lab()
    page = open_lab(lab, "/live", width=390)
    assert page.evaluate("location.pathname") == f"/live/{observed.record.id}"
    first = page.evaluate(HEADLINE)
    observed.window()
    page.wait(f"{HEADLINE} !== {first!r}")
    page.click("#live-pause")
    assert page.evaluate("document.getElementById('live-pause').textContent") == "Go on"
    paused = page.evaluate(HEADLINE)
    assert paused.startswith("Paused at ")
    assert page.evaluate("document.getElementById('live-status').textContent") == paused
    shown = page.evaluate("document.getElementById('states').textContent")
    observed.window()
    observed.window()
    assert page.evaluate("document.getElementById('states').textContent") == shown
    page.click("#live-pause")
    page.wait(f"document.getElementById('states').textContent !== {shown!r}")
    assert page.evaluate(HEADLINE).startswith("Windows of 10 s")
    said = page.evaluate("document.getElementById('live-status').textContent")
    assert said == "It goes on.", "a screen reader is not told each window"
    assert page.evaluate(PAINTED) > 3, "axes, CPU, CPU WAIT and waits"
    assert page.evaluate(TOO_WIDE) == []
    page.show(width=350, height=900, dark=False)
    cut = "[...document.querySelectorAll('caption span')]"
    cut += ".filter(s => s.offsetWidth > s.closest('.scroll').clientWidth)"
    page.wait("document.querySelector('#events .scroll').clientWidth < innerWidth * 0.75")  # ends at a column
    assert page.evaluate(f"{cut}.map(s => s.textContent)") == [], "titles are seen as a whole"
    saved = tmp_path / "saved.html"
    saved.write_text(lab.enter().ask(f"/live/{observed.record.id}?save=1").text)
    offline = open_page(saved)
    assert offline.errors() == []
    offline.wait("document.querySelector('#live-chart canvas') !== null")
    assert offline.evaluate(PAINTED) > 3 and "As of" in offline.evaluate(HEADLINE)
    observed.end()
    page.wait("document.querySelector('#live-headline a') !== null")
    assert (
        page.evaluate("document.querySelector('#live-headline a').pathname") == f"/run/{observed.record.id}"
    )
    assert page.errors() == []


@pytest.mark.db
def test_an_observation_of_a_real_server_beside_pgbench(
    servers: Servers, tmp_path: Path, start_lab: Started, open_lab: OpenLab
) -> None:
    dsn, script, store = servers.dsn(18), tmp_path / "load.sql", tmp_path / "store"
    script.write_text("select count(*) from generate_series(1, 2000);\n\\sleep 2 ms\n")
    command = [PROGRAM, "observe", "--dsn", dsn, "--store", str(store), "--window", "1s", "--quiet"]
    observe = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        with load(dsn, "-c", "2", "-f", str(script)):
            page = _open_when_running(start_lab, open_lab, store)
            page.wait("document.querySelector('#top-sql tbody tr') !== null", 120)
            assert page.evaluate("document.getElementById('top-sql').innerText.includes('generate_series')")
            first = page.evaluate(HEADLINE)
            page.wait(f"{HEADLINE} !== {first!r}")
            assert page.evaluate(PAINTED) > 3
            assert page.evaluate("document.getElementById('states').innerText.includes('idle')")
        observe.send_signal(signal.SIGINT)
        page.wait("document.querySelector('#live-headline a') !== null", 120)
        assert page.errors() == []
    finally:
        observe.kill()
        _, complaint = observe.communicate()
    assert "Traceback" not in complaint


def _open_when_running(start_lab: Started, open_lab: OpenLab, store: Path) -> Page:
    eventually(lambda: [*store.glob("*/environment.json")])
    return open_lab(start_lab(store), "/live")
