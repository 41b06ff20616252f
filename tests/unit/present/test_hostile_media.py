"""Text from outside in every place of a document: no medium hands on what steers or misleads its reader."""

from __future__ import annotations

import html
import io
import json
import re
import zipfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.unit import report_results

from dbdyno import present
from dbdyno.model.text.visible import one_line, visible, visible_json
from dbdyno.present import report
from dbdyno.present.charts import flame
from dbdyno.present.document.document import (
    Block,
    Chart,
    Choice,
    Document,
    Flame,
    Option,
    Section,
    Statement,
    Statements,
    Strip,
    Table,
    Verbatim,
    facts,
    walk,
)
from dbdyno.present.document.page import el
from dbdyno.present.media import html as page
from dbdyno.present.media import markdown, stored, text, xlsx

DANGEROUS = [
    *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0),  # controls but tab and line feed
    0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), 0x2060, 0xFEFF,
    *range(0x2066, 0x206A), 0xFDD0, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF, 0xE0001, 0xE0041, 0xE0100,
    0xD800, 0xDCFF, 0xDFFF,
]  # fmt: skip
HOSTILE = "x".join(map(chr, DANGEROUS)) + "a\u200db </script><img src=x> &#x202e; `|` [l](https://e.org)"
STORED = HOSTILE.encode(errors="replace").decode()
"""The hostile text as it can be in a table."""
FOUND = re.compile(f"[{''.join(map(chr, DANGEROUS))}]|(?<=[ -~])[\u200c\u200d]")
LEGITIMATE = (
    "Größe", "漢字", "العربية", "עברית", "می\u200cخواهم", "क्\u200dष", "é e\u0301", "👩\u200d👩\u200d👧",
    "❤\ufe0f", "辻\U000e0100", "a\tb\nc", "± µ ∞ · €",
)  # fmt: skip
_OWN = frozenset([
    "id", "target", "tone", "side", "colour", "colours", "mark", "marks", "svg", "bar", "key", "links",
    "root",
])  # fmt: skip
"""Fields that hold no text from outside."""


def with_hostile_texts(value: Any) -> Any:
    """``value`` with the hostile text behind each of its texts."""
    if isinstance(value, str):
        return value + HOSTILE
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = [f.name for f in fields(value)] if is_dataclass(value) else value._fields
        changed = {n: with_hostile_texts(getattr(value, n)) for n in names if n not in _OWN}
        if isinstance(value, Chart):
            changed["spec"] = value.spec | {"datasets": with_hostile_texts(value.spec["datasets"])}
        return replace(value, **changed) if is_dataclass(value) else value._replace(**changed)  # type: ignore[type-var]
    if isinstance(value, dict):
        return {k: with_hostile_texts(v) for k, v in value.items()}
    return [with_hostile_texts(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def document() -> Document:
    """A report with blocks of every kind."""
    plain = report.document(report_results.results())
    strip = Strip("s", "strip", "caption", [("run", "run")], ["row"], [[[100]]], 0.0, 1.0)
    drawn = Flame("f", "flame", "caption", ["m`f"], [0, 1.0, None, []], {"m": "run"}, 1.0, "s")
    more: list[Block] = [
        strip,
        drawn,
        Verbatim("select 1"),
        Statements([Statement("text", "title", "evidence", advice="advice")]),
        Choice("choice", [Option("a", "a", [facts("facts", [("name", "value")])])], "note"),
    ]
    shown: Document = with_hostile_texts(
        replace(plain, blocks=[*plain.blocks, Section("more", more, id="more")])
    )
    assert {Chart, Table, Strip, Flame, Verbatim, Choice} <= {type(b) for b in walk(shown.blocks)}
    return shown


def dangerous_characters(value: Any) -> list[str]:
    """Dangerous characters in the texts of a JSON value."""
    if isinstance(value, str):
        return FOUND.findall(value)
    if isinstance(value, dict):
        return [c for k, v in value.items() for c in (*dangerous_characters(k), *dangerous_characters(v))]
    return [c for v in value for c in dangerous_characters(v)] if isinstance(value, list) else []


def test_the_page_has_no_hostile_text(document: Document) -> None:
    shown = page.page(document)
    shown.encode()
    bare = re.sub("<script>.*?</script>|<style>.*?</style>", "", shown, flags=re.DOTALL)  # our own code
    assert FOUND.findall(bare) == []
    assert FOUND.findall(html.unescape(bare.replace("&amp;", "&amp;amp;"))) == []
    held = re.findall('<script type="application/json" id="\\w+">(.*?)</script>', shown, re.DOTALL)
    assert [bool(data) for data in held] == [True] * 3  # charts, strips, flame graphs
    assert [c for data in held for c in dangerous_characters(json.loads(data))] == []
    assert "<img" not in bare


def test_the_terminal_has_no_hostile_text(document: Document) -> None:
    shown = "\n".join(line.text for line in text.document(document, 120))
    assert "\ufffd" in shown
    assert FOUND.findall(shown) == []


def test_markdown_has_no_hostile_text(document: Document) -> None:
    shown = markdown.page(document)
    shown.encode()
    assert FOUND.findall(shown) == []
    bare = re.sub("(?s)```+\n.*?\n```+", "", shown)  # in code nothing is markup
    assert not re.search(r"(?<!\\)<img|(?<!\\)\]\(|https://", bare)
    assert "&#x202e;" not in re.sub(r"\\&", "", bare)


def test_code_behind_a_list_stays_code() -> None:
    items = Statements([Statement("- a")])
    shown = markdown.page(Document("t", [items, Verbatim("```\n<img src=x>")]))
    assert "- \\- a\n\n````\n```\n<img src=x>\n````" in shown


def test_the_workbook_has_no_hostile_text(document: Document) -> None:
    raw = pl.DataFrame({"name": [STORED], "n": [1]})
    with zipfile.ZipFile(io.BytesIO(xlsx.workbook(document, {"raw": raw}))) as parts:
        for name in parts.namelist():
            content = parts.read(name).decode()
            assert FOUND.findall(html.unescape(content)) == [], name
            assert not re.search("_x00[01]", content), name


def test_tables_in_csv_and_stacks_have_no_hostile_text(tmp_path: Path) -> None:
    results = report_results.results()
    texts = {
        n: t.with_columns(pl.col(pl.String) + HOSTILE.encode(errors="replace").decode())
        for n, t in results.tables.items()
    }
    present.export(replace(results, tables=texts), None, "csv", tmp_path)
    for file in tmp_path.glob("*.csv"):
        assert FOUND.findall(file.read_text()) == [], file.name
    name = STORED.replace(";", "")  # which parts frames
    stacks = pl.DataFrame({"who": ["rung"], "stack": [f"m`{name}\n"], "aas": [1.0]})
    folded = flame.folded(stacks)
    assert FOUND.findall(folded) == []
    assert folded.count("\n") == 1


def test_drawings_have_no_hostile_text(document: Document) -> None:
    drawn = next(b for b in walk(document.blocks) if isinstance(b, Flame))
    assert FOUND.findall(flame.svg(drawn)) == []
    assert FOUND.findall(el("p", HOSTILE, title=HOSTILE)) == []


def test_a_stored_document_is_made_safe_when_it_is_drawn(document: Document) -> None:
    shown = page.page(stored.loaded(stored.dumped(document)))
    assert FOUND.findall(re.sub("<script>.*?</script>|<style>.*?</style>", "", shown, flags=re.DOTALL)) == []


@pytest.mark.parametrize("plain", LEGITIMATE)
def test_ordinary_text_stays(plain: str) -> None:
    assert visible(plain) == plain
    assert one_line(plain) == plain.replace("\t", "␉").replace("\n", "␊")


@pytest.mark.parametrize("code", [*DANGEROUS, 0x200C, 0x200D])
def test_each_dangerous_character_is_shown_in_its_place(code: int) -> None:
    shown = visible(f"a{chr(code)}b")
    assert len(shown) == 3
    assert shown[1] in ("\ufffd", chr(0x2400 + code) if code < 0x20 else "␡")
    assert json.loads(visible_json([f"a{chr(code)}b"])) == [shown]
