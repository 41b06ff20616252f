"""docs/schema.md and docs/snapshots.md agree with the code."""

from __future__ import annotations

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "schema_doc.py"


def test_the_schema_document_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["PATH"].read_text(encoding="utf-8") == tool["render"](), "run: python tools/schema_doc.py"


def test_the_page_of_options_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL.with_name("options_doc.py")))
    assert tool["PATH"].read_text(encoding="utf-8") == tool["render"](), "run: python tools/options_doc.py"


def test_the_sources_of_snapshots_are_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL.with_name("snapshot_sources.py")))
    page = tool["PATH"].read_text(encoding="utf-8")
    assert page == tool["render"](page), "run: python tools/snapshot_sources.py"
    for table in tool["TABLES"].values():
        assert all(f"| `{column.name}` | " in page for column in table.columns)
    assert "| `` |" not in page


def test_the_table_of_checks_is_that_of_the_registries() -> None:
    tool = runpy.run_path(str(TOOL.with_name("checks_doc.py")))
    page = tool["PAGE"].read_text(encoding="utf-8")
    assert page == tool["render"](page), "run: python tools/checks_doc.py"


def test_the_table_of_metrics_is_that_of_their_records() -> None:
    tool = runpy.run_path(str(TOOL.with_name("metrics_doc.py")))
    page = tool["PAGE"].read_text(encoding="utf-8")
    assert page == tool["render"](page), "run: python tools/metrics_doc.py"


def test_the_glossary_has_the_words_of_explain() -> None:
    tool = runpy.run_path(str(TOOL.with_name("glossary_doc.py")))
    page = tool["PAGE"].read_text(encoding="utf-8")
    assert page == tool["render"](page), "run: python tools/glossary_doc.py"
    assert all(word.group and word.example for word in tool["words"]())
