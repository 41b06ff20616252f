"""Bundles the JavaScript for charts into the package, where wheels include it. `make build` runs it.

``python tools/bundle_charts.py`` writes Vega, Vega-Lite and vega-embed for reports, from vl-convert's copies,
and uPlot for long time axes, from the npm registry by npm.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

ASSETS = Path(__file__).parent.parent / "python" / "dbdyno" / "present" / "assets"
UPLOT = "1.6.32"
_UPLOT_SHA512 = "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
_UPLOT_FILES = {"uplot.js": "package/dist/uPlot.iife.min.js", "uplot.css": "package/dist/uPlot.min.css"}


def main() -> None:
    _vega()
    _uplot()


def _vega() -> None:
    path, bundler = ASSETS / "vega.js", f"vl-convert {version('vl-convert-python')}"
    head = f"/* Vega, Vega-Lite, vega-embed (BSD 3-Clause), bundled by {bundler} */\n"
    if _begins(path, head):
        return
    import vl_convert

    _write(path, head, vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _uplot() -> None:
    head = f"/* uPlot {UPLOT} (MIT), (c) Leon Sorokin */\n"
    if all(_begins(ASSETS / name, head) for name in _UPLOT_FILES):
        return
    if shutil.which("npm") is None:
        print("no npm here, which brings uPlot: dbdyno web will lack its charts over time", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as place:
        command = ["npm", "pack", "--silent", "--pack-destination", place, f"uplot@{UPLOT}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(place).glob("*.tgz")
        if base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() != _UPLOT_SHA512:
            sys.exit(f"uPlot {UPLOT} from npm is not what it was: its checksum differs")
        with tarfile.open(packed) as archive:
            for name, member in _UPLOT_FILES.items():
                content = archive.extractfile(member)
                assert content is not None
                _write(ASSETS / name, head, content.read().decode())


def _begins(path: Path, head: str) -> bool:
    return path.is_file() and path.read_text("utf-8").startswith(head)


def _write(path: Path, head: str, code: str) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(head + code.replace("</script", "<\\/script").replace("<!--", "<\\!--"), "utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    main()
