"""Calls are the same work with more data, or not: the criterion, its claims, and refused comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import polars as pl
import pytest
from tests.unit import report_results

from dbdyno.conclude.compare import Options, compare_runs, compare_variants
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.equal_load import TOLERANCE, equal_load, growths
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.data_size import size_of, size_words
from dbdyno.model.plan.plan import Parameter, Workload
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import rows
from dbdyno.present.document.document import Table
from dbdyno.present.figures.selection import pick_of
from dbdyno.present.run.sizes import by_size

SCALE = Parameter(doc="size", type="int", default=1, counts=(25_000, "orders"))
VARIANTS = ("x1", "x4")


def _results(work: Mapping[str, float], repeats: int = 2, scale: Mapping[str, int] | None = None) -> Results:
    """``work``: units per call by variant; each variant at a scale of its own."""
    scale = scale or {v: int(v[1:]) for v in work}
    plain = report_results.results(report_results.World(rungs=(1, 2), repeats=repeats, variants=tuple(work)))
    cells = tuple(c.model_copy(update={"params": {"scale": scale[c.variant]}}) for c in plain.plan.cells)
    workloads = {
        n: w.model_copy(update={"parameters": {"scale": SCALE}}) for n, w in plain.info.workloads.items()
    }
    rates = plain.tables["rates"]
    per_call = rates.filter((pl.col("name") == "calls_per_s") & (pl.col("scope") == "rung")).with_columns(
        name=pl.lit("work_per_call"), value=pl.col("variant").replace_strict(work, return_dtype=pl.Float64)
    )
    tables = {**plain.tables, "rates": pl.concat([rates, per_call])}
    plan = plain.plan.model_copy(update={"cells": cells})
    return replace(
        plain, plan=plan, tables=tables, info=plain.info.model_copy(update={"workloads": workloads})
    )


def _with_scripts(results: Results, lio: Mapping[str, Mapping[str, float]]) -> Results:
    """Returns the results with ``lio`` per call by script and variant."""
    zero = {"weight": 1, "calls": 10, "errors": 0, "retried": 0, "retries": 0, "in_call_ns": 0}
    key = ("cell", "workload", "variant", "sessions", "repeat")
    script_rates = [
        {k: w[k] for k in key} | zero | {"script": i, "name": name, "lio_per_call": by[w["variant"]]}
        for w in results.tables["windows"].to_dicts()
        for i, (name, by) in enumerate(lio.items())
    ]
    return replace(results, tables={**results.tables, "script_rates": rows("script_rates", script_rates)})


def _claims(results: Results) -> dict[str, Claim]:
    case = Case(results.plan, results.environment, results.tables, results.info.workloads)
    return {c.id: c for c in equal_load(case)}


@pytest.mark.parametrize(
    ("after", "verdict"),
    [(1.0, "constant"), (TOLERANCE - 0.01, "constant"), (TOLERANCE + 0.01, "grows"), (0.7, "shrinks")],
)
def test_work_within_the_tolerance_is_constant(after: float, verdict: str) -> None:
    (growth,) = growths({1: {"": [100.0]}, 4: {"": [100.0 * after]}})
    assert (growth.verdict, growth.low) == (verdict, None)
    assert growth.ratio == pytest.approx(after)


def test_the_interval_decides_where_there_are_repeats() -> None:
    """By hand: logs differ by 0.1 within each size, so s = 0.0707, two degrees of freedom, t = 4.303; the
    ratio 1.5 has the interval exp(ln 1.5 +- 4.303 * 0.0707 * 1) by ratio of arithmetic means."""
    low, high = (math.exp(sign * 0.05) for sign in (-1, 1))
    (growth,) = growths({1: {"": [10 * low, 10 * high]}, 4: {"": [15 * low, 15 * high]}})
    half = 4.302653 * math.sqrt(0.005)
    assert growth.low == pytest.approx(1.5 * math.exp(-half))
    assert growth.high == pytest.approx(1.5 * math.exp(half))
    assert growth.verdict == "unclear"
    (sure,) = growths({1: {"": [10.0, 10.1]}, 4: {"": [15.0, 15.1]}})
    assert sure.verdict == "grows"


def test_the_size_that_differs_most_is_named() -> None:
    (growth,) = growths({1: {"": [10.0]}, 4: {"": [31.0]}, 16: {"": [20.0]}})
    assert (growth.first, growth.last) == (1, 4)
    assert growth.ratio == pytest.approx(3.1)


def test_a_transaction_that_is_unknown_at_one_size_is_left_out() -> None:
    growth = growths({1: {"": [1.0], "a": [1.0]}, 4: {"": [1.0]}})
    assert [g.name for g in growth] == [""]


def test_equal_load_is_a_claim() -> None:
    claims = _claims(_results({"x1": 41.0, "x4": 41.3}))
    assert claims.keys() == {"equal-load"}
    one = claims["equal-load"]
    assert (one.severity, one.case) == ("good", "constant")
    assert one.value is not None and one.value.value == pytest.approx(41.3 / 41.0)
    assert one.slots["span"] == "25,000 to 100,000 orders"


def test_a_rare_transaction_that_grows_is_named_though_the_mix_hardly_does() -> None:
    results = _with_scripts(
        _results({"x1": 40.0, "x4": 44.0}),
        {
            "buy": {"x1": 40.0, "x4": 40.0},
            "browse": {"x1": 30.0, "x4": 93.0},
        },
    )
    claims = _claims(results)
    assert (claims["equal-load"].case, claims["equal-load"].severity) == ("grows", "warning")
    assert claims["equal-load"].slots["ratio"] == pytest.approx(3.1)
    assert "browse" in claims["equal-load"].slots["names"]
    assert "All calls together: 1.10-fold" in claims["equal-load"].text
    assert (
        claims["transaction-load-browse"].case == "grows"
        and claims["transaction-load-buy"].case == "constant"
    )


def test_one_size_makes_no_claim() -> None:
    assert _claims(_results({"x1": 41.0, "x4": 80.0}, scale={"x1": 4, "x4": 4})) == {}


@pytest.mark.parametrize("across", [False, True])
def test_variants_of_several_sizes_are_compared_only_if_insisted(across: bool) -> None:
    results = _results({"x1": 41.0, "x4": 80.0})
    if across:
        comparison = compare_variants(results, Options(across_sizes=True))
        assert comparison.conclusions[0].id == "across-sizes"
    else:
        with pytest.raises(
            UsageError, match=r"25,000 orders.* 1.95 times the work with 4 times the data"
        ) as e:
            compare_variants(results)
        assert "--across-sizes" in str(e.value)


def test_equal_load_and_equal_size_compare_without_a_claim() -> None:
    for results in (
        _results({"x1": 41.0, "x4": 42.0}),
        _results({"x1": 41.0, "x4": 80.0}, scale={"x1": 4, "x4": 4}),
    ):
        assert "across-sizes" not in [c.id for c in compare_variants(results).conclusions]


def test_runs_of_two_sizes_are_not_compared_either_nor_where_the_work_is_unknown() -> None:
    one, four = (
        replace(r, info=r.info.model_copy(update={"id": f"2026-{n}"}))
        for n, r in enumerate((_results({"x1": 41.0}), _results({"x1": 82.0}, scale={"x1": 4})))
    )
    with pytest.raises(UsageError, match="B has 100,000 orders; a call does 2 times the work"):
        compare_runs(one, four)
    assert compare_runs(one, four, Options(across_sizes=True)).conclusions[0].id == "across-sizes"
    blind = {**four.tables, "rates": four.tables["rates"].filter(pl.col("name") != "work_per_call")}
    with pytest.raises(UsageError, match="is not known"):
        compare_runs(one, replace(four, tables=blind))


def test_the_size_is_the_parameter_or_its_default() -> None:
    workload = next(iter(report_results.results().info.workloads.values()))
    sized: Workload = workload.model_copy(update={"parameters": {"scale": SCALE}})
    assert (size_of(sized, {"scale": 40}), size_of(sized, {}), size_of(workload, {})) == (40, 1, None)
    assert size_words(sized, 40) == "1,000,000 orders"
    assert size_words(workload, 40) == "scale 40"


def _with_plans(results: Results, shapes: Mapping[str, str]) -> Results:
    """Each measurement with one statement, its plan by variant."""
    key = ("cell", "workload", "variant", "sessions", "repeat")
    one = {"script": 0, "name": "browse", "command": 2, "line": 5, "digest": None, "status": "ok"}
    windows = results.tables["windows"].to_dicts()
    plan_shapes = [{k: w[k] for k in key} | one | {"shape": shapes[w["variant"]]} for w in windows]
    return replace(results, tables={**results.tables, "plan_shapes": rows("plan_shapes", plan_shapes)})


def test_a_statement_with_another_plan_at_another_size_is_a_claim() -> None:
    results = _results({"x1": 41.0, "x4": 41.0})
    scan, index = "Seq Scan orders", "Index Scan orders_customer"
    assert "plan-changes" not in _claims(_with_plans(results, {"x1": index, "x4": index}))
    claim = _claims(_with_plans(results, {"x1": scan, "x4": index}))["plan-changes"]
    assert [claim.slots[n] for n in ("script", "line", "others")] == ["browse", 5, 0]
    assert [claim.slots[n] for n in ("before", "first")] == [scan, "25,000 orders"]
    assert [claim.slots[n] for n in ("after", "last")] == [index, "100,000 orders"]


def test_a_table_has_each_transaction_at_each_size() -> None:
    results = _with_scripts(
        _results({"x1": 40.0, "x4": 44.0}, repeats=1), {"browse": {"x1": 30.0, "x4": 93.0}}
    )
    rates = results.tables["script_rates"].with_columns(cell=pl.lit("all"))
    results = replace(results, tables={**results.tables, "script_rates": rates})
    pick = pick_of(_with_plans(results, {"x1": "Seq Scan a", "x4": "Index Scan b"}), None)
    assert pick is not None
    shown, *_ = by_size(_with_plans(results, {"x1": "Seq Scan a", "x4": "Index Scan b"}), pick)
    assert isinstance(shown, Table)
    cells = [[cell.text for cell in row.cells] for row in shown.rows]
    assert [(r[0], r[1], r[3], r[-1]) for r in cells] == [
        ("browse", "25,000 orders", "30.0", "Seq Scan a"),
        ("browse", "100,000 orders", "93.0", "Index Scan b"),
    ]
    same = _with_scripts(
        _results({"x1": 1.0, "x4": 1.0}, scale={"x1": 4, "x4": 4}), {"a": {"x1": 1.0, "x4": 1.0}}
    )
    assert by_size(same, pick) == []
