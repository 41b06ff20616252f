"""Costs in comparisons, of made-up cells: names, one verdict for a figure, and the sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from dbdyno.conclude import gates
from dbdyno.conclude.compare import Options, costs, costs_among
from dbdyno.conclude.compare.effects import COSTS, CellFigures
from dbdyno.conclude.compare.table import Match, metric_named, tables_of
from dbdyno.model.errors import UsageError
from dbdyno.model.results.comparison import Comparison
from dbdyno.model.schema.data_sources.costs import CALL, FIGURES, WARM_UP, WORK, counted_for, metric_of

A = {
    "calls_per_s": (100.0, 101.0, 99.0, 100.5, 99.5),
    "cpu_per_call_ns": (1_000_000.0, 1_010_000.0, 990_000.0, 1_005_000.0, 995_000.0),
    "wal_bytes_per_call": (1_000.0, 1_001.0, 999.0, 1_000.5, 999.5),
}
Values = Mapping[str, Sequence[float]]


def _cells(side: str, values: Values, repeats: int) -> dict[int, CellFigures]:
    return {
        n: CellFigures(f"{side}{n}", {name: every[n] for name, every in values.items()})
        for n in range(repeats)
    }


def _times(factor: float, values: Sequence[float]) -> list[float]:
    return [factor * v for v in reversed(values)]


def _compared(
    a: Values, b: Values, repeats: tuple[int, int] = (5, 5), options: Options | None = None
) -> Comparison:
    return _of_groups({"A": _cells("A", a, repeats[0]), "B": _cells("B", b, repeats[1])}, options)


def _of_groups(groups: Mapping[str, Mapping[int, CellFigures]], options: Options | None = None) -> Comparison:
    match = Match("w", 2, "A", groups, paired=False)
    tables = tables_of([match], options or Options(), "LIO", 0.05)
    comparison = Comparison(kind="runs", runs=("a", "b"), baseline="A", margin=0.02, metrics=tables)
    changes = tuple(costs.changes([match], tables, "call", comparison))
    comparison = comparison.model_copy(update={"operation_costs": changes})
    return comparison.model_copy(update={"conclusions": tuple(costs.claims(comparison))})


def _sentence(a: Values, b: Values, repeats: tuple[int, int] = (5, 5)) -> str:
    (claim,) = _compared(a, b, repeats).conclusions
    return claim.text


@pytest.mark.parametrize("figure", [f.id for f in FIGURES])
def test_every_cost_can_be_named_with_and_without_its_unit(figure: str) -> None:
    for per in (CALL, WORK):
        for background in (False, True):
            name = metric_of(figure, per, background=background)
            assert metric_named(name, "") == metric_named(name.removesuffix("_ns"), "") == name
            assert gates.figure_of(name) == name


def test_counts_of_the_whole_server_are_not_compared_with_those_of_sessions() -> None:
    name = "wal_bytes_per_call"
    b = {**A, name: _times(0.5, A[name])}
    assert "50 % less WAL" in _sentence(A, b)
    sources = "engine counters, server-wide", "engine counters"
    groups = {
        side: {
            n: c._replace(counted_for={name: counted_for(source, "")})
            for n, c in _cells(side, values, 5).items()
        }
        for side, values, source in zip("AB", (A, b), sources, strict=True)
    }
    compared = _of_groups(groups)
    (cost,) = (f for f in compared.operation_costs[0].figures if f.figure == "wal_bytes")
    assert (cost.contrast.verdict, cost.contrast.effect.ratio, cost.contrast.p_holm) == ("undecided",) + (
        None,
    ) * 2
    assert cost.contrast.because.startswith("counted differently, server-wide")
    assert "WAL" not in "".join(c.text for c in compared.conclusions)
    (table,) = tables_of([Match("w", 2, "A", groups, paired=False)], Options(metric=name), "LIO", 0.05)
    assert {c.verdict for c in table.claims} == {"undecided"}


def test_counts_of_the_warm_up_are_not_compared() -> None:
    name = "reads_per_call"
    whose = counted_for(f"engine counters{WARM_UP}", "")
    sides = {"A": {**A, name: (5.0, 5.1, 4.9, 5.0, 5.0)}, "B": {**A, name: (1.0, 1.1, 0.9, 1.0, 1.0)}}
    groups = {
        side: {n: c._replace(counted_for={name: whose}) for n, c in _cells(side, values, 5).items()}
        for side, values in sides.items()
    }
    (cost,) = (f for f in _of_groups(groups).operation_costs[0].figures if f.figure == "reads")
    assert (cost.contrast.verdict, cost.contrast.because) == ("undecided", "the warm-up is in it")


@pytest.mark.parametrize(("writes", "named"), [(0.0, False), (3.0, True)])
def test_io_of_devices_is_named_only_beside_a_server_that_did_some(writes: float, named: bool) -> None:
    a = {"calls_per_s": A["calls_per_s"], "writes_per_call": (writes,) * 5}
    a["device_writes_per_call"] = (10.0, 10.1, 9.9, 10.0, 10.0)
    text = _sentence(a, {**a, "device_writes_per_call": (80.0, 81.0, 79.0, 80.0, 80.0)})
    assert ("device writes" in text) == named


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("voluntary_switches_per_call", "switches_voluntary_per_call"),
        ("wal_per_work", "wal_bytes_per_work"),
        ("user_cpu_per_call", "cpu_user_per_call_ns"),
        ("background_bytes_written_per_call", "background_written_bytes_per_call"),
        ("full_page_images_per_call", "wal_full_page_images_per_call"),
    ],
)
def test_a_cost_can_be_named_as_tables_call_it(title: str, name: str) -> None:
    assert metric_named(title, "") == name


def test_a_wrong_name_is_answered_with_the_nearest_one_or_with_all() -> None:
    with pytest.raises(UsageError) as near:
        metric_named("wal_byte_per_call", "no")
    assert near.value.cure == "did you mean 'wal_bytes_per_call'?"
    with pytest.raises(UsageError) as far:
        metric_named("zzz", "no")
    assert far.value.cure is not None and "p99" in far.value.cure and "wal_bytes_per_call" in far.value.cure


def test_a_cost_that_is_asked_for_is_the_only_table() -> None:
    b = A | {"wal_bytes_per_call": _times(1.5, A["wal_bytes_per_call"])}
    (table,) = _compared(A, b, options=Options(metric="wal_bytes_per_call")).metrics
    (claim,) = table.claims
    assert (table.title, table.unit, claim.verdict) == ("WAL of a call", "bytes", "worse")


def test_a_cost_of_zero_on_one_side_can_be_asked_for() -> None:
    a, b = (A | {"wal_full_page_images_per_call": v} for v in ([0.0] * 5, [1.0, 1.1, 0.9, 1.05, 0.95]))
    (table,) = _compared(a, b, options=Options(metric="wal_full_page_images_per_call")).metrics
    assert table.claims[0].verdict == "worse"


def test_what_is_not_known_is_refused_with_costs_that_are() -> None:
    with pytest.raises(UsageError, match="not known of what is compared") as caught:
        _compared(A, A, options=Options(metric="device_reads_per_call"))
    assert caught.value.cure == "known are wal_bytes_per_call"


@pytest.mark.parametrize("repeats", [(2, 2), (4, 4), (5, 5), (4, 2), (2, 5)])
def test_a_figure_has_one_verdict(repeats: tuple[int, int]) -> None:
    b = A | {n: _times(1.4, A[n]) for n in ("cpu_per_call_ns", "wal_bytes_per_call")}
    options = Options(costs=costs_among(["wal_bytes_per_call", "p99", "cpu_per_call_ns"]))
    assert options.costs == ("wal_bytes_per_call",)
    comparison = _compared(A, b, repeats, options)
    tables = {t.metric: t.claims[0] for t in comparison.metrics}
    for cost in comparison.operation_costs[0].figures:
        name = metric_of(cost.figure, CALL, background=cost.background)
        assert cost.contrast == tables[name]
        gate = gates.of_comparison(gates.parse([f"{name}:worse:5%"], "comparison"), comparison)
        decided = "failed" if tables[name].verdict == "worse" else "cannot tell"
        assert gate.outcomes[0].state == decided
    named = comparison.conclusions[0].text
    assert ("more CPU" in named) is (tables["cpu_per_call_ns"].verdict == "worse")


def test_a_rule_about_a_cost_is_judged_by_itself_and_not_among_all_costs() -> None:
    many = {name: A["wal_bytes_per_call"] for name in COSTS if name.endswith("per_call")}
    b = A | many | {"wal_bytes_per_call": _times(1.4, A["wal_bytes_per_call"])}
    verdicts = {}
    for asked in ((), ("wal_bytes_per_call",)):
        (change,) = _compared(A | many, b, (4, 4), Options(costs=asked)).operation_costs
        wal = next(f for f in change.figures if f.figure == "wal_bytes" and not f.background)
        verdicts[asked] = wal.contrast.verdict, wal.contrast.because
    few = "4 repeats are too few for 21 comparisons"
    assert verdicts == {(): ("undecided", few), ("wal_bytes_per_call",): ("worse", "")}


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        ((2, 2), "is not decided: 2 repeats are too few"),
        ((4, 2), "is not decided: 4 and 2 repeats are too few"),
        ((3, 3), "is not decided: 3 repeats are too few"),
    ],
)
def test_the_sentence_counts_the_repeats_of_both_sides(repeats: tuple[int, int], words: str) -> None:
    assert words in _sentence(A, A | {"wal_bytes_per_call": _times(1.4, A["wal_bytes_per_call"])}, repeats)


def test_a_difference_that_so_many_costs_leave_open_is_not_called_chance() -> None:
    many = {name: A["wal_bytes_per_call"] for name in COSTS if name.endswith("per_call")}
    b = A | many | {"wal_bytes_per_call": _times(1.4, A["wal_bytes_per_call"])}
    assert "is not decided: 4 repeats are too few for " in _sentence(A | many, b, (4, 4))


def test_the_sentence_names_no_trifle() -> None:
    noise = (1.0, 1.01, 0.99, 1.005, 0.995)
    trifles = {
        "background_writes_per_call": (0.0, 0.02),  # of 50 writes
        "background_cpu_per_call_ns": (100.0, 300.0),  # of 1 ms
        "client_cpu_per_call_ns": (2_000.0, 3_000.0),
    }
    ours = {name: [v * to for v in noise] for name, (_, to) in trifles.items()}
    theirs = {name: [v * of for v in noise] for name, (of, _) in trifles.items()}
    writes = {"writes_per_call": [50 * v for v in noise]}
    comparison = _compared(A | writes | theirs, A | writes | ours)
    differ = {f.figure for f in comparison.operation_costs[0].figures if f.contrast.verdict == "worse"}
    assert differ == {"writes", "cpu_ns", "client_cpu_ns"}
    assert "no cost per call differs by more than 2 % beyond chance" in comparison.conclusions[0].text


@pytest.mark.parametrize(("behind", "named"), [(0.5, False), (3.0, True)])
def test_switches_of_the_background_are_named_if_they_are_a_tenth_of_all(behind: float, named: bool) -> None:
    noise = (1.0, 1.01, 0.99, 1.005, 0.995)
    own = {"switches_voluntary_per_call": [7.4 * v for v in noise]}
    sides = [{"background_switches_voluntary_per_call": [n * v for v in noise]} for n in (0.02, behind)]
    text = _sentence(A | own | sides[0], A | own | sides[1])
    assert ("voluntary switches in the background" in text) is named


def test_what_is_nearly_gone_is_over_99_per_cent_less() -> None:
    b = A | {"wal_bytes_per_call": _times(0.004, A["wal_bytes_per_call"])}
    assert "per call over 99 % less WAL; " in _sentence(A, b)


@pytest.mark.parametrize(("word", "meant"), [("tps", "calls"), ("latency", "mean")])
def test_the_words_of_other_tools_lead_to_the_quantity(word: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        metric_named(word, "no")
    assert caught.value.cure == f"did you mean '{meant}'?"
    with pytest.raises(UsageError) as far:
        metric_named("zzz", "no")
    assert far.value.cure is not None and len(far.value.cure) < 200


def test_a_difference_from_zero_that_matters_is_named_in_its_unit() -> None:
    b = A | {"written_bytes_per_call": [8_192.0 * v for v in (1, 1.1, 0.9, 1.05, 0.95)]}
    text = _sentence(A | {"written_bytes_per_call": [0.0] * 5}, b)
    assert "per call bytes written 8.00 KiB instead of 0 B" in text


def test_the_background_s_cost_that_one_side_lacks_is_not_named() -> None:
    b = A | {"background_written_bytes_per_call": [8_192.0 * v for v in (1, 1.1, 0.9, 1.05, 0.95)]}
    text = _sentence(A | {"background_written_bytes_per_call": [0.0] * 5}, b)
    assert "no cost per call differs" in text


@pytest.mark.parametrize(
    ("slower_ns", "text"),
    [
        (6e6, "per call 40 % more CPU and 40 % more client CPU"),  # CPU: 0.4 of 2 ms
        (4.5e6, "11 % slower: per call 40 % more CPU"),  # CPU: 0.4 of 0.5 ms, client CPU: 0.04 ms
    ],
)
def test_a_slowdown_stands_before_costs_only_if_they_explain_it(slower_ns: float, text: str) -> None:
    noise = [v / 100 for v in A["calls_per_s"]]

    def side(response_ns: float, cpu: float) -> dict[str, list[float]]:
        means = {"response_mean_ns": response_ns, "cpu_per_call_ns": cpu * 1e6}
        means |= {"client_cpu_per_call_ns": cpu * 1e5, "calls_per_s": 2e9 / response_ns}
        return {name: _times(mean, noise) for name, mean in means.items()}

    named = _sentence(A | side(4e6, 1.0), A | side(slower_ns, 1.4)).partition("; the same")[0]
    assert re.sub(r" \([^)]*\)", "", named) == f"B against A at 2 sessions: {text}"


def test_a_difference_from_zero_that_is_clear_but_not_certain_says_so() -> None:
    many = {name: A["wal_bytes_per_call"] for name in COSTS if name.endswith("per_call")}
    pages = {"wal_full_page_images_per_call": [1.0, 1.1, 0.9, 1.05, 0.95]}
    (change,) = _compared(A | many | pages, A | many | {n: [0.0] * 5 for n in pages}, (4, 4)).operation_costs
    because = {f.figure: f.contrast.because for f in change.figures if not f.background}
    assert because["wal_full_page_images"] == "not certain among 21 comparisons"


def test_means_of_pairs_are_those_of_the_repeats_that_both_sides_have() -> None:
    groups = {"A": _cells("A", A, 5), "B": _cells("B", A, 4)}
    match = Match("w", 2, "A", groups, paired=True)
    tables = tables_of([match], Options(), "LIO", 0.05)
    comparison = Comparison(kind="variants", runs=("a",), baseline="A", margin=0.02, metrics=tables)
    (change,) = costs.changes([match], tables, "call", comparison)
    for cost in change.figures:
        assert cost.baseline_mean == cost.variant_mean
        assert cost.contrast.effect.n_baseline == 4
    for table in tables:
        a, b = table.lines
        assert (a.mean, a.repeats) == (b.mean, b.repeats)
