"""Runs recipes shortly on the embedded server, and makes the gallery: the page of each, and a picture of it.

``python tools/gallery.py`` makes all of :data:`SHOWN`, ``python tools/gallery.py limits phases`` these. Pages
go to docs/gallery/NAME.html, which the repository leaves out, since each has the code of the charts in it;
pictures to docs/gallery/NAME.png. Needs Chromium, and for all variants of ``limits`` root and PgBouncer. The
page of ``cpu-threads`` shows a path in HOME.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from chromium import Chromium  # noqa: E402

DBDYNO = ROOT / ".venv" / "bin" / "dbdyno"
PLACE = ROOT / "docs" / "gallery"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRAWN = "document.documentElement?.dataset.ready !== undefined"
BRIEF = ("--measure", "2s", "--settle", "500ms")
SHOWN: Mapping[str, Sequence[str]] = {
    "demo": ("--measure", "3s"),
    "settings": (*BRIEF, "--repeats", "5"),
    "limits": (*BRIEF, "--repeats", "5"),
    "validation-query": (*BRIEF, "--repeats", "5"),
    "phases": (),
    "cpu-threads": ("--measure", "2s", "--repeats", "3"),
}
"""Recipes, and the options that make them short."""
_TALLEST = 1500


def main(names: Sequence[str]) -> None:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("Chromium is not installed")
    if unknown := {*names} - {*SHOWN}:
        sys.exit(f"not in the gallery: {', '.join(sorted(unknown))}")
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        os.environ |= {"DBDYNO_STORE": f"{scratch}/runs", "DBDYNO_CONFIG": ""}
        browser = Chromium(program, folder / "profile")
        for name in names or SHOWN:
            page = PLACE / f"{name}.html"
            words = (DBDYNO, "run", "--recipe", name, *SHOWN[name], "--output", page, "--quiet")
            subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            picture(browser, page, page.with_suffix(".png"))
        browser.close()


def picture(browser: Chromium, html: Path, png: Path) -> None:
    page = browser.page(width=1100, height=_TALLEST, dark=False)
    page.open(html.as_uri())
    page.wait(DRAWN)
    png.write_bytes(page.window())
    page.close()
    shrink(png)
    print(f"{png.relative_to(ROOT)}: {png.stat().st_size / 1000:.0f} kB; {html.stat().st_size / 1e6:.1f} MB")


def shrink(png: Path) -> None:
    """Lets the picture have 64 colours, where the program for that is there: a third of its size."""
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--output", png, "64", png], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
