"""The matrix of a suite: verdicts for all rows together, their order, rows without figures, the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl
import pytest
from tests.unit.compare_runs import noisy, without_cells
from tests.unit.report_results import World

from dbdyno.conclude import gates
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.suite import Measured, matrix
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.suite import Benchmark, Suite
from dbdyno.model.results.comparison import CodeCost
from dbdyno.model.results.suite import SuiteMatrix
from dbdyno.present.compare import suite as page
from dbdyno.present.document.document import Section, Table, walk
from dbdyno.present.figures.gate import words as gate_words

pytestmark = pytest.mark.queries


@dataclass(frozen=True)
class Equal(World):
    def speed(self, variant: str) -> float:  # noqa: ARG002
        return 1.0


TWO = {"rungs": (1,), "repeats": 6, "variants": ("old", "new")}


def measured(name: str, world: World, seed: int = 1, spread: float = 0.01) -> Measured:
    results = noisy(world, seed=seed, spread=spread, id=f"20261121-{name}")
    compared = compare_variants(results) if len(world.variants) > 1 else None
    return Measured(name, f"a call of {name}", replace(results, comparison=compared))


def slower_and_equal(count: int = 5) -> SuiteMatrix:
    equal = [measured(f"equal{n}", Equal(**TWO), seed=n, spread=0.004) for n in range(count)]
    return matrix("20261121-suite-x", "x", [*equal, measured("slow", World(**TWO))], count + 1)


def test_the_row_that_differs_comes_first_and_the_answer_counts_all() -> None:
    shown = slower_and_equal()
    assert shown.rows[0].benchmark == "slow"
    (contrast,) = shown.rows[0].contrasts
    assert contrast.verdict == "worse" and contrast.effect.ratio == pytest.approx(0.8, abs=0.02)
    assert shown.family == 6 and shown.variants == ("old", "new")
    answer = shown.conclusions[0]
    counts = [answer.slots[k] for k in ("better", "worse", "same", "undecided")]
    assert answer.id == "suite-answer-new" and sum(counts) == 6 and counts[1] == 1
    assert answer.text.startswith("new against old: faster in 0 of 6 benchmarks, slower in 1,")
    assert [*shown.rows[0].causes] == ["new"]
    text = shown.rows[0].causes["new"].claim.text
    assert text.startswith("slow: new is 20 % slower than old: 1.2") and "times as much CPU (" in text
    assert [c.verdict for c in shown.rows[0].cpu] == ["worse"]
    assert (answer.slots["more_cpu"], answer.slots["less_cpu"]) == (1, 0)
    assert all(not r.causes for r in shown.rows[1:])


@pytest.mark.parametrize(
    ("name", "module", "title"),
    [
        ("palloc", "postgres:utils/mmgr", "palloc"),
        ("unknown", "libLLVM-14", "functions of libLLVM-14 without a name"),
        ("unknown", "unknown", "unknown code"),
        ("unknown", None, "unknown code"),
    ],
)
def test_code_without_a_name_has_that_of_its_module(name: str, module: str | None, title: str) -> None:
    cost = CodeCost(
        name=name, module=module, baseline_ns=1, variant_ns=2, difference_ns=1, low_ns=0.5, high_ns=1.5
    )
    assert cost.title == title


def test_rules_are_judged_by_the_verdicts_of_the_whole_matrix() -> None:
    shown = slower_and_equal()

    def states(*rules: str) -> list[str]:
        return [o.state for o in gates.of_suite(gates.parse(rules, "comparison"), shown).outcomes]

    assert states("worse:5%", "worse:50%", "better:5%") == ["failed", "passed", "passed"]
    assert states("cpu_per_call:worse:5%", "claim:suite-failed") == ["failed", "passed"]
    gate = gates.of_suite(gates.parse(["worse"], "comparison"), shown)
    (worst, *others) = gate.outcomes[0].findings
    assert (gate.exit_code, worst.place, worst.state, len(others)) == (7, "slow, new", "failed", 5)
    assert "throughput 0.8" in gate_words(worst, "throughput:worse")
    stopped = shown.model_copy(update={"rows": shown.rows[:1]})
    (better,) = gates.of_suite(gates.parse(["better:5%"], "comparison"), stopped).outcomes
    assert (better.state, better.findings[0].reason) == ("cannot tell", "not measured")
    for rule in ("p99:worse", "claim:errors", "worse:150%"):
        with pytest.raises(UsageError, match=r"suite|no figure falls"):
            gates.of_suite(gates.parse([rule], "comparison"), shown)
    with pytest.raises(UsageError, match="this suite has one variant"):
        gates.check_suite(gates.parse(["worse"], "comparison"), 1)


def test_p_is_adjusted_for_all_rows() -> None:
    shown = slower_and_equal()
    ps = sorted((c.p_holm or 0.0, c.effect.p or 0.0) for r in shown.rows for c in r.contrasts)
    assert ps[0][0] >= 6 * 2.0**-11  # the smallest p of six and six repeats, times six rows
    assert all(adjusted >= own for adjusted, own in ps)
    alone = matrix("s", "x", [measured("slow", World(**TWO))], 1)
    (claim,) = alone.rows[0].contrasts
    assert alone.family == 1 and claim.p_holm == pytest.approx(2.0**-11)
    assert "There is one comparison" in next(c.text for c in alone.conclusions if c.id == "suite-family")
    few = next(c for c in shown.conclusions if c.id == "suite-family")
    assert "for all 6 comparisons together" in few.text and "--repeats" not in few.text


def test_equal_variants_hardly_ever_differ() -> None:
    """Each matrix has a false row with a probability of at most 5 %, however many rows it has."""
    rows = [
        r
        for first in range(0, 90, 30)
        for r in matrix(
            "s",
            "x",
            [measured(f"n{n}", Equal(**TWO), seed=n, spread=0.05) for n in range(first, first + 30)],
            30,
        ).rows
    ]
    false = [c for r in rows for c in r.contrasts if c.verdict in ("better", "worse")]
    assert len(rows) == 90 and len(false) <= 1


def test_a_benchmark_without_figures_is_a_row_with_its_reason() -> None:
    failed = Measured("copy", "", None, "no right to run programs")
    results = measured("dead", Equal(**TWO)).results
    assert results is not None
    dead = Measured("dead", "", replace(without_cells(results, "-s1-"), comparison=None))
    shown = matrix("s", "x", [failed, dead, measured("slow", World(**TWO))], 5)
    assert [r.benchmark for r in shown.rows] == ["slow", "copy", "dead"]
    assert [bool(r.reason) for r in shown.rows] == [False, True, True]
    texts = {c.id: c.text for c in shown.conclusions}
    assert (
        "2 of 5 benchmarks without figures: copy (no right to run programs), dead (" in texts["suite-failed"]
    )
    assert "after 3 of 5 benchmarks" in texts["suite-stopped"]


def test_without_variants_there_is_a_table_of_costs() -> None:
    alone = replace(Equal(**TWO), variants=("base",))
    shown = matrix("s", "x", [measured("a", alone), measured("b", alone, 2)], 2)
    assert shown.family == 0 and [c.id for c in shown.conclusions] == ["suite-measured"]
    (single,) = matrix("s", "x", [measured("a", alone)], 1).conclusions
    assert single.text.startswith("The benchmark was measured.")
    document = page.document(shown)
    tables = [b for b in walk(document.blocks) if isinstance(b, Table)]
    assert [c.head for c in tables[0].columns][:2] == ["benchmark", "calls/s"]
    assert len(tables[0].rows) == 2


def test_the_page_has_a_row_for_each_benchmark_and_what_is_behind_it() -> None:
    shown = slower_and_equal(2)
    document = page.document(shown)
    table = next(b for b in walk(document.blocks) if isinstance(b, Table))
    assert [r.cells[0].text for r in table.rows] == [r.benchmark for r in shown.rows]
    ids = {b.id for b in walk(document.blocks) if isinstance(b, Section)}
    assert {r.cells[0].target for r in table.rows} <= ids
    assert document.lead[0].text == shown.conclusions[0].text
    assert page.record(shown)["rows"][0]["benchmark"] == "slow"
    several = [measured(f"n{n}", World(**{**TWO, "variants": ("a", "b", "c")}), seed=n) for n in range(2)]
    wide = page.document(matrix("s", "x", several, 2))
    first = next(b for b in walk(wide.blocks) if isinstance(b, Table))
    assert [c.head for c in first.columns] == ["benchmark", "a, calls/s", "b", "c"]
    assert pl.Series([r.cells[2].value for r in first.rows]).is_between(0.75, 0.85).all()


def test_only_keeps_the_order_of_the_suite_and_suggests_names() -> None:
    names = ("sort", "hash-join", "insert")
    suite = Suite("x", "", tuple(Benchmark(n, "", "w", {}, "1", {}) for n in names))
    assert [b.name for b in suite.only("insert, sort").benchmarks] == ["sort", "insert"]
    assert suite.only(None) is suite
    with pytest.raises(UsageError) as caught:
        suite.only("srot")
    assert caught.value.cure == "did you mean 'sort'?"
    with pytest.raises(UsageError):
        suite.only(" ,")
