"""Room ``present``: from :class:`~dbdyno.model.results.Results` to documents, and these to a terminal, HTML,
Markdown; exports, JSON.

Pure but for the files it writes: no store, no engine, no driver. What is slow to load is loaded when it is
called for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from dbdyno.model.analyses import Machines, Scaling
    from dbdyno.model.comparison import Comparison, SampleComparison
    from dbdyno.model.results import Results
    from dbdyno.present.document import Document, Row
    from dbdyno.present.media.stored import dumped
    from dbdyno.present.media.stored import loaded as stored
    from dbdyno.present.media.text import Running
    from dbdyno.present.report import brief
    from dbdyno.present.report import document as run_document
    from dbdyno.present.topology import facts as topology_facts
    from dbdyno.present.topology import parsable as topology_parsable
    from dbdyno.present.topology import table as topology_table
    from dbdyno.present.topology_svg import write as write_topology_svg
    from dbdyno.present.topology_text import ascii_only
    from dbdyno.present.topology_text import picture as topology_picture


def write_report(results: Results, path: Path) -> Path:
    """The run's document as a file, see :func:`write`."""
    from dbdyno.present import report

    return write(report.document(results), path)


def summary(results: Results) -> RenderableType:
    """What ``dbdyno run`` and ``dbdyno show`` print at the end, as wide as the console."""
    from dbdyno.present import report

    return printed(report.brief(results))


def details(results: Results, name: str, cell: str | None = None) -> RenderableType:
    """``profile``, ``events``, ``microstates``, ``cross_check`` of a measurement, or ``findings``.

    Without ``cell``: of the top load, or of all windows of an observation. Raises UsageError where the run
    has no such cell.
    """
    from dbdyno.present import report
    from dbdyno.present.media.text import Printed

    return Printed(report.details(results, name, cell))


def running_rungs(work: str, width: int) -> tuple[Running, Callable[[Mapping[str, Any]], Row]]:
    """The table of rungs for lines that are printed one by one, and its row of a row of table ``rungs``."""
    from dbdyno.present import rungs
    from dbdyno.present.media.text import Running

    columns, row = rungs.running(work)
    return Running(columns, width), row


def document(results: Results) -> dict[str, Any]:
    """The run as JSON-ready data with stable keys (docs/json.md); NULL is ``None``."""
    from dbdyno.present import jsondoc

    return jsondoc.document(results)


def export(results: Results, raw_tables: Mapping[str, pl.DataFrame], to: str, path: Path) -> list[Path]:
    """The run's tables as csv, parquet (folders), xlsx or json (files); what was written."""
    from dbdyno.present import exports

    return exports.export(results, raw_tables, to, path)


def comparison_document(made: Comparison | SampleComparison) -> dict[str, Any]:
    """A comparison as JSON-ready data with stable keys (docs/json.md)."""
    from dbdyno.present import compare_json

    return compare_json.document(made)


def comparison(made: Comparison | None, machines: Sequence[Machines] = ()) -> Document:
    """A comparison, the machines behind it, or both."""
    from dbdyno.present import compare

    return compare.document(made, machines)


def samples(made: SampleComparison) -> Document:
    """Two files of numbers compared."""
    from dbdyno.present import compare_samples

    return compare_samples.document(made)


def printed(shown: Document) -> RenderableType:
    """A document for a terminal, as wide as its console."""
    from dbdyno.present.media.text import Printed

    return Printed(shown)


def write(shown: Document, path: Path) -> Path:
    """A document as a file: Markdown where ``path`` ends in .md, a workbook where it ends in .xlsx, else HTML
    that loads nothing. Raises StoreError where that cannot be written."""
    from dbdyno.present.exports import write_atomic

    if path.suffix == ".xlsx":
        from dbdyno.present.media import xlsx

        return write_atomic(path, xlsx.workbook(shown))
    from dbdyno.present.media import html, markdown

    page = markdown.page(shown) if path.suffix == ".md" else html.page(shown)
    return write_atomic(path, page.encode("utf-8"))


def machines_document(made: Comparison | None, machines: Sequence[Machines]) -> dict[str, Any]:
    """The comparison, with a key ``machines`` where there are some; these alone where it is ``None``."""
    from dbdyno.present import compare_json
    from dbdyno.present import machines as told

    document = {"format": told.FORMAT} if made is None else compare_json.document(made)
    return {**document, "machines": told.machines_json(machines)} if machines else document


def scaling_json(scalings: Sequence[Scaling]) -> dict[str, Any]:
    """What ladders say, as JSON-ready data with stable keys (docs/analyze.md)."""
    from dbdyno.present import scaling_record

    return scaling_record.document(scalings)


def scaling(scalings: Sequence[Scaling]) -> Document:
    """How ladders scale."""
    from dbdyno.present import scaling_document

    return scaling_document.document(scalings)


lazy(
    __name__,
    {
        "ascii_only": "dbdyno.present.topology_text",
        "brief": "dbdyno.present.report",
        "dumped": "dbdyno.present.media.stored",
        "run_document": "dbdyno.present.report:document",
        "stored": "dbdyno.present.media.stored:loaded",
        "topology_facts": "dbdyno.present.topology:facts",
        "topology_parsable": "dbdyno.present.topology:parsable",
        "topology_picture": "dbdyno.present.topology_text:picture",
        "topology_table": "dbdyno.present.topology:table",
        "write_topology_svg": "dbdyno.present.topology_svg:write",
    },
)
