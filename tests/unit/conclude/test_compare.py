"""Variants of a run and two runs: pairs, Holm, verdicts, why, the stopping rule."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmarks.aa_simulated import World as Simulated
from benchmarks.aa_simulated import outcome, stopped
from tests.unit.compare_runs import noisy, without_cells
from tests.unit.report_results import World, results

from dbdyno.conclude.compare import Options, compare_runs, compare_variants, rule, tight_enough
from dbdyno.conclude.compare.comparisons import server_differences
from dbdyno.conclude.compare.summary import summary
from dbdyno.conclude.compare.table import ALPHA_STOPPED, judge
from dbdyno.engines.postgres.wait_events import advice
from dbdyno.model.engine.environment import SettingDifference
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Variant
from dbdyno.model.results.comparison import Comparison, Contrast, Effect, Verdict
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.results.results import Applied, Results
from dbdyno.model.schema.tables import rows
from dbdyno.present.document.document import Paragraph, Table
from dbdyno.present.run import rungs
from dbdyno.stats.autocorrelation import correlated, integrated_time
from dbdyno.stats.significance import holm

pytestmark = pytest.mark.queries

THREE = World(rungs=(1, 4), repeats=6, variants=("base", "second", "third"))


def claim(
    comparison: Comparison, variant: str, sessions: int, metric: int = 0, against: str = "base"
) -> Contrast:
    return next(
        c
        for c in comparison.metrics[metric].claims
        if (c.variant, c.baseline, c.sessions) == (variant, against, sessions)
    )


def test_holms_adjusted_p_are_those_of_r() -> None:
    """p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") of R 4.2 gives 0.03 0.06 0.06 0.02."""
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_variants_are_ranked_with_the_ratio_of_the_law() -> None:
    comparison = compare_variants(noisy(THREE))
    table = comparison.metrics[0]
    assert table.metric == "work_per_s" and table.unit == "LIO/s"
    ranked = [(x.rank, x.variant) for x in table.lines if x.sessions == 4]
    assert ranked == [(1, "base"), (2, "second"), (3, "third")]
    for variant, ratio in (("second", 0.8), ("third", 0.6)):
        contrast = claim(comparison, variant, 4)
        assert contrast.effect.low is not None and contrast.effect.high is not None
        assert contrast.effect.low < ratio < contrast.effect.high < contrast.effect.low + 0.05
        assert contrast.verdict == "worse" and contrast.effect.basis == "pairs"
        assert (
            contrast.effect.p is not None
            and contrast.p_holm is not None
            and contrast.p_holm > contrast.effect.p
        )
    ahead = claim(comparison, "second", 4, against="third")
    assert ahead.neighbours and ahead.verdict == "better"
    (ranked_once,) = (c for c in comparison.conclusions if c.id == "rank")
    assert (ranked_once.slots["load"], ranked_once.slots["others"]) == ("4 sessions", "1 session")
    assert "worse" in ranked_once.text and len(ranked_once.text) < 160


def test_loads_with_other_verdicts_have_sentences_of_their_own() -> None:
    def verdicts_at(sessions: int, verdict: Verdict) -> list[Contrast]:
        found = claim(three, "second", sessions)
        return [found.model_copy(update={"verdict": verdict})]

    three = compare_variants(noisy(THREE))
    table = three.metrics[0]
    claims = [*verdicts_at(1, "no difference"), *verdicts_at(4, "worse")]
    changed = three.model_copy(update={"metrics": (table.model_copy(update={"claims": tuple(claims)}),)})
    texts = [c.text for c in summary(changed, noisy(THREE), [])]
    assert [t.partition(",")[0].partition(":")[0] for t in texts] == ["At 4 sessions", "At 1 session"]
    assert "worse" in texts[0] and "worse" not in texts[1] and "2 %" in texts[1]


def test_a_longer_response_is_worse_and_a_baseline_can_be_chosen() -> None:
    comparison = compare_variants(noisy(THREE), Options(baseline="second", metric="response_mean_ns", rung=4))
    assert [t.metric for t in comparison.metrics] == ["response_mean_ns"]
    assert {x.sessions for x in comparison.metrics[0].lines} == {4}
    assert claim(comparison, "third", 4, against="second").verdict == "worse"
    assert claim(comparison, "base", 4, against="second").verdict == "better"


def test_a_metric_has_the_short_name_that_a_history_knows() -> None:
    for name, column in (("p95", "response_p95_ns"), ("mean", "response_mean_ns"), ("calls", "calls_per_s")):
        comparison = compare_variants(noisy(THREE), Options(metric=name))
        assert [table.metric for table in comparison.metrics] == [column]
    with pytest.raises(UsageError) as caught:
        compare_variants(noisy(THREE), Options(metric="p99.0"))
    assert caught.value.cure is not None and "p99" in caught.value.cure


def test_an_invalid_window_takes_its_block_out_and_is_named() -> None:
    comparison = compare_variants(without_cells(noisy(THREE), "second-s4-r2"))
    assert claim(comparison, "second", 4).effect.n_variant == 5
    assert claim(comparison, "third", 4).effect.n_variant == 6
    (left_out,) = (c for c in comparison.conclusions if c.id == "left-out")
    assert left_out.cells == ("0019-lio-second-s4-r2",) and "cut short" in left_out.slots["reason"]


@pytest.mark.parametrize("variants", [("base", "second"), ("base", "second", "third")])
def test_a_lost_repeat_is_named_with_the_rest_of_its_pair(variants: tuple[str, ...]) -> None:
    run = without_cells(noisy(World(rungs=(1, 4), repeats=6, variants=variants)), "second-s4-r2")
    (lost,) = (c for c in compare_variants(run).conclusions if c.id == "lost-pairs")
    assert lost.case == ("pair" if len(variants) == 2 else "several")
    assert lost.text.startswith(
        "second against base at 4 sessions: over 5 of 6 repeats: 1 unusable is left out, with its partner."
    )
    assert lost.cells == tuple(c for c in run.tables["windows"]["cell"] if "second-s4-r2" in c)


def test_rates_beside_a_ratio_of_pairs_are_of_the_same_pairs() -> None:
    run = without_cells(
        noisy(World(rungs=(4,), repeats=6, variants=("base", "second")), spread=0.2), "second-s4-r2"
    )
    comparison = compare_variants(run)
    table, *legend = rungs.tables(replace(run, comparison=comparison), together=True)
    assert isinstance(table, Table)
    names = [column.head for column in table.columns]
    (base,) = (r for r in table.rows if r.cells[names.index("variant")].text == "base")
    line = next(x for x in comparison.metrics[0].lines if x.variant == "base")
    assert base.cells[names.index("n")].value == line.repeats == 5
    assert base.cells[names.index("LIO/s")].value == pytest.approx(line.mean)
    assert comparison.lost_pairs[0] in [b.text for b in legend if isinstance(b, Paragraph)]
    assert comparison.lost_pairs[0] not in comparison.notes


def test_all_loads_at_which_the_same_holds_are_named() -> None:
    run = noisy(World(rungs=(1, 2, 4), repeats=6, variants=("base", "second")))
    (rank,) = (c for c in compare_variants(run).conclusions if c.id == "rank")
    assert "The same holds at 1 and 2 sessions." in rank.text and rank.slots["sessions"] == [4, 1, 2]


def test_a_quantity_that_was_asked_for_is_named_in_the_answer() -> None:
    asked = compare_variants(noisy(THREE), Options(metric="mean"))
    assert asked.summary[0].startswith("At 4 sessions (response time, mean): ")
    assert compare_variants(noisy(THREE)).summary[0].startswith("At 4 sessions: ")


def test_a_quantity_that_is_not_known_of_all_is_compared_where_it_is() -> None:
    run = noisy(THREE)
    rates = run.tables["rates"]
    gone = rates.filter((rates["name"] != "cpu_per_call_ns") | (rates["variant"] != "third"))
    comparison = compare_variants(replace(run, tables={**run.tables, "rates": gone}))
    table = next(t for t in comparison.metrics if t.metric == "cpu_per_call_ns")
    assert {x.variant for x in table.lines} == {"base", "second"} and len(table.claims) == 2
    (unknown,) = (c for c in comparison.conclusions if c.id == "unknown-quantity")
    assert unknown.slots == {"quantity": "server CPU of a call", "variants": "third"}


def test_accounts_add_up_to_the_difference_and_the_largest_comes_first() -> None:
    comparison = compare_variants(noisy(THREE))
    why = next(w for w in comparison.why if (w.variant, w.sessions) == ("third", 4))
    added = [a for a in why.accounts if not a.inside]
    assert math.fsum(a.difference_s for a in added) == pytest.approx(why.difference_s)
    rate = {x.variant: x.mean for x in comparison.metrics[0].lines if x.sessions == 4}
    assert why.baseline_s == pytest.approx(4 / rate["base"], rel=0.02)  # sessions / rate
    sizes = [abs(a.difference_s) for a in added]
    assert sizes == sorted(sizes, reverse=True) and added[0].account in ("run", "runq")
    assert not {a.account for a in why.accounts} & {"run.user", "run.system"}
    assert all(a.low_s is not None and a.low_s <= a.difference_s for a in added)
    assert math.fsum(a.share or 0 for a in added) == pytest.approx(1)


def test_throttling_without_the_trace_is_shown_by_its_bound_and_never_added() -> None:
    run = noisy(THREE)
    ledger = run.tables["ledger"]
    third = account_rows(ledger, "runq").filter(variant="third")
    bound = third.with_columns(
        account=pl.lit("runq.throttled_bracket"), parent=pl.lit("runq"), aas=None, low=0.0, high=0.5
    )
    run_with_bound = replace(
        run, tables={**run.tables, "ledger": ledger.vstack(bound.cast(dict(ledger.schema)))}
    )
    plain, more = (
        next(w for w in compare_variants(r).why if (w.variant, w.sessions) == ("third", 4))
        for r in (run, run_with_bound)
    )
    throttled = more.accounts[-1]
    assert throttled.inside and throttled.share is None and throttled.baseline_s == 0
    assert throttled.variant_s == pytest.approx(0.5 * more.variant_s / 4, rel=0.05)
    assert more.difference_s == pytest.approx(plain.difference_s)


def test_events_that_a_later_version_renamed_spelled_otherwise_or_split_are_one_account() -> None:
    run = noisy(THREE)
    old = {"LWLock/BufferMapping": "LWLock/BufferContent", "IO/DataFileRead": "IO/WALSync"}
    new = {
        "LWLock/BufferMapping": "Buffer/BufferShared",
        "LWLock/ProcArray": "Buffer/BufferExclusive",
        "IO/DataFileRead": "IO/WalSync",
    }
    third = pl.col("variant") == "third"
    detail = pl.when(third).then(pl.col("detail").replace(new)).otherwise(pl.col("detail").replace(old))
    ledger = run.tables["ledger"].with_columns(detail=detail)
    tables = {**run.tables, "ledger": ledger, "wait_advice": advice().table()}
    comparisons = compare_variants(run), compare_variants(replace(run, tables=tables))
    plain, joined = (next(w for w in c.why if (w.variant, w.sessions) == ("third", 4)) for c in comparisons)
    before, after = ({a.detail: a for a in w.accounts if a.account == "sleep"} for w in (plain, joined))
    assert {*after} == {"Lock/transactionid", "LWLock/BufferContent", "LWLock/ProcArray", "IO/WALSync"}
    assert after["IO/WALSync"].difference_s == before["IO/DataFileRead"].difference_s
    parts = before["LWLock/BufferMapping"], before["LWLock/ProcArray"]
    content = after["LWLock/BufferContent"]
    assert content.baseline_s == parts[0].baseline_s
    assert content.variant_s == pytest.approx(sum(p.variant_s for p in parts))
    assert joined.difference_s == pytest.approx(plain.difference_s)
    (claim,) = (c for c in comparisons[1].conclusions if c.id == "renamed-waits")
    assert claim.text == (
        "The later version splits LWLock/BufferContent into several: the sum of Buffer/BufferExclusive and "
        "Buffer/BufferShared is compared with it, in one line."
    )


def test_a_repeat_that_does_not_fit_the_others_is_named_with_its_weight() -> None:
    run = noisy(THREE)
    assert "repeat-outlier" not in {c.id for c in compare_variants(run).conclusions}
    slow = pl.col("cell").str.contains("second-s4-r2") & pl.col("name").is_in(["work_per_s", "calls_per_s"])
    rates = run.tables["rates"].with_columns(value=pl.when(slow).then(pl.col("value") / 4).otherwise("value"))
    comparison = compare_variants(replace(run, tables={**run.tables, "rates": rates}))
    (odd,) = (c for c in comparison.conclusions if c.id == "repeat-outlier")
    assert (odd.case, odd.slots["repeats"], odd.slots["sample"]) == (
        "ratio",
        "2",
        "second to base at 4 sessions",
    )
    assert odd.cells == ("0019-lio-second-s4-r2",) and odd.slots["effect"].startswith("lowers it by 1")


def test_one_repeat_decides_nothing_and_a_claim_explains_it() -> None:
    comparison = compare_variants(results(replace(THREE, repeats=1)))
    assert {c.verdict for t in comparison.metrics for c in t.claims} == {"undecided"}
    assert ("few-repeats", "one") in {(c.id, c.case) for c in comparison.conclusions}


def test_the_smallest_p_is_of_the_quantity_that_ranks() -> None:
    """Four repeats reach 2 / C(8, 4) = 0.029; the three that know a percentile only 2 / C(7, 3) = 0.057."""
    world = World(rungs=(4,), repeats=4)
    first, second = (noisy(world, seed=n, id=f"20261121-{n}") for n in (1, 2))
    rates = second.tables["rates"]
    few = pl.col("cell").str.ends_with("r4") & pl.col("name").str.starts_with("response_p")
    value = pl.when(few).then(None).otherwise("value")
    fewer = replace(second, tables={**second.tables, "rates": rates.with_columns(value=value)})
    comparison = compare_runs(first, fewer)
    assert {c.effect.n_variant for t in comparison.metrics for c in t.claims} == {3, 4}
    assert "few-repeats" not in {c.id for c in comparison.conclusions}


def with_errors(run: Results, relative: float) -> Results:
    """The same with a standard error inside each window."""
    rates = run.tables["rates"]
    calls = rates.filter((rates["name"] == "calls_per_s") & (rates["scope"] == "rung"))
    more = [
        calls.with_columns(name=pl.lit(name), value=value)
        for name, value in (
            ("calls_per_s_se", calls["value"] * relative),
            ("effective_bins", calls["value"] * 0 + 8),
        )
    ]
    return replace(run, tables={**run.tables, "rates": rates.vstack(more[0]).vstack(more[1])})


def test_one_repeat_has_an_interval_of_the_window_alone() -> None:
    comparison = compare_variants(with_errors(results(replace(THREE, repeats=1)), 0.001))
    contrast = claim(comparison, "third", 4)
    assert contrast.effect.basis == "within the window only" and contrast.verdict == "undecided"
    assert contrast.effect.low is not None and contrast.effect.low < 0.6 < (contrast.effect.high or 0) < 0.62
    assert contrast.effect.p is None and contrast.p_holm is None


def test_repeats_that_agree_by_luck_get_the_windows_error() -> None:
    plain = noisy(THREE, spread=1e-6)
    lucky, honest = (
        claim(compare_variants(r), "second", 4).effect for r in (plain, with_errors(plain, 0.02))
    )
    assert honest.floored and honest.low is not None and honest.high is not None
    half = (honest.high - honest.low) / 2
    assert half == pytest.approx(2.571 * 0.8 * 0.02 * math.sqrt(2 / 6), rel=0.02)  # t of 5 degrees
    assert lucky.high is not None and lucky.low is not None and lucky.high - lucky.low < 1e-4


@pytest.mark.parametrize(
    ("starts", "case", "words"),
    [
        ((4, 4), "several", "4 starts; every repeat"),
        ((2, 3), "several", "base 2"),
        ((1, 1), "one", "1 start."),
    ],
)
def test_a_comparison_of_servers_says_how_often_each_was_started(
    starts: tuple[int, int], case: str, words: str
) -> None:
    run = noisy(replace(THREE, variants=("base", "second")))
    named = [Variant(name="base", server="17"), Variant(name="second", server="18")]
    plan = run.plan.model_copy(update={"variants": tuple(named), "order": "ladder"})
    applied = {v.name: Applied(starts=n) for v, n in zip(named, starts, strict=True)}
    run = replace(run, plan=plan, info=run.info.model_copy(update={"applied": applied}))
    notes = {c.id: c for c in compare_variants(run).conclusions}
    assert notes["server-starts"].case == case
    assert words in notes["server-starts"].text
    assert "no-alternation" not in notes


def test_settings_that_differ_between_servers_are_counted_with_where_they_are_listed() -> None:
    run = results(World())
    both = dict.fromkeys(("pg16", "pg18"), run.environment.server)
    differing = [
        SettingDifference(name="jit", values={"pg16": "on", "pg18": "off"}, defaults={}),
        SettingDifference(name="io_method", values={"pg16": None, "pg18": "worker"}, defaults={}),
    ]
    changed = {"servers": both, "differences": tuple(differing)}
    servers = replace(run, environment=run.environment.model_copy(update=changed))
    (line,) = server_differences(servers, "pg16")
    assert line.what == "pg18: settings and defaults"
    assert line.variant == f"2 settings differ in value or default: dbdyno report {run.info.id}"


def test_two_runs_are_independent_samples_and_their_differences_are_listed() -> None:
    world = replace(THREE, variants=("base",))
    a, b = noisy(world, drift=0, id="first"), noisy(replace(world, cpus=3), drift=0, seed=9, id="other")
    comparison = compare_runs(a, b)
    contrast = claim(comparison, "B", 4, against="A")
    assert contrast.effect.basis == "samples" and 5 <= (contrast.effect.degrees or 0) <= 10
    assert contrast.verdict == "better" and 1.4 < (contrast.effect.ratio or 0) < 1.6  # 3 CPUs against 2
    assert comparison.runs == ("first", "other") and "no-alternation" in {
        c.id for c in comparison.conclusions
    }
    assert any(d.what.endswith("usable_cpus") for d in comparison.differences)


def test_other_load_is_a_difference_of_two_runs_and_a_process_id_is_none() -> None:
    quiet = noisy(replace(THREE, variants=("base",)), id="quiet")

    def run_beside(used: float, others: float, pid: int) -> Results:
        row: dict[str, Any] = {"cell": "c", "quantity": "cpu_used_machine", "source": "host"}
        row |= {"value": used, "relative_difference": used / (used - others) - 1, "verdict": "differs"}
        table = pl.DataFrame([row]).pipe(
            lambda t: pl.concat([quiet.tables["data_sources"].clear(), t], how="diagonal_relaxed")
        )
        server = quiet.environment.server.model_copy(update={"here_detail": f"process {pid}"})
        environment = quiet.environment.model_copy(update={"server": server})
        info = quiet.info.model_copy(update={"id": f"beside-{pid}"})
        return replace(
            quiet, info=info, environment=environment, tables={**quiet.tables, "data_sources": table}
        )

    differences = compare_runs(run_beside(1.5, 0.04, 3), run_beside(2.0, 1.7, 4)).differences
    listed = {d.what: (d.baseline, d.variant) for d in differences}
    assert listed["CPUs used by other processes (mean)"] == ("0.0", "1.7")
    assert not any("process 4" in variant for _, variant in listed.values())
    assert not compare_runs(run_beside(1.5, 0.04, 3), run_beside(1.6, 0.02, 4)).differences


def test_runs_with_common_variants_are_compared_variant_by_variant() -> None:
    a, b = noisy(THREE, id="first"), noisy(replace(THREE, variants=("base", "second")), id="other")
    assert {c.series for c in compare_runs(a, b).metrics[0].claims} == {"base", "second"}


def test_mistakes_are_named_with_their_cure() -> None:
    single = noisy(replace(THREE, variants=("base",)), id="single")
    far = noisy(World(rungs=(7,), repeats=3), id="far")
    for wrong, word in (
        (lambda: compare_variants(single), "one variant"),
        (lambda: compare_runs(single, single), "twice"),
        (lambda: compare_runs(single, far), "in common: their numbers of sessions differ"),
        (lambda: compare_variants(noisy(THREE), Options(baseline="thrd")), "thrd"),
        (lambda: compare_variants(noisy(THREE), Options(rung=3)), "3 sessions"),
        (lambda: compare_variants(noisy(THREE), Options(metric="work_per_s_")), "work_per_s_"),
        (lambda: compare_variants(noisy(THREE), Options(metric="client_cpu_per_call_ns")), "known are"),
        (lambda: compare_variants(without_cells(noisy(THREE), "-base-")), "no rung"),
    ):
        with pytest.raises(UsageError) as caught:
            wrong()
        assert word in str(caught.value) and caught.value.cure


def _named(results: Results, name: str) -> Results:
    return replace(results, info=results.info.model_copy(update={"name": name, "id": f"20261121-{name}"}))


def test_runs_without_a_common_load_name_the_cause() -> None:
    here = _named(noisy(World(rungs=(4,), repeats=3)), "here")
    other = {n: here.tables[n].with_columns(workload=pl.lit("cpu")) for n in ("windows", "rungs")}
    rungs = here.tables["rungs"].with_columns(errors=pl.lit(9), calls=pl.lit(0))
    for name, b, words in (
        ("elsewhere", replace(here, tables={**here.tables, **other}), "common: their workloads differ"),
        ("lost", without_cells(here, "-s4-"), "common: none of lost is usable"),
        ("bad", replace(here, tables={**here.tables, "rungs": rungs}), "all calls of bad failed"),
    ):
        with pytest.raises(UsageError) as caught:
            compare_runs(here, _named(b, name))
        assert words in caught.value.message and "20261121" not in caught.value.message


def effect(ratio: float, low: float, high: float) -> Effect:
    return Effect(ratio=ratio, low=low, high=high, std_err=(high - low) / 5, n_baseline=6, n_variant=6)


def test_an_interval_decides_between_three_verdicts() -> None:
    assert judge(effect(1.1, 1.05, 1.15), 0.001, 0.02, True).verdict == "better"
    assert judge(effect(1.1, 1.05, 1.15), 0.001, 0.02, False).verdict == "worse"
    assert judge(effect(1.1, 1.05, 1.15), 0.06, 0.02, True, 20).verdict == "undecided"
    assert judge(effect(1.0, 0.99, 1.01), 0.9, 0.02, True).verdict == "no difference"
    within_margin = judge(effect(1.01, 1.005, 1.015), 0.0001, 0.02, True)
    assert within_margin.verdict == "no difference" and "less than the margin" in within_margin.note
    stopped = judge(effect(1.1, 1.05, 1.15), 0.03, 0.02, True, 1, ALPHA_STOPPED)
    assert (stopped.verdict, stopped.because) == ("undecided", "p above 0.025")
    assert judge(effect(1.1, 1.05, 1.15), 0.06, 0.02, True, 20).because
    assert judge(Effect(ratio=2.0, reason="why"), None, 0.02, True).note == "why"


@pytest.mark.parametrize(("ratio", "further"), [(1.03, 2), (1.005, 2), (3.0, 1)])
def test_repeats_that_would_decide_are_at_least_those_that_a_ratio_needs(ratio: float, further: int) -> None:
    """A ratio that modes could cause needs four, however small the spread of two was."""
    two = Effect(
        ratio=ratio, low=0.9, high=9.0, std_err=0.001, n_baseline=2, n_variant=2, degrees=1, basis="pairs"
    )
    assert judge(two, 0.06, 0.02, True).further_repeats == further


def test_tightness_is_the_widest_half_width_of_a_ratio() -> None:
    run = noisy(THREE, spread=0.004)
    claims = [c.effect for c in compare_variants(run).metrics[0].claims if not c.neighbours]
    widest = max(((e.high or 9) - (e.low or 0)) / 2 / (e.ratio or 1) for e in claims)
    tightness = tight_enough(run.tables, run.plan, 0.02)
    assert tightness.widest == pytest.approx(widest) and tightness.done and tightness.repeats == 6
    assert not tight_enough(run.tables, run.plan, widest * 0.99).done
    assert tight_enough(run.tables, run.plan, widest * 1.01).done


def test_three_repeats_are_never_enough_and_an_unmeasured_rung_is_not_tight() -> None:
    run = noisy(replace(THREE, repeats=3), spread=1e-5)
    tightness = tight_enough(run.tables, run.plan, 0.5)
    assert not tightness.done and tightness.widest is not None and tightness.widest < 0.5
    gone = without_cells(noisy(THREE), "-third-s4-")
    lost = tight_enough(gone.tables, gone.plan, 0.5)
    assert not lost.done and lost.widest is None and lost.where == "third, 4 sessions"
    assert tight_enough({n: rows(n, []) for n in ("windows", "rates")}, run.plan, 0.5).repeats == 0


def test_with_one_variant_the_mean_rate_must_be_tight() -> None:
    run = noisy(World(rungs=(2,), repeats=5), drift=0.03)
    rates = run.tables["rates"]
    values = rates.filter((rates["name"] == "work_per_s") & (rates["scope"] == "rung"))["value"]
    half = 2.776445105 * float(values.std() or 0) / math.sqrt(5) / float(values.mean() or 1)  # type: ignore[arg-type]
    assert tight_enough(run.tables, run.plan, 0.02).widest == pytest.approx(math.sinh(half))  # on logarithms
    assert rule("2%").slots == {"least": 4, "target": "2%", "alpha": ALPHA_STOPPED}


@pytest.mark.parametrize(("neighbours", "tau"), [(0.6, 4.0), (0.0, 1.0), (-0.5, 1 / 3)])
def test_the_autocorrelation_time_of_a_first_order_process(neighbours: float, tau: float) -> None:
    """(1 + a) / (1 - a): Sokal (1997), Monte Carlo Methods in Statistical Mechanics, 3."""
    chance = np.random.default_rng(4)
    series = chance.normal(size=50_000)
    for n in range(1, len(series)):
        series[n] += neighbours * series[n - 1]
    assert integrated_time(series - series.mean()) == pytest.approx(tau, rel=0.1)
    correlation = correlated(series.tolist())
    assert correlation is not None and correlation.effective == pytest.approx(len(series) / tau, rel=0.1)


def test_few_or_constant_values_have_no_autocorrelation() -> None:
    assert correlated([1.0, 2.0, 3.0, 4.0]) is None
    flat = correlated([3.0] * 8)
    assert flat is not None and (flat.std_err, flat.effective) == (0.0, 8.0)


@pytest.mark.whole
def test_equal_variants_differ_in_at_most_five_per_cent_of_runs() -> None:
    """Simulated with drift between blocks and windows whose seconds resemble each other; expected at most 25
    of 500, and 35 only once in 100 such tests. Intervals hold a true effect as often as they say."""
    spread = Simulated(rungs=1, variants=3, between=0.02, within=0.002)
    assert outcome(spread, 500).false_runs <= 0.07
    assert outcome(Simulated(), 150).false_runs <= 0.08
    with_effect = outcome(replace(spread, effect=1.05), 300, seed=5)
    assert 0.925 <= with_effect.covered <= 0.985 and with_effect.decided > 0.3


def test_two_modes_of_the_machine_are_no_difference_however_few_the_repeats() -> None:
    """Placement on CPUs makes such modes: three repeats of each side may fall apart cleanly by chance."""
    for repeats in (2, 3, 5):
        world = Simulated(repeats=repeats, modes=1.5, between=0.01, within=0.002)
        assert outcome(world, 150).false_runs <= 0.08, repeats


def test_without_pairs_drift_would_be_taken_for_an_effect() -> None:
    """The same runs as two samples: intervals swell by the drift, so nothing is decided."""
    world = Simulated(rungs=1, variants=2, between=0.01, within=0.002, effect=1.05, repeats=6, drift=0.2)
    together, apart = outcome(world, 100), outcome(replace(world, paired=False), 100)
    assert together.decided > 0.8 and apart.decided < 0.2


def test_runs_that_stop_when_tight_stay_honest() -> None:
    ended, repeats = stopped(Simulated(between=0.02, within=0.002), 150, 0.03)
    assert 4 <= repeats < 12 and ended.false_runs <= 0.09 and ended.covered >= 0.88
