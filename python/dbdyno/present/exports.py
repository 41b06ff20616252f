"""Exports the tables of a run: csv and parquet (a folder, one file per table), xlsx, json, md; and
its figures for programs that follow them over builds.

NULL stays empty (csv, xlsx) or null (parquet, json): an unknown figure never becomes 0. In csv, text that
begins like a formula gets a leading apostrophe, because spreadsheets would execute it; xlsx marks it as
text. Control characters and marks of writing direction are made visible, except in parquet and json, which
hold the data as they are.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from dbdyno.model.errors import UsageError
from dbdyno.model.results.cpu_profile import LABELS
from dbdyno.model.results.results import Results
from dbdyno.model.text.spreadsheet import FORMULA_STARTS
from dbdyno.model.text.visible import visible
from dbdyno.present.document.document import Document
from dbdyno.present.document.files import guard, write_atomic
from dbdyno.present.figures import jsondoc


def write(shown: Document, path: Path, data: dict[str, Any] | None = None) -> Path:
    """Writes a document: Markdown if ``path`` ends in .md, a workbook if .xlsx, ``data`` if .json, else
    HTML.

    The HTML loads nothing. Raises StoreError if the file cannot be written.
    """
    if data is not None and path.suffix == ".json":
        return write_atomic(path, json.dumps(data, indent=1, default=str).encode() + b"\n")
    if path.suffix == ".xlsx":
        from dbdyno.present.media import xlsx

        return write_atomic(path, xlsx.workbook(shown))
    from dbdyno.present.media import html, markdown

    page = markdown.page(shown) if path.suffix == ".md" else html.page(shown)
    return write_atomic(path, page.encode("utf-8"))


KINDS = (
    *("csv", "xlsx", "parquet", "json", "md", "folded", "pprof", "firefox"),
    *("bmf", "github-benchmark", "junit", "openmetrics"),
)
FOLDERS = ("csv", "parquet", "github-benchmark")
"""Kinds that are several files in a folder."""
_PROFILES = ("folded", "pprof", "firefox")
ENDINGS: Mapping[str, str] = {
    "folded": "folded",
    "pprof": "pb.gz",
    "firefox": "firefox.json",
    "bmf": "bmf.json",
    "junit": "junit.xml",
    "openmetrics": "prom",
}
"""Endings of files that differ from their kind."""
Tables = Mapping[str, pl.DataFrame]
_FINDING = ("id", "severity", "subject", "claim", "value", "unit", "low", "high", "evidence", "cure", "cells")
_FINDINGS = {name: pl.Float64 if name in ("value", "low", "high") else pl.String for name in _FINDING}


def export(
    results: Results, raw_tables: Tables | None, to: str, path: Path, off_cpu: bool = False
) -> list[Path]:
    """Writes the run to ``path`` in the form ``to``, and returns the written files.

    ``path`` is a folder for csv and parquet, else a file. ``raw_tables`` have the rows of all cells with a
    column ``cell``; without them, json has no tables. ``off_cpu`` exports stacks of sleep instead of CPU
    time. Raises UsageError for an unknown form, StoreError if ``path`` cannot be written.
    """
    if to == "csv":
        return _folder(results, raw_tables, path, "csv", csv)
    if to == "parquet":
        return _folder(results, raw_tables, path, "parquet", _parquet)
    if to == "json":
        document = jsondoc.document(results)
        if raw_tables is not None:
            document["tables"] = {n: jsondoc.plain(t) for n, t in all_tables(results, raw_tables).items()}
        return [write_atomic(path, json.dumps(document, allow_nan=False).encode())]
    if to == "xlsx":
        from dbdyno.present import report
        from dbdyno.present.media import xlsx

        return [write_atomic(path, xlsx.workbook(report.document(results), all_tables(results, raw_tables)))]
    if to == "md":
        from dbdyno.present import report
        from dbdyno.present.media import markdown

        return [write_atomic(path, markdown.page(report.document(results)).encode())]
    if to in _PROFILES:
        return [write_atomic(path, _profile(results, to, off_cpu))]
    if to in ("bmf", "github-benchmark", "junit", "openmetrics"):
        return _for_builds(results, to, path)
    raise UsageError(f"unknown export format {to!r}", f"choose one of {', '.join(KINDS)}")


def _for_builds(results: Results, to: str, path: Path) -> list[Path]:
    """Writes figures for a program that follows them over builds. Raises UsageError if no load is usable."""
    from dbdyno.present import ci_formats, junit

    if to == "github-benchmark":
        files = ci_formats.github_benchmark(results)
        _make_folder(path, to, "a direction")
        return [write_atomic(path / name, content) for name, content in files.items()]
    forms = {"bmf": ci_formats.bmf, "junit": junit.of_run, "openmetrics": ci_formats.openmetrics}
    return [write_atomic(path, forms[to](results))]


def _profile(results: Results, to: str, off_cpu: bool) -> bytes:
    """Returns stacks of the top load, or of all windows of an observation. Raises UsageError without a
    profile."""
    from dbdyno.present.charts import flame
    from dbdyno.present.run import cpu_profile, profile_exports

    sampled = cpu_profile.SLEEP if off_cpu else cpu_profile.CPU
    pick = cpu_profile.pick_of(results, sampled=sampled)
    apart = LABELS if to == "pprof" else ()
    rows = flame.stacks(results, pick, apart=apart, tables=(sampled.table, sampled.stacks))
    if to == "folded":
        return flame.folded(rows).encode()
    same = (pl.col("sessions") == pick.rung[2]) & pl.col("rate_per_s").eq_missing(pl.lit(pick.rate_per_s))
    wall_s = float(results.tables["windows"].filter(same)["wall_s"].sum())
    start_s = results.info.started.timestamp()
    if to == "pprof":
        return profile_exports.pprof(rows, wall_s, round(start_s * 1e9), "sleep" if off_cpu else "cpu")
    return profile_exports.firefox(rows, f"dbdyno {results.info.id}", wall_s, start_s * 1e3)


def all_tables(results: Results, raw_tables: Tables | None) -> dict[str, pl.DataFrame]:
    """Returns derived tables, findings, and raw tables whose name no derived table has."""
    findings = pl.DataFrame(
        [{**jsondoc.finding(f), "cells": " ".join(f.cells)} for f in results.findings] or None,
        schema=_FINDINGS,
    )
    raw = {n: t for n, t in (raw_tables or {}).items() if n not in results.tables}
    return {**{n: results.whole(n) for n in results.tables}, "findings": findings, **raw}


def _folder(
    results: Results,
    raw_tables: Tables | None,
    path: Path,
    ending: str,
    content: Callable[[pl.DataFrame], bytes],
) -> list[Path]:
    _make_folder(path, ending, "a table")
    tables = all_tables(results, raw_tables)
    written = [write_atomic(path / f"{name}.{ending}", content(table)) for name, table in tables.items()]
    document = json.dumps(jsondoc.document(results), indent=1, allow_nan=False).encode()
    return [*written, write_atomic(path / "run.json", document)]


def _make_folder(path: Path, kind: str, each: str) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file", f"name a folder: {kind} writes one file {each}")
    if not path.parent.exists():
        raise UsageError(
            f"no directory {path.parent}", f"make it first: mkdir -p {shlex.quote(str(path.parent))}"
        )
    with guard(path):
        path.mkdir(exist_ok=True)


def csv(table: pl.DataFrame, *, heads: bool = True) -> bytes:
    """Returns the rows as CSV that a spreadsheet can open: no text is a formula."""
    names = [n for n, t in table.schema.items() if t == pl.String]
    shown = table.with_columns(_visible(table[n]) for n in names)
    safe = shown.with_columns(
        pl.when(pl.any_horizontal([pl.col(n).str.starts_with(s) for s in FORMULA_STARTS]))
        .then(pl.concat_str(pl.lit("'"), pl.col(n)))
        .otherwise(pl.col(n))
        .alias(n)
        for n in names
    )
    return safe.write_csv(quote_style="necessary", include_header=heads).encode()


def _visible(texts: pl.Series) -> pl.Series:
    """Makes control characters and marks of writing direction visible."""
    changed = {t: v for t in texts.unique() if t is not None and (v := visible(t)) != t}
    return texts.replace(changed) if changed else texts


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
