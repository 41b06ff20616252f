"""Writes the table of docs/metrics.md from the records of metrics. Run it after changing a record."""

from __future__ import annotations

from pathlib import Path

from dbdyno.present.metrics.records import METRICS, Metric

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics: written by tools/metrics_doc.py -->\n", "<!-- end of metrics -->\n"
_HEAD = "| metric | kind | labels | is | from |\n|---|---|---|---|---|\n"


def table() -> str:
    return _HEAD + "".join(map(_row, METRICS))


def _row(metric: Metric) -> str:
    name = metric.name if metric.kind == "histogram" else metric.samples[0]
    source = f"`{metric.source}`" if metric.source else ""
    return f"| `{name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} | {source} |\n"


def render(text: str) -> str:
    """Returns the page with the present table between the marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
