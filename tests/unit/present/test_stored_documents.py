"""Documents as they are kept in a store."""

from __future__ import annotations

from functools import cache

import pytest
from tests.unit import report_observation, report_results
from tests.unit.present.test_documents import DOCUMENT, documents
from tests.unit.shown import as_text

from dbdyno import present
from dbdyno.present.document.document import Chart, Document, Drawing, Strip, walk
from dbdyno.present.media import stored


@cache
def every_kind() -> dict[str, Document]:
    runs = {
        "run": report_results.results(report_results.REPEATED),
        "observation": report_observation.results(),
    }
    return {"by hand": DOCUMENT, **documents(), **{k: present.run_document(r) for k, r in runs.items()}}


@pytest.mark.parametrize(
    "kind", ["by hand", "regression", "machines", "comparison", "scaling", "run", "observation"]
)
def test_a_stored_document_shows_the_same_without_drawings(kind: str) -> None:
    shown = every_kind()[kind]
    back = stored.loaded(stored.dumped(shown))
    assert stored.dumped(back) == stored.dumped(shown)
    assert {b for b in walk(back.blocks) if isinstance(b, Chart | Drawing | Strip)} <= {Drawing("")}
    for width in (60, 200):
        assert as_text(back, width) == as_text(shown, width)


def test_a_stored_drawing_is_not_drawn() -> None:
    forged = stored.dumped(Document("t", [Drawing("")])).replace(b'"svg":""', b'"svg":"<script>"')
    assert b"script" in forged and stored.loaded(forged).blocks == [Drawing("")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"type":"Document","title":1,"blocks":[]}',
        '{"type":"Document","title":"t"}',
        '{"type":"Document","title":"t","blocks":[],"more":""}',
        '{"type":"Document","title":"t","blocks":[{"type":"Paragraph","text":"x","tone":"loud"}]}',
        '{"type":"Document","title":"t","blocks":[],"figures":[["name",["1",1e999,""],""]]}',
        '{"type":"Document","title":"t","blocks":' + "[" * 100_000,
    ],
)
def test_a_file_that_is_no_document_of_this_version_is_not_read(content: str) -> None:
    with pytest.raises(ValueError):
        stored.loaded(content.encode())
