"""Bundles the JavaScript for charts in reports (Vega, Vega-Lite, vega-embed) from vl-convert's copies.

``python tools/bundle_charts.py`` writes the bundle into the package, where wheels include it. `make build`
runs it.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

PATH = Path(__file__).parent.parent / "python" / "dbdyno" / "present" / "assets" / "vega.js"


def main() -> None:
    bundler = f"vl-convert {version('vl-convert-python')}"
    head = f"/* Vega, Vega-Lite, vega-embed (BSD 3-Clause), bundled by {bundler} */\n"
    if PATH.is_file() and PATH.read_text("utf-8").startswith(head):
        return
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    temporary = PATH.with_name(f".{PATH.name}-{os.getpid()}")
    temporary.write_text(head + bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"), "utf-8")
    temporary.replace(PATH)


if __name__ == "__main__":
    main()
