"""The report between two snapshots in every medium."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion
from tests.unit.shown import as_text, tables
from tests.unit.snapshot_cases import DATABASES, HOSTILE, story
from tests.unit.snapshot_cases import snapshot as made_snapshot

from dbdyno.account.snapshot_figures import figures
from dbdyno.account.snapshots import interval
from dbdyno.conclude.catalogue import entries
from dbdyno.conclude.snapshots.snapshots import claims, unused
from dbdyno.model.results.interval import ALL, IntervalFigures
from dbdyno.present.document.document import Choice, Document, Section, Table, walk
from dbdyno.present.media import html, markdown, xlsx
from dbdyno.present.snapshots import snapshots as presenting


@pytest.fixture(scope="module")
def growth() -> IntervalFigures:
    return figures(interval(*story()))


@pytest.fixture(scope="module")
def the_document(growth: IntervalFigures) -> Document:
    return presenting.document(growth, claims(growth), unused(growth))


def table(the_document: Document, title: str) -> Table:
    return next(t for t in tables(the_document.blocks) if t.title == title)


def cells(the_document: Document, title: str, row: int) -> dict[str, str]:
    of_title = table(the_document, title)
    return {
        c.name or c.head: cell.text
        for c, cell in zip(of_title.columns, of_title.rows[row].cells, strict=True)
    }


def test_the_whole_text(the_document: Document, snapshot: SnapshotAssertion) -> None:
    text = as_text(the_document, 80)
    assert text == snapshot
    assert max(map(len, text.splitlines())) <= 80


def test_databases_have_the_articles_columns_of_load(the_document: Document) -> None:
    first = cells(the_document, "By database", 0)
    assert first["database"] == "igen"
    assert [first[n] for n in ("tps", "LIO/s", "reads/s", "rows/s", "ins/s", "upd/s", "del/s")] == [
        "167", "3.88 k", "211", "23.5 k", "50.9", "46.7", "0.020",
    ]  # fmt: skip
    assert first["hit %"] == "94.55"


def test_tables_have_the_articles_columns(the_document: Document) -> None:
    first = cells(the_document, "By rows read", 0)
    heads = ("table", "tab hit %", "idx hit %", "tab read", "tab hit", "idx read", "idx hit")
    assert [first[n] for n in heads] == [
        "igen: public.order_125", "91.2", "77.8", "67.6 k", "699 k", "58.0 k", "203 k"
    ]  # fmt: skip


def test_statements_have_the_share_of_generic_plans_where_it_is_counted(
    growth: IntervalFigures, the_document: Document
) -> None:
    counted = growth.statements.with_columns(generic_plans=pl.lit(3), custom_plans=pl.lit(1))
    of_19 = presenting.document(replace(growth, statements=counted), [], unused(growth))
    assert cells(of_19, "By execution time", 0)["generic plans"] == "75 %"
    assert "generic plans" not in cells(the_document, "By execution time", 0)


def test_sums_are_those_of_the_databases(growth: IntervalFigures) -> None:
    rows = {r["database"]: r for r in growth.databases.to_dicts()}
    for name in ("commits", "rows_inserted", "blocks_hit", "transactions_per_s"):
        assert rows[ALL][name] == pytest.approx(sum(rows[d][name] for d in DATABASES))


def test_partitions_are_summed_under_their_table(growth: IntervalFigures) -> None:
    rows = {r["name"]: r for r in growth.relations.to_dicts()}
    event = rows["public.event"]
    assert (event["partitions"], event["rows_inserted"], event["seq_scans"], event["size_bytes"]) == (
        3,
        1500,
        3,
        3 * 110 << 20,
    )
    assert growth.interval.tables["relations"].filter(root_id=40).height == 3


def test_each_database_has_its_own_figures(the_document: Document) -> None:
    choices = [b for b in walk(the_document.blocks) if isinstance(b, Choice)]
    assert [o.label for o in choices[0].options] == [ALL, *DATABASES]
    (igen,) = [o for o in choices[1].options if o.label == "igen"]
    assert tables(igen.blocks)[0].rows[0].cells[0].text == "public.order_125"


def test_a_lower_bound_is_marked(the_document: Document) -> None:
    assert cells(the_document, "By WAL", 1)["WAL"] == ">= 47.7 MiB"
    reads = next(t for t in tables(the_document.blocks) if t.columns[0].head == "process").rows[0].cells[3]
    assert reads.text.startswith(">= ") and "reset" in reads.note


def test_unknown_figures_have_their_reason(the_document: Document) -> None:
    rows = {r.cells[0].text: r.cells for r in table(the_document, "Load of all databases").rows}
    assert {c.text for c in rows["time of reads"][1:]} == {"?"}
    assert all("track_io_timing" in c.note for c in rows["time of reads"][1:])
    assert "? time of reads, time of writes: track_io_timing is off: set it to on." in as_text(
        the_document, 200
    )


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)


def test_names_and_texts_are_text_in_every_medium(growth: IntervalFigures, the_document: Document) -> None:
    page, tags = html.page(the_document), _Tags()
    tags.feed(page)
    assert not any(s.startswith("alert(") for s in tags.scripts)
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "\\<script\\>" in markdown.page(the_document) and "\n| `two`" not in markdown.page(the_document)
    with zipfile.ZipFile(io.BytesIO(xlsx.workbook(the_document))) as book:
        assert "<script>" not in book.read("xl/sharedStrings.xml").decode()
    record = json.loads(json.dumps(presenting.record(growth, claims(growth))))
    assert record["load_profile"][2]["database"] == HOSTILE
    assert {t["query_id"]: t["text"] for t in record["statement_texts"]}[3] == f"SELECT '{HOSTILE}'"


def test_json_holds_every_table_and_its_statuses(growth: IntervalFigures) -> None:
    record = presenting.record(growth, claims(growth))
    remade = [r["status"] for r in record["most_accessed"] if r["name"] == "public.remade"]
    assert sorted(remade) == ["gone", "remade"]
    assert record["seconds"] == 600 and record["evictions"] == 4
    assert [r["what"] for r in record["resets"]] == ["I/O"]
    assert {r["setting"]: (r["value_was"], r["value"]) for r in record["tables"]["settings"]} == {
        "work_mem": ("4MB", "64MB")
    }


def test_two_empty_snapshots_make_a_report() -> None:
    empty = figures(interval(made_snapshot(), made_snapshot(5)))
    document = presenting.document(empty, claims(empty), unused(empty))
    assert "What the databases did in between is not known." in as_text(document)
    for text in (html.page(document), markdown.page(document)):
        assert "No Top SQL: no statement was executed in between." in text


def test_rows_of_a_table_are_as_many_as_asked_for(growth: IntervalFigures) -> None:
    document = presenting.document(growth, claims(growth), unused(growth), top=2)
    assert [len(table(document, t).rows) for t in ("By execution time", "By rows read", "By WAL")] == [
        2,
        2,
        2,
    ]


def test_every_claim_leads_to_its_section(the_document: Document) -> None:
    ids = {s.id for s in the_document.blocks if isinstance(s, Section)}
    named = {c: p for c, p in presenting._PLACE.items() if p not in ids}
    assert named == {}
    of_intervals = {c for c in entries() if c.startswith("snapshot-")} | {"scan-not-cached"}
    assert of_intervals == set(presenting._PLACE)
