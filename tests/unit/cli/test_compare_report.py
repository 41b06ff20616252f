"""A comparison as text, HTML, Markdown and JSON, and the command ``compare``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unit.compare_runs import noisy
from tests.unit.present.test_compare_samples import GOB, JSON
from tests.unit.report_results import HOSTILE, World
from tests.unit.shown import as_text, tables

from dbdyno import present
from dbdyno.cli.app import app
from dbdyno.conclude.compare import Options, compare_runs, compare_variants
from dbdyno.model.errors import DbdynoError
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import DERIVED, empty
from dbdyno.present.document.document import Section
from dbdyno.store import RunStore

WORLD = World(rungs=(1, 4), repeats=6, variants=("base", "second", "third"))
Invoke = Callable[..., Result]


def text(comparison: Comparison, width: int = 100) -> str:
    return as_text(present.comparison(comparison), width)


def test_the_terminal_shows_rank_ratio_interval_both_p_and_verdict() -> None:
    output = text(compare_variants(noisy(WORLD)))
    line = next(x for x in output.splitlines() if re.match(r"3  third +worse", x))
    assert re.search(r"worse +(0\.\d+) +0\.\d+\.\.0\.\d+ +6 +\S.* 0\.031$", line)
    assert "CPU WAIT" in output and "paired by block" in output


@pytest.mark.parametrize(("width", "kept"), [(60, set()), (80, {"95", "interval"})])
def test_a_narrow_terminal_keeps_the_verdict_and_says_what_it_leaves_out(width: int, kept: set[str]) -> None:
    lines = text(compare_runs(noisy(WORLD, id="first"), noisy(WORLD, seed=2, id="other")), width).splitlines()
    heads = [x for x in lines if x.startswith("ladder")]
    assert heads and all({"B/A", "verdict", *kept} <= set(x.split()) and len(x) <= width for x in heads)
    assert "p (Holm), p (perm.)." in " ".join(lines[lines.index(heads[0]) :])
    assert any(x.startswith("Not shown at this width: ") for x in lines)


def test_two_runs_have_a_row_for_each_number_of_sessions() -> None:
    document = present.comparison(compare_runs(noisy(WORLD, id="first"), noisy(WORLD, seed=2, id="other")))
    assert "first" in document.title and "other" in document.title
    rungs = tables(document.blocks)[0]
    assert [(r.cells[0].text, r.cells[1].value) for r in rungs.rows] == [
        (f"lio, {v}", n) for v in ("base", "second", "third") for n in (1, 4)
    ]
    verdict = [c.head for c in rungs.columns].index("verdict")
    assert {r.cells[verdict].value for r in rungs.rows} <= {"undecided", "better", "worse", "no difference"}


def test_one_repeat_shows_no_columns_in_which_nothing_is_known_and_says_why() -> None:
    world = World(rungs=(1, 4), repeats=1, variants=("base",))
    comparison = compare_runs(noisy(world, id="first"), noisy(world, seed=9, id="other"))
    output = as_text(present.comparison(comparison))
    heads = {c.head for t in tables(present.comparison(comparison).blocks) for c in t.columns}
    assert not {"p (Holm)", "p (perm.)", "ladder"} & heads and "B/A" in heads
    assert "One repeat decides nothing" in output and "--repeats 5" in output


def test_the_table_of_reasons_holds_every_account_and_marks_the_small_ones() -> None:
    comparison = compare_variants(noisy(WORLD))
    why = next(b for b in present.comparison(comparison).blocks if isinstance(b, Section) and b.id == "why")
    first = tables(why.blocks)[0]
    top = next(w for w in comparison.why if w.sessions == 4)
    known = [a for a in top.accounts if a.baseline_s or a.variant_s]
    assert len(first.rows) == len(known) and 0 < sum(r.minor for r in first.rows) < len(known)
    differences = {r.cells[3].value for r in first.rows}
    assert {a.difference_s for a in known} == differences


def test_markdown_holds_every_table(tmp_path: Path) -> None:
    document = present.comparison(compare_variants(noisy(WORLD)))
    page = present.write(document, tmp_path / "c.md").read_text("utf-8")
    assert page.startswith("# 3 variants") and page.count("|:--|") >= len(tables(document.blocks))
    assert "## Effect: LIO per second" in page and "<" not in page


class Page(HTMLParser):
    """Lists the elements that are open, and all elements with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "br", "wbr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_draws_every_interval_and_loads_nothing(tmp_path: Path) -> None:
    comparison = compare_variants(noisy(WORLD))
    page = Page()
    page.feed(present.write(present.comparison(comparison), tmp_path / "c.html").read_text("utf-8"))
    assert page.open == []
    tags = [t for t, _ in page.elements]
    against = sum(not c.neighbours for t in comparison.metrics for c in t.claims)
    # each is drawn for wide and for narrow pages
    assert tags.count("svg") == 2 * len(comparison.metrics) and tags.count("circle") == 2 * against
    sources = [a.get("src") or a.get("href") or "" for _, a in page.elements]
    assert not [s for s in sources if s and not s.startswith(("data:", "#"))]


def test_texts_of_a_server_are_escaped_in_the_page(tmp_path: Path) -> None:
    a, b = noisy(WORLD, id="first"), noisy(WORLD, seed=2, id="other")
    settings = b.environment.server.model_copy(update={"settings": {"application_name": HOSTILE}})
    other = Results(
        b.info, b.plan, b.environment.model_copy(update={"server": settings}), b.tables, b.findings
    )
    written = present.write(present.comparison(compare_runs(a, other)), tmp_path / "c.html").read_text(
        "utf-8"
    )
    assert "alert(" in written and HOSTILE not in written


def test_the_document_has_stable_keys_and_no_nan() -> None:
    document = present.comparison_document(compare_variants(noisy(WORLD), Options(rung=4)))
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["format"] == 1 and again["kind"] == "variants"
    assert {
        "runs",
        "baseline",
        "margin",
        "alpha",
        "metrics",
        "why",
        "differences",
        "summary",
        "notes",
        "conclusions",
    } <= set(again)
    claim = again["metrics"][0]["claims"][0]
    assert {"effect", "p_holm", "verdict", "further_repeats", "variant", "baseline"} <= set(claim)
    assert {"ratio", "low", "high", "p", "p_permutation", "basis"} <= set(claim["effect"])


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the command in a directory and with a store of its own."""
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["compare", *words])


def store_run(results: Results) -> str:
    """Stores a run with these tables and returns its id."""
    run = RunStore(Path("store")).create(results.plan, workloads=results.info.workloads)
    run.write_environment(results.environment)
    every = {name: empty(name) for name in DERIVED} | dict(results.tables)
    run.write_derived(every, results.findings)
    run.finish("complete")
    return run.id


def test_the_command_compares_variants_runs_and_files(invoke: Invoke, tmp_path: Path) -> None:
    first = store_run(noisy(WORLD, drift=0))
    assert "3 variants of lio" in invoke(first).output
    assert json.loads(invoke("last", "--baseline", "third", "--json").output)["baseline"] == "third"
    second = store_run(noisy(WORLD, seed=2, drift=0))
    done = invoke(first, second, "--margin", "5%", "-o", "c.html")
    assert done.exit_code == 0 and (tmp_path / "c.html").exists()
    assert "equal within 5 %" in done.output
    Path("old.txt").write_text("# ns/op\n" + "\n".join(map(str, JSON[0])))
    Path("new.csv").write_text("run,ns\n" + "\n".join(f"{n},{v}" for n, v in enumerate(JSON[1])))
    output = invoke("old.txt", "new.csv", "--column", "ns").output
    assert "-17.20% (p=0.000 n=10)" in output and "0.817..0.833" in output and "1.1e-05" in output


@pytest.mark.parametrize(
    ("name", "begin"), [("a.html", b"<!doctype html>"), ("a.md", b"# "), ("a.xlsx", b"PK"), ("a.json", b"{")]
)
def test_a_comparison_of_files_can_be_written(invoke: Invoke, name: str, begin: bytes) -> None:
    for file, values in zip(("a.txt", "b.txt"), JSON, strict=True):
        Path(file).write_text("\n".join(map(str, values)))
    assert invoke("a.txt", "b.txt", "-o", name).exit_code == 0
    written = Path(name).read_bytes()
    assert written.startswith(begin)
    if name.endswith(("html", "md")):
        assert b"-17.20%" in written
    if name.endswith("json"):
        assert json.loads(written)["verdict"] == "better"


TABLES = {
    "before and after": ("before,after\n10,12\n11,13\n10,12\n11,14\n", ()),
    "by name, in that order": (
        "run,after,before\n1,12,10\n2,13,11\n3,12,10\n4,14,11\n", ("--columns", "before,after"),
    ),
    "group and value": ("group,ms\nold,10\nnew,12\nold,11\nnew,13\nold,10\nnew,12\nold,11\nnew,14\n", ()),
    "two of three groups": (
        "v;ms\nold;10\nmid;1\nnew;12\nold;11\nnew;13\nold;10\nnew;12\nold;11\nnew;14\n",
        ("--columns", "old,new"),
    ),
    "one of two columns of numbers": (
        "variant,ms,calls\nold,10,1\nold,11,2\nold,10,3\nold,11,4\nnew,12,5\nnew,13,6\nnew,12,7\nnew,14,8\n",
        ("--column", "ms"),
    ),
    "decimal commas": ("a;b\n1,0;1,2\n1,1;1,3\n1,0;1,2\n1,1;1,4\n", ()),
    "quoted decimal commas": ('a,b\n"1,0","1,2"\n"1,1","1,3"\n"1,0","1,2"\n"1,1","1,4"\n', ()),
    "white space": ("a b\n10 12\n11 13\n10 12\n11 14\n", ()),
    "a column that is shorter": ("a,b\n10,12\n11,13\n10,12\n11,14\n10.5,\n", ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_holds_both_samples(invoke: Invoke, kind: str) -> None:
    content, words = TABLES[kind]
    Path("t.csv").write_text(content)
    document = json.loads(invoke("t.csv", *words, "--json").output)
    assert document["of_baseline"]["median"] < document["of_variant"]["median"]
    assert document["effect"]["ratio"] == pytest.approx(51 / 42) and document["verdict"] == "worse"


@pytest.mark.parametrize(
    ("content", "words", "values"),
    [
        ("1,5\n2,5\n", (), [1.5, 2.5]),
        ("1.234,5\n2\n", (), [1234.5, 2]),
        ("1,234.5\n2\n", (), [1234.5, 2]),
        ("1,234\n2,345\n", ("--decimal", ","), [1.234, 2.345]),
        ("1,234\n2,345\n", ("--decimal", "."), [1234, 2345]),
        ("1,234,567\n2\n", (), [1234567, 2]),
        ("ms\n1e3\n2.5 # a comment\n", (), [1000, 2.5]),
        ("name,ms\nx,1\ny,2\n", (), [1, 2]),
        ("\ufeff1\r\n2\r\n", (), [1, 2]),
    ],
)
def test_numbers_are_read_as_they_are_written(
    invoke: Invoke, content: str, words: tuple[str, ...], values: list[float]
) -> None:
    Path("a.txt").write_text(content, newline="")
    Path("b.txt").write_text("1\n2\n3\n")
    document = json.loads(invoke("a.txt", "b.txt", *words, "--json").output)
    assert document["of_baseline"]["n"] == len(values)
    assert document["of_baseline"]["mean"] == pytest.approx(sum(values) / len(values))


def test_files_can_say_that_higher_is_better(invoke: Invoke) -> None:
    for name, values in zip(("a.txt", "b.txt"), GOB, strict=True):
        Path(name).write_text("\n".join(map(str, values)))
    Path("c.txt").write_text("\n".join(str(2 * v) for v in GOB[0]))
    assert json.loads(invoke("a.txt", "b.txt", "--json").output)["verdict"] == "no difference"
    assert json.loads(invoke("a.txt", "c.txt", "--json").output)["verdict"] == "worse"
    assert json.loads(invoke("a.txt", "c.txt", "--better", "higher", "--json").output)["verdict"] == "better"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("n.txt", "none.txt"), "no file none.txt"),
        (("n.txt", "n.txt"), "twice"),
        (("n.txt",), "one sample cannot be compared"),
        (("three.csv",), "choose two: --columns a,b"),
        (("groups.csv",), "choose two: --columns x,y"),
        (("ladder.csv",), "is a ladder of loads"),
        (("three.csv", "--columns", "a,d"), "no column 'd'"),
        (("three.csv", "--columns", "a"), "two names"),
        (("n.txt", "bad.txt", "--columns", "a,b"), "one file"),
        (("n.txt", "thousands.txt"), "line 1: '1,234' may be 1.234 or 1234"),
        (("n.txt", "negative.txt"), "negative.txt, line 2: -2 is below 0"),
        (("n.txt", "huge.txt"), "huge.txt, line 2: 1e999 is not a finite number"),
        (("three.csv", "n.txt", "--column", "c"), "three.csv, line 3, c: 'x' is not a number"),
        (("n.txt", "empty.txt"), "no values"),
        (("n.txt", "bad.txt"), "line 2: 'x' is not a number"),
        (("n.txt", "nan.txt"), "nan.txt, line 2: nan is not a finite number"),
        (("n.txt", "three.csv"), "choose a column: --column a | b | c"),
        (("n.txt", "three.csv", "--column", "d"), "no column 'd'"),
        (("n.txt", "t.csv", "--column", "b"), "line 3: not as many fields"),
        (("n.txt", "binary.txt"), "is binary"),
        (("last", "nix"), "no runs"),
    ],
)
def test_samples_that_cannot_be_compared_are_refused_with_the_cure(
    invoke: Invoke, words: tuple[str, ...], message: str
) -> None:
    for name, content in {
        "n.txt": "1\n2\n3\n", "empty.txt": "\n# none\n", "bad.txt": "1\nx\n", "nan.txt": "1\nnan\n",
        "t.csv": "a,b\n1,2\n3\n", "three.csv": "a,b,c\n1,2,3\n2,3,x\n4,5,6\n",
        "thousands.txt": "1,234\n2,345\n",
        "groups.csv": "g,ms\nx,1\ny,2\nz,3\nx,1\n", "negative.txt": "1\n-2\n", "huge.txt": "1\n1e999\n",
        "ladder.csv": "sessions,tps\n1,10\n2,20\n4,40\n8,60\n",
    }.items():  # fmt: skip
        Path(name).write_text(content)
    Path("binary.txt").write_bytes(b"\xff\xfe\x00")
    done = invoke(*words)
    assert isinstance(done.exception, DbdynoError) and done.exception.cure
    assert message in f"{done.exception} {done.exception.cure}"


@pytest.mark.parametrize("margin", ["3x", "-1%", "100%", "150", ""])
def test_a_margin_that_is_no_share_is_refused(invoke: Invoke, margin: str) -> None:
    assert invoke("a", "b", "--margin", margin).exit_code == 2


def test_the_same_run_twice_and_a_baseline_of_two_runs_are_refused(invoke: Invoke) -> None:
    first, second = store_run(noisy(WORLD)), store_run(noisy(WORLD))
    assert "twice" in str(invoke(first, first).exception)
    assert "--baseline names a variant" in str(invoke(first, second, "--baseline", "base").exception)
    assert "--column is for files" in str(invoke(first, second, "--column", "x").exception)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_an_interval_that_excludes_one_and_is_undecided_says_why_beside_it(width: int) -> None:
    """Three repeats whose interval is clear of 1: the row states the reason at every width."""
    compared = compare_variants(noisy(replace(WORLD, repeats=3), spread=0.002))
    claims = [c for t in compared.metrics for c in t.claims if c.verdict == "undecided"]
    clear = [c for c in claims if c.effect.low and c.effect.high and not c.effect.low <= 1 <= c.effect.high]
    assert clear and all(c.because for c in clear)
    output = text(compared, width)
    assert {c.because for c in clear} == {"3 repeats are too few"}
    assert "undecided: 3" in output
    assert re.findall(r"undecided(?!:\s)", output) == []
