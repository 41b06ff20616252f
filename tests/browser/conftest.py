"""A headless Chromium that opens a page of ours with the network cut, and what the page says of itself.

The probe is a script put into a copy of the page: it collects errors from the first moment on, waits until
the charts are drawn and writes what it found into the document, which Chromium prints.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))  # report_results

Open = Callable[..., dict[str, Any]]
_PROBE = (Path(__file__).parent / "probe.js").read_text("utf-8")


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("CI"):
        pytest.fail("no Chromium here: apt-get install chromium")
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    return found


@pytest.fixture
def open_page(chromium: str, tmp_path: Path) -> Open:
    """Opens a file; ``width`` in pixels, ``dark``: what the system prefers, ``act``: run once all is drawn."""

    def opened(
        page: Path, *, width: int = 1280, dark: bool = False, query: str = "", act: str = ""
    ) -> dict[str, Any]:
        copy = tmp_path / "probed.html"
        script = f"<script>{_PROBE.replace('/*ACT*/', act)}</script>"
        copy.write_text(page.read_text("utf-8").replace("<title>", f"{script}<title>", 1), "utf-8")
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        text = _dumped(
            chromium, f"{copy.as_uri()}{query}", tmp_path / "profile", f"--window-size={width},900", scheme
        )
        assert 'id="probe">' in text, text[-2000:]
        found: dict[str, Any] = json.loads(unescape(text.split('id="probe">', 1)[1].split("</pre>", 1)[0]))
        return found

    return opened


def _dumped(chromium: str, url: str, profile: Path, *more: str) -> str:
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", *more, url,
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout
