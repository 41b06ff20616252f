"""Quantiles of too few calls: the reason and the numbers stand in one line, once."""

from __future__ import annotations

from tests.unit.shown import as_text

from dbdyno.model.schema.quantiles import fewest_calls
from dbdyno.present.charts.chart import response_lines
from dbdyno.present.document.document import UNKNOWN, Document, Row, Table, numeric, word
from dbdyno.present.figures import tails


def _shown(p95: str, p99: str, calls: tuple[int, ...] = ()) -> str:
    table = Table(
        "", [numeric("sess"), numeric("p95"), numeric("p99")], [Row([word("1"), word(p95), word(p99)])]
    )
    return " ".join(as_text(Document("t", tails.with_reason(table, numbers=calls)), 200).split())


def test_the_line_has_the_calls_and_how_many_are_needed() -> None:
    text = _shown(UNKNOWN, UNKNOWN, (23,))
    assert "p95 and p99 unknown" in text and "(23;" in text
    assert f"p95 needs {fewest_calls(0.95):,}" in text and f"p99 needs {fewest_calls(0.99):,}" in text


def test_only_loads_with_too_few_calls_count() -> None:
    text = _shown("3 ms", UNKNOWN, (30, 700, 5_000))
    assert "p99 unknown" in text and "(30 to 700;" in text and "5,000" not in text
    assert "p95 needs" not in text


def test_each_quantile_names_the_loads_that_lack_it() -> None:
    text = _shown(UNKNOWN, UNKNOWN, (30, 700, 5_000))
    assert "p95 unknown: too few calls (30; p95 needs 200)." in text
    assert "p99 unknown: too few calls (30 to 700; p99 needs 1,000)." in text


def test_without_unknown_quantiles_nothing_is_said() -> None:
    assert "unknown" not in _shown("3 ms", "4 ms", (5_000,))


def test_the_reason_is_not_given_twice() -> None:
    assert tails.explains("response_p95_ns", "too few calls")
    assert not tails.explains("response_p95_ns", "driver: off")
    assert not tails.explains("run_aas", "too few calls")


def test_a_statistic_that_is_nowhere_known_has_no_entry_in_the_legend() -> None:
    statistics = [("mean", "stat-mean", [1, 0]), ("99 %", "stat-p99", [2, 2])]
    rows = [{"series": "a", "sessions": n, "statistic": "mean", "ns": 1e6 * n} for n in (1, 2)]
    drawn = response_lines([dict(r) for r in rows], statistics, ["a"], "t", "c", "d")
    assert [k.label for k in drawn.legend] == ["mean"]
    tail = [{**r, "statistic": "99 %"} for r in rows]
    both = response_lines([*rows, *tail], statistics, ["a"], "t", "c", "d")
    assert [(k.label, k.mark) for k in both.legend] == [("mean", "line"), ("99 %", "dash")]
