"""Room ``report``: from :class:`~dbdyno.model.results.Results` to a terminal, an HTML file, exports, JSON.

Pure but for the files it writes: no store, no engine, no driver. ``terminal`` and ``exports`` are modules;
what is slow to load (Altair, XlsxWriter) is loaded when it is called for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dbdyno.model.results import Results


def write_html(results: Results, path: Path) -> Path:
    """One self-contained HTML file at ``path``. Raises StoreError, with a cure, where that cannot be written."""
    from dbdyno.report import html

    return html.write(results, path)


def document(results: Results) -> dict[str, Any]:
    """The run as JSON-ready data with stable keys (docs/json.md); NULL is ``None``."""
    from dbdyno.report import jsondoc

    return jsondoc.document(results)
