"""Gates: which rules are forms, and whether a comparison, a history or a run keeps them."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.compare_runs import noisy, without_cells
from tests.unit.report_results import World, results

from dbdyno.conclude import compare, gates
from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.compare import samples
from dbdyno.conclude.snapshots.trend import concluded
from dbdyno.model.errors import EXIT_GATE, DbdynoError, StoreError, TargetError, UsageError
from dbdyno.model.plan.kinds import COMMANDS, KINDS
from dbdyno.model.results.comparison import Contrast, Effect, Verdict
from dbdyno.model.results.gate import Gate, State
from dbdyno.model.results.results import Results
from dbdyno.model.results.trend import FIGURES, Figure, Point, Trend
from dbdyno.present import junit
from dbdyno.present.figures.gate import record, summary, words

pytestmark = pytest.mark.queries

TWO = World(rungs=(1, 4), repeats=6, variants=("base", "second"))


def gate_of(results: Results, *rules: str, margin: float = 0.02) -> Gate:
    comparison = compare.compare_variants(results, compare.Options(margin))
    return gates.of_comparison(gates.parse(rules, "comparison", margin), comparison, (results,))


def of_samples(a: list[float], b: list[float], *rules: str, higher: bool = False) -> Gate:
    comparison = compare.compare_samples(a, b, higher_is_better=higher)
    return gates.of_comparison(gates.parse(rules, "comparison"), comparison)


def test_the_exit_code_is_no_other_errors() -> None:
    others = [e.exit_code for e in (DbdynoError, UsageError, TargetError, StoreError)]
    assert EXIT_GATE == 7 and EXIT_GATE not in (0, 5, 6, 130, *others)


@pytest.mark.parametrize(
    ("rule", "cure"),
    [
        ("wrose", "did you mean 'worse'?"),
        ("wrose:5%", "did you mean 'worse'?"),
        ("p9:worse", "did you mean 'p99'?"),
        ("calls_per_sec:different", "did you mean 'calls_per_s'?"),
        ("zzz:worse", "known: throughput, calls, mean"),
        ("wal_byte:worse", "did you mean 'wal_bytes_per_call'?"),
        ("claim:erors", "did you mean 'errors'?"),
        ("claim:", "claim:ID"),
        ("worse:5", "in per cent: 5%"),
        ("worse:0%", "leave it out"),
        ("worse:1%", "--margin 1%"),
        ("calls:worse:100%", "p99:worse:150%"),
        ("p99:better:100%", "smaller share"),
        ("change", "worse or different"),
        ("p99", "did you mean 'p99:worse'?"),
        ("p99:5%", "did you mean 'p99:worse:5%'?"),
        ("p999:5%", "did you mean 'p99.9:worse:5%'?"),
        ("throughpt", "did you mean 'throughput:worse'?"),
        ("response_p99_ns", "did you mean 'response_p99_ns:worse'?"),
        ("slower", "did you mean 'worse'?"),
        ("faster:5%", "did you mean 'better:5%'?"),
        ("p99:slower:5%", "did you mean 'p99:worse:5%'?"),
        ("errors", "did you mean 'claim:errors'?"),
        ("zzz", "the forms: worse"),
        ("", "the forms: worse"),
        ("worse:p99:5%:6%", "the forms: worse"),
        ("unknown", "--fail-on worse"),
        ("unknown:5%", "the forms: worse"),
    ],
)
def test_what_is_no_rule_is_refused_with_a_cure(rule: str, cure: str) -> None:
    with pytest.raises(UsageError) as caught:
        gates.parse([rule], "comparison")
    assert caught.value.cure is not None and cure in caught.value.cure


@pytest.mark.parametrize(
    ("rule", "cure"),
    [
        ("worse", "use change:worse"),
        ("p99:worse", "use --figure p99 --fail-on change:worse"),
        ("change:wrose", "did you mean 'worse'?"),
        ("chnage", "did you mean 'change'?"),
        ("slower:5%", "did you mean 'change:worse:5%'?"),
        ("change:slower", "did you mean 'change:worse'?"),
    ],
)
def test_a_history_has_rules_of_its_own(rule: str, cure: str) -> None:
    with pytest.raises(UsageError) as caught:
        gates.parse([rule], "trend")
    assert caught.value.cure is not None and cure in caught.value.cure


def test_short_names_are_those_of_a_trend_and_longer_ones_those_of_a_comparison() -> None:
    names = ["p99", "response_p99_ns", "p99.9", "p99.99", "calls", "mean", "cpu_per_call", "lio_per_s"]
    assert [gates.figure_of(n) for n in names] == [
        *("response_p99_ns", "response_p99_ns", "response_p999_ns", "response_p9999_ns"),
        *("calls_per_s", "response_mean_ns", "cpu_per_call_ns"),
        "throughput",
    ]


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        ("worse", "failed"),  # the law: second has 0.8 times the throughput
        ("worse:5%", "failed"),
        ("worse:30%", "passed"),
        ("better", "passed"),
        ("different", "failed"),
        ("different:30%", "passed"),
        ("calls_per_s:worse:15%", "failed"),
        ("mean:worse:20%", "failed"),  # 1 / 0.8 = 1.25 times the response time
        ("mean:worse:30%", "passed"),
        ("mean:better", "passed"),
    ],
)
def test_a_known_effect_of_four_fifths(rule: str, state: State) -> None:
    gate = gate_of(noisy(TWO), rule)
    assert [o.state for o in gate.outcomes] == [state]
    assert gate.exit_code == (EXIT_GATE if state == "failed" else 0)
    for finding in gate.outcomes[0].findings:
        assert finding.low is not None and finding.high is not None and finding.ratio is not None
        assert finding.low < finding.ratio < finding.high and finding.baseline == "base"


def _contrast(effect: Effect, verdict: Verdict) -> Contrast:
    return Contrast(
        workload="lio", sessions=4, baseline="base", variant="second", effect=effect, verdict=verdict
    )


def _judged(rule: str, effect: Effect, verdict: Verdict) -> State:
    return _gate_of(_contrast(effect, verdict), rule).state


def _gate_of(contrast: Contrast, rule: str) -> Gate:
    comparison = compare.compare_variants(noisy(TWO))
    table = comparison.metrics[0]
    changed = comparison.model_copy(
        update={"metrics": (table.model_copy(update={"claims": (contrast,)}), *comparison.metrics[1:])}
    )
    return gates.of_comparison(gates.parse([rule], "comparison"), changed)


@pytest.mark.parametrize(
    ("rule", "ratio", "low", "high", "verdict", "state"),
    [
        ("worse:5%", 0.95, 0.92, 0.98, "worse", "failed"),  # exactly 5 %
        ("worse:5%", 0.96, 0.93, 0.99, "worse", "cannot tell"),  # 5 % is within the interval
        ("worse:5%", 0.97, 0.955, 0.985, "worse", "passed"),  # surely worse, and surely by less
        ("worse:5%", 0.90, 0.79, 1.02, "undecided", "cannot tell"),
        ("worse:5%", 1.00, 0.96, 1.04, "undecided", "passed"),
        ("worse", 1.00, 0.96, 1.04, "undecided", "cannot tell"),  # 2 %, the margin, is within
        ("worse", 0.985, 0.981, 0.989, "no difference", "passed"),
        ("worse", 1.03, 1.01, 1.05, "better", "passed"),
        ("different", 1.03, 1.01, 1.05, "better", "failed"),
        ("different:5%", 1.03, 1.01, 1.06, "better", "cannot tell"),
        ("different:5%", 1.03, 1.01, 1.04, "better", "passed"),
        ("better:5%", 1.06, 1.01, 1.11, "better", "failed"),
    ],
)
def test_the_interval_decides_between_three_states(
    rule: str, ratio: float, low: float, high: float, verdict: Verdict, state: State
) -> None:
    assert _judged(rule, Effect(ratio=ratio, low=low, high=high, basis="pairs"), verdict) == state


def test_one_repeat_cannot_tell_however_large_the_difference() -> None:
    one = results(World(rungs=(1, 4), variants=("base", "second")))
    gate = gate_of(one, "worse:5%")
    assert gate.state == "cannot tell" and gate.exit_code == 0
    verdict, first = summary(gate, "")[:2]
    assert verdict == "gate cannot tell: the build passes (--fail-on unknown would fail it)"
    assert "1 repeat is too few" in first
    strict = gate_of(one, "worse:5%", "unknown")
    assert strict.state == "failed" and strict.exit_code == EXIT_GATE


def test_a_rule_that_cannot_tell_names_the_repeats_that_would() -> None:
    """The interval excludes 0.95 as soon as its half, on the scale of logarithms, is below log(0.97 / 0.95)
    = 0.0208. The standard error is 0.02 with 4 repeats of a side, so with 15 the half is 0.01033 times 2.048
    (Student's quantile of 28 degrees) = 0.0212, and with 16 it is 0.01 times 2.042 = 0.0204."""
    effect = Effect(
        ratio=0.97, low=0.924, high=1.018, std_err=0.97 * 0.02, n_baseline=4, n_variant=4, basis="samples"
    )
    (finding,) = _gate_of(_contrast(effect, "undecided"), "worse:5%").outcomes[0].findings
    assert (finding.state, finding.further_repeats) == ("cannot tell", 16 - 4)
    text = words(finding)
    assert "5 % worse is not excluded, 12 more repeats of each side would probably tell" in text
    worse = effect.model_copy(update={"ratio": 0.93, "low": 0.87, "high": 1.01})
    undecided = _contrast(worse, "undecided").model_copy(update={"further_repeats": 3})
    (finding,) = _gate_of(undecided, "worse:5%").outcomes[0].findings
    assert finding.further_repeats == 3  # it fails as soon as the difference is certain
    one = Effect(ratio=0.9, n_baseline=1, n_variant=1)
    (finding,) = _gate_of(_contrast(one, "undecided"), "worse:5%").outcomes[0].findings
    assert finding.further_repeats is None


def test_the_lines_name_both_runs() -> None:
    one = World(rungs=(1, 4), repeats=6)
    a, b = noisy(one, id="20261121-a", seed=1), noisy(one, id="20261121-b", seed=2)
    named = [replace(r, info=r.info.model_copy(update={"name": n})) for r, n in ((a, "main"), (b, "slow"))]
    rules = gates.parse(["worse"], "comparison")
    gate = gates.of_comparison(rules, compare.compare_runs(*named), named)
    assert summary(gate, "")[1] == "A is main; B is slow"
    same = gates.of_comparison(rules, compare.compare_runs(a, b), (a, b))  # one time for both
    assert [name.rpartition(", ")[2] for _, name in same.sides] == ["run 20261121-a", "run 20261121-b"]


def test_a_run_that_was_cut_short_is_a_warning() -> None:
    one = World(rungs=(1, 4), repeats=6)
    a, b = noisy(one, id="20261121-a", seed=1), noisy(one, id="20261121-b", seed=2)
    cut = replace(b, info=b.info.model_copy(update={"status": "cut short"}))
    gate = gates.of_comparison(
        gates.parse(["worse:30%"], "comparison"), compare.compare_runs(a, cut), (a, cut)
    )
    assert gate.warnings[0] == "B was cut short"
    lost = without_cells(cut, "-s4-")
    gate = gates.of_comparison(
        gates.parse(["worse:30%"], "comparison"), compare.compare_runs(a, lost), (a, lost)
    )
    assert gate.outcomes[0].findings[0].reason == "nothing usable to compare; B was cut short"
    assert "warnings that no rule names: B was cut short" in "\n".join(summary(gate, ""))


def test_a_claim_that_the_judged_never_have_is_refused() -> None:
    a, b = [10.0, 10.1, 9.9, 10.2, 9.8], [12.0, 12.1, 11.9, 12.2, 11.8]
    with pytest.raises(UsageError, match="files of numbers never have this claim"):
        of_samples(a, b, "claim:errors")
    assert of_samples(a, b, "claim:samples-answer").state == "failed"
    with pytest.raises(UsageError, match="histories never have this claim"):
        gates.of_trend(gates.parse(["claim:errors"], "trend"), _history([1.0, 2.0]))
    with pytest.raises(UsageError, match="snapshots never have this claim"):
        gates.of_comparison(gates.parse(["claim:errors"], "claims"), None)
    with pytest.raises(UsageError, match="runs of the kind database never have this claim"):
        gate_of(noisy(TWO), "claim:snapshot-deadlocks")
    commands = next(k for k in KINDS if k.name == COMMANDS)
    with pytest.raises(UsageError, match="runs of commands never have this claim"):
        gates.check_claims(gates.parse(["claim:errors"], "comparison"), commands)
    gates.check_claims(gates.parse(["claim:executions-failed", "claim:rank"], "comparison"), commands)


def test_the_claims_of_samples_are_all_of_them() -> None:
    ids = re.findall(r'claim\("([\w-]+)"', Path(samples.__file__).read_text("utf-8"))
    assert set(ids) == set(samples.CLAIMS)


def test_a_claim_that_fails_has_its_sentence() -> None:
    slots = {"share": 0.3, "place": "at 4 sessions", "measurements": "6 of 12 measurements"}
    run = replace(results(TWO), findings=(claim("disturbed", slots, 0.3, case="measured"),))
    gate = gates.of_run(gates.parse(["claim:disturbed"], "comparison"), run, None)
    assert "claim:disturbed  disturbed: The machine was not quiet: others took 30 %" in summary(gate, "")[1]


def test_noise_fails_a_gate_in_at_most_five_per_cent_of_comparisons() -> None:
    """Two samples of one population: of 200, 5 % and three standard deviations of the binomial are 19."""
    chance = random.Random(7)
    samples = [[chance.gauss(100, 5) for _ in range(6)] for _ in range(200)]
    failures = 0
    for i in range(200):
        other = [chance.gauss(100, 5) for _ in range(6)]
        failures += of_samples(samples[i], other, "worse").exit_code == EXIT_GATE
    assert failures <= 19


def test_files_of_numbers_have_one_figure() -> None:
    a, b = [10.0, 10.1, 9.9, 10.2, 9.8], [12.0, 12.1, 11.9, 12.2, 11.8]
    assert of_samples(a, b, "worse:15%").exit_code == EXIT_GATE
    assert of_samples(a, b, "worse", higher=True).exit_code == 0
    assert of_samples(a, [3 * v for v in a], "worse:150%").exit_code == EXIT_GATE  # lower is better
    with pytest.raises(UsageError, match="no figure falls by 100 %"):
        of_samples(a, b, "worse:100%", higher=True)
    with pytest.raises(UsageError, match="files have one figure"):
        of_samples(a, b, "p99:worse")


def test_lines_of_files_say_which_direction_is_better() -> None:
    a, b = [10.0, 10.1, 9.9, 10.2, 9.8], [12.0, 12.1, 11.9, 12.2, 11.8]
    for higher, text in ((False, "lower is better"), (True, "higher is better")):
        line = summary(of_samples(a, b, "worse:5%", higher=higher), "")[1]
        assert line.endswith(f", {text}")


def test_blanks_within_a_share_are_read() -> None:
    assert gates.parse(["throughput : worse : 5 %"], "comparison")[0].share == 0.05


def test_a_line_has_the_rule_s_own_word_for_its_figure() -> None:
    for rule in ("throughput:worse", "calls:worse", "calls_per_s:worse"):
        assert f": {rule.partition(':')[0]} 0." in summary(gate_of(noisy(TWO), rule), "")[1]


def test_warnings_have_a_few_words_and_their_sentence() -> None:
    slots = {"used": 1.68, "place": "at 1 session, repeat 4", "measurements": "1 measurement", "who": ""}
    run = noisy(TWO)
    others = claim("foreign-load", slots, 1.68, case="run", severity="warning")
    run = replace(run, findings=(others,))
    gate = gate_of(run, "worse:30%")
    assert "foreign-load (other processes 1.68 CPUs at 1 session, repeat 4)" in summary(gate, "")[-1]
    xml = junit.of_gate(gate, "x", datetime(2026, 11, 30, tzinfo=UTC)).decode()
    sentence = "Other processes used 1.68 CPUs at 1 session, repeat 4 (1 measurement affected)"
    assert f'message="{sentence}; no rule names it"' in xml


def test_a_load_that_was_lost_does_not_pass_in_silence() -> None:
    run = without_cells(noisy(TWO), "second-s4")
    gate = gate_of(run, "better")
    lost = [f for f in gate.outcomes[0].findings if f.state == "cannot tell"]
    assert [(f.place, f.reason) for f in lost] == [("second at 4 sessions", "nothing usable to compare")]


def test_a_load_that_the_second_run_lost_does_not_pass_in_silence() -> None:
    one = World(rungs=(1, 4), repeats=6)
    a, b = noisy(one, id="20261121-a", seed=1), without_cells(noisy(one, id="20261121-b", seed=2), "-s4-")
    comparison = compare.compare_runs(a, b)
    rules = gates.parse(["better"], "comparison")
    gate = gates.of_comparison(rules, comparison, (a, b))
    assert ("B at 4 sessions", "cannot tell") in [(f.place, f.state) for f in gate.outcomes[0].findings]
    alone = gates.of_comparison(rules, comparison, (a, b), sessions=1)
    assert "B at 4 sessions" not in [f.place for f in alone.outcomes[0].findings]


def test_a_variant_that_the_second_run_did_not_reach_does_not_pass_in_silence() -> None:
    a, whole = noisy(TWO, id="20261121-a", seed=1), noisy(TWO, id="20261121-b", seed=2)
    windows = whole.tables["windows"]
    b = replace(whole, tables={**whole.tables, "windows": windows.filter(windows["variant"] == "base")})
    gate = gates.of_comparison(gates.parse(["better"], "comparison"), compare.compare_runs(a, b), (a, b))
    lost = [f.place for f in gate.outcomes[0].findings if f.reason == "nothing usable to compare"]
    assert lost == ["second, B at 1 session", "second, B at 4 sessions"]


def test_a_figure_that_a_variant_lacks_cannot_be_told() -> None:
    three = World(rungs=(4,), repeats=6, variants=("base", "second", "third"))
    run = noisy(three)
    rates = run.tables["rates"]
    lacking = rates.filter(~(rates["cell"].str.contains("third") & (rates["name"] == "response_mean_ns")))
    gate = gate_of(replace(run, tables={**run.tables, "rates": lacking}), "mean:better")
    assert {(f.place, f.state) for f in gate.outcomes[0].findings} == {
        ("second at 4 sessions", "passed"),
        ("third at 4 sessions", "cannot tell"),
    }


def _lacking(name: str) -> Results:
    run = noisy(TWO)
    return replace(
        run, tables={**run.tables, "rates": run.tables["rates"].filter(run.tables["rates"]["name"] != name)}
    )


def test_a_figure_that_is_not_compared_is_an_error_that_names_the_others() -> None:
    with pytest.raises(UsageError, match="cpu_per_call is not known") as caught:
        gate_of(_lacking("cpu_per_call_ns"), "cpu_per_call:worse")
    assert "throughput, calls, mean" in str(caught.value.cure)


def test_a_percentile_of_too_few_calls_cannot_be_told() -> None:
    """What was measured is not thrown away for a slow machine's sake: with more calls it would be known."""
    gate = gate_of(_lacking("response_p99_ns"), "p99:worse", "worse:30%")
    assert gate.state == "cannot tell" and len(gate.outcomes[0].findings) == 2
    text = words(gate.outcomes[0].findings[0])
    assert text == "second at 1 session: p99, not known there: a measurement needs 1,000 calls for it"


def test_a_run_without_a_usable_measurement_is_an_error() -> None:
    run = without_cells(noisy(TWO), "lio")
    with pytest.raises(UsageError, match="no usable measurement"):
        gates.of_run(gates.parse(["claim:errors"], "comparison"), run, None)


def test_claims_of_a_run_fail_by_id_with_or_without_its_end() -> None:
    slots = {"count": 3, "calls": 100, "code": "40001", "message": "could not serialize"}
    run = replace(results(TWO), findings=(claim("errors", slots, 3, each="40001"),))
    for rule in ("claim:errors", "claim:errors-40001"):
        assert gates.of_run(gates.parse([rule], "comparison"), run, None).exit_code == EXIT_GATE
    assert gates.of_run(gates.parse(["claim:errors-99999"], "comparison"), run, None).exit_code == 0
    cut = replace(run, info=run.info.model_copy(update={"status": "cut short"}))
    assert gates.of_run(gates.parse(["claim:errors-99999"], "comparison"), cut, None).state == "cannot tell"


def test_warnings_that_no_rule_names_are_listed() -> None:
    slots = {"count": 3, "calls": 100, "code": "40001", "message": "could not serialize"}
    failed = claim("errors", slots, 3, each="40001")
    run = replace(noisy(TWO), findings=(failed, claim("executions-agree", {"calls": 5.0}, case="counted")))
    assert gate_of(run, "better").warnings == ("errors-40001",)
    assert "errors-40001" in summary(gate_of(run, "better"), "")[-1]
    assert gate_of(run, "better", "claim:errors").warnings == ()


def _history(values: list[float], figure: Figure = FIGURES["p95"]) -> Trend:
    day = datetime(2026, 11, 1, tzinfo=UTC)
    points = [Point(f"run{i}", "", day + timedelta(days=i), v, 4) for i, v in enumerate(values)]
    return concluded(Trend(figure, "ns", "lio at 4 sessions", "8 CPUs", points))


def _level(seed: int, before: float, after: float) -> list[float]:
    chance = random.Random(seed)
    return [(before if i < 12 else after) * (1 + chance.gauss(0, 0.01)) for i in range(24)]


@pytest.mark.parametrize(
    ("rule", "after", "state"),
    [
        ("change", 120.0, "failed"),
        ("change", 100.0, "passed"),
        ("change:worse", 120.0, "failed"),
        ("change:worse", 80.0, "passed"),
        ("change:better", 80.0, "failed"),
        ("change:10%", 120.0, "failed"),
        ("change:30%", 120.0, "passed"),
        ("change:worse:10%", 120.0, "failed"),
        ("claim:trend-change", 120.0, "failed"),
        ("claim:trend-change", 100.0, "passed"),
    ],
)
def test_a_change_of_a_history(rule: str, after: float, state: State) -> None:
    assert gates.of_trend(gates.parse([rule], "trend"), _history(_level(3, 100.0, after))).state == state


def test_a_young_history_cannot_tell_and_a_figure_without_direction_is_refused() -> None:
    young = gates.of_trend(gates.parse(["change"], "trend"), _history([1.0, 2.0]))
    assert young.state == "cannot tell" and "2 runs" in young.outcomes[0].findings[0].reason
    neither = _history(_level(3, 1.0, 2.0), Figure("Inserts", "ins_ps", None, "/s"))
    with pytest.raises(UsageError, match="neither better nor worse"):
        gates.of_trend(gates.parse(["change:worse"], "trend"), neither)


def test_the_summary_begins_with_the_verdict_and_fits_ten_lines() -> None:
    rules = [f"{f}:worse:{n}%" for n in (5, 10, 30) for f in ("calls_per_s", "mean", "p50", "throughput")]
    gate = gate_of(noisy(TWO), *rules, "claim:errors")
    lines = summary(gate, "dbdyno compare last -o comparison.html")
    assert lines[0] == "gate failed, by 8 of 13 rules" and len(lines) <= 10
    assert lines[1].startswith("failed") and "0.8" in lines[1] and " to " in lines[1]
    assert lines[-1].endswith("dbdyno compare last -o comparison.html")
    document = record(gate, "x")
    assert document["exit_code"] == EXIT_GATE and document["verdict"] == "failed"
    assert [r["rule"] for r in document["rules"]] == [*rules, "claim:errors"]
