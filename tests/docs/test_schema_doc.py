"""docs/schema.md says what the code's schema says."""

from __future__ import annotations

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "schema_doc.py"


def test_the_schema_document_is_up_to_date() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["PATH"].read_text(encoding="utf-8") == tool["render"](), "run: python tools/schema_doc.py"
