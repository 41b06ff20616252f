"""Makes docs/scaling.png and docs/compare.png anew, the first chart of a page each, and docs/lab.png.

``python tools/pictures.py [RUN]`` compares the variants of a stored run. Without one it runs a recipe for
two minutes, in a store of its own. For the lab, it observes a load of more and more sessions for 90 s.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from chromium import Chromium  # noqa: E402

DBDYNO = ROOT / ".venv" / "bin" / "dbdyno"
LADDER = "sessions,tps\n1,955\n2,1879\n4,3549\n8,6531\n12,8647\n16,9897\n24,12089\n32,12074\n"
RECIPE = """# as in docs/compare.md
workload = "random-read"
sessions = "1"
measure = "2s"
settle = "500ms"
repeats = 6
[params]
blocks = 1
[variants.prepared]
[variants.prepared-again]
[variants.extended]
driver = { protocol = "extended" }
[variants.simple]
driver = { protocol = "simple" }
"""
DRAWN = "document.documentElement?.dataset.ready !== undefined"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOAD = ("run", "order-entry", "--sessions", "1,2,4,8,16", "--measure", "12s", "--store", "loads")


def main(run: str | None) -> None:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("Chromium is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "ladder.csv").write_text(LADDER)
        dbdyno(folder, "analyze", "ladder.csv", "-o", "scaling.html")
        if run is None:
            os.environ["DBDYNO_STORE"] = str(folder / "runs")
            (folder / "protocols.toml").write_text(RECIPE)
            dbdyno(folder, "run", "protocols.toml")
        dbdyno(folder, "compare", run or "last", "-o", "compare.html")
        browser = Chromium(program, folder / "profile")
        for name, chart in (("scaling", "figure.chart"), ("compare", "section svg")):
            picture(browser, folder / f"{name}.html", chart, ROOT / "docs" / f"{name}.png")
        lab(browser, folder)
        browser.close()


def dbdyno(folder: Path, *words: str) -> None:
    subprocess.run([DBDYNO, "--quiet", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def lab(browser: Chromium, folder: Path) -> None:
    """Makes a picture of an observation over time, with its page's links."""
    os.environ["DBDYNO_STORE"] = str(folder / "observed")
    dbdyno(folder, "server", "start")
    with subprocess.Popen([DBDYNO, "--quiet", *LOAD], cwd=folder, stdout=subprocess.DEVNULL) as load:
        dbdyno(folder, "observe", "--for", "90s", "--window", "2s")
        load.wait()
    command = [DBDYNO, "web", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        address = server.stdout.readline().strip()
        page = browser.page(width=1280, height=900, dark=False)
        page.open(address)
        page.wait(DRAWN)
        (run,) = (folder / "observed").glob("*-*")
        page.open(f"{address.partition('/?')[0]}/time/{run.name}")
        page.wait(DRAWN)
        page.wait("document.querySelector('.u-over')")
        (ROOT / "docs" / "lab.png").write_bytes(page.window())
        server.send_signal(signal.SIGINT)
    print("docs/lab.png")


def picture(browser: Chromium, html: Path, chart: str, png: Path) -> None:
    page = browser.page(width=1100, height=900, dark=False)
    page.open(html.as_uri())
    page.wait(DRAWN)
    png.write_bytes(page.picture(chart))
    page.close()
    print(png.relative_to(ROOT))


if __name__ == "__main__":
    main(*sys.argv[1:2] or [None])
