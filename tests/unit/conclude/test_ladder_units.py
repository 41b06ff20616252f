"""Units of a table: the same ladder whatever a file measures in; what contradicts itself is refused."""

from __future__ import annotations

import random
import shlex

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dbdyno.conclude.scaled import scaled
from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Ladder, Machine
from dbdyno.store.ladder_csv import Columns, ladder_of


def read(text: str, machine: Machine | None = None, **columns: object) -> Ladder:
    return ladder_of(text, "f.csv", Columns(**columns), machine)  # type: ignore[arg-type]


def pairs(ladder: Ladder) -> list[tuple[float, float]]:
    return ladder.points.select("load", "throughput").rows()


def test_units_become_seconds_and_counts() -> None:
    ladder = read(
        "clients,tps,lat_ms,p95_us,cpu_seconds,duration,cpu_user (%)\n"
        "1,100,10,12000,5,10,45\n2,190,10.5,13000,11,10,90\n4,350,11,15000,20,10,\n8,500,16,20000,30,20,150\n"
    )
    rows = {r["load"]: r for r in ladder.points.to_dicts()}
    assert rows[2]["response_s"] == pytest.approx(0.0105)
    assert rows[2]["response_p95_s"] == pytest.approx(0.013)
    assert [rows[n]["cpu"] for n in (1, 8)] == [0.5, 1.5]
    assert [rows[n]["cpu_user"] for n in (1, 4, 8)] == [0.45, None, 1.5]
    assert (ladder.load_unit, ladder.throughput_unit) == ("clients", "transactions/s")


@pytest.mark.parametrize(
    ("head", "options", "factor", "unit"),
    [
        ("sessions,ktps", {}, 1e-3, "transactions/s"),
        ("sessions,tps (1000s)", {}, 1e-3, "transactions/s"),
        ("sessions,X", {"throughput_unit": "k orders/s"}, 1e-3, "orders/s"),
        ("sessions,tpm", {}, 60, "transactions/s"),
        ("sessions,tpm", {"throughput_unit": "orders"}, 60, "orders/s"),
        ("sessions,tps", {"throughput_unit": "calls/min"}, 60, "calls/s"),  # the option describes the file
        ("sessions,Mtx/h", {}, 3600e-6, "transactions/s"),
        ("sessions,calls", {"duration": "30s"}, 30, "calls/s"),
        ("sessions,calls", {"duration": "2min"}, 120, "calls/s"),
        ("sessions,n_done", {"throughput": "n_done", "throughput_unit": "rows/h"}, 3600, "rows/s"),
    ],
)
def test_throughput_is_per_second_whatever_the_unit_of_the_file(
    head: str, options: dict[str, str], factor: float, unit: str
) -> None:
    ladder = read(f"{head}\n" + "".join(f"{n},{x * factor!r}\n" for n, x in RATES), **options)
    assert [x for _, x in pairs(ladder)] == pytest.approx([x for _, x in RATES])
    assert ladder.throughput_unit == unit


RATES = [(1, 955.2), (2, 1879.1), (4, 3690.4), (8, 6907.8), (16, 8100.3), (32, 8210.9)]


def table(head: str, *columns: float | list[float]) -> str:
    """Load, throughput, and columns: their figures, or what they are times load / throughput."""
    every = [c if isinstance(c, list) else [c * n / x for n, x in RATES] for c in columns]
    lines = (",".join(map(repr, (*rung, *more))) for rung, *more in zip(RATES, *every, strict=True))
    return "\n".join([head, *lines]) + "\n"


def test_a_duration_applies_to_counts_and_to_cpu() -> None:
    text = "sessions,calls,cpu_s,cpu_user_ms,duration_min\n" + "".join(
        f"{n},{x * 120!r},{n * 0.9 * 120!r},{n * 0.6 * 120_000!r},2\n" for n, x in RATES
    )
    for ladder in (read(text), read(text, duration="2min", duration_unit="min")):
        assert [x for _, x in pairs(ladder)] == pytest.approx([x for _, x in RATES])
        assert ladder.points["cpu"].to_list() == pytest.approx([0.9 * n for n, _ in RATES])
        assert ladder.points["cpu_user"].to_list() == pytest.approx([0.6 * n for n, _ in RATES])
    with pytest.raises(UsageError, match="line 3, duration_min: no value"):
        read("N,calls,duration_min\n1,100,1\n2,200,\n4,400,1\n")
    with pytest.raises(UsageError, match="60000 has no unit") as e:
        read("N,calls,duration\n1,100,60000\n2,200,60000\n4,400,60000\n")
    assert e.value.cure and "--duration-unit ms" in e.value.cure


@pytest.mark.parametrize(
    ("head", "response", "cure"),
    [
        ("sessions,tps,response_s", 1e3, "--response-unit ms"),
        ("sessions,tps,response_s", 1e6, "--response-unit us"),
        ("sessions,tps,response_ms", 0.9, "--response-unit s"),
        (
            "sessions,tps,response_ms",
            60e3,
            "--throughput-unit 'transactions/min'",
        ),
        ("sessions,tps,response_ms", 3600e3, "--throughput-unit 'transactions/h'"),
        ("sessions,ktps,response_ms", 1e3, "--throughput-unit 'transactions/s'"),
        ("nodes,tps,response_s", 1e3, "--response-unit ms"),
    ],
)
def test_littles_law_refuses_a_wrong_unit(head: str, response: float | list[float], cure: str) -> None:
    with pytest.raises(UsageError, match=r"f\.csv, line 2: .* calls in progress, too (many|few)") as e:
        read(table(head, response))
    assert e.value.cure and cure in e.value.cure


@pytest.mark.parametrize(
    ("head", "response", "options"),
    [
        ("sessions,tps,response_ms", 1e3, {}),
        ("sessions,tps,response_ms", 300, {}),  # sessions think, or the client is slow
        ("users,tps,response_ms", [1 + n * n / 100 for n, _ in RATES], {}),  # 30 ms of work to 1 s of thought
        ("sessions,tps,response_ms", 1.4e3, {}),  # other calls than those counted
        ("nodes,tps,response_ms", 40e3, {}),  # 40 sessions on a node
        ("dop,queries/h,response_s", [3600 / x for _, x in RATES], {}),  # one query at a time
        ("sessions,tps,response_s", 1e3, {"response_unit": "ms"}),
        ("sessions,tps,response_ms", 1, {"response_unit": "s"}),
        ("sessions,tps,response_s", 1e3, {"response": "none"}),
    ],
)
def test_littles_law_accepts_a_possible_unit(
    head: str, response: float | list[float], options: dict[str, str]
) -> None:
    assert len(read(table(head, response), **options).points) == len(RATES)


def test_a_think_time_explains_short_response_times() -> None:
    text = table("sessions,tps,response_ms", 0.9)
    with pytest.raises(UsageError, match="too few") as e:
        read(text)
    assert e.value.cure and "--think TIME" in e.value.cure
    ladder = ladder_of(text, "f.csv", think_s=0.001)
    assert ladder.points["response_s"][0] == pytest.approx(0.9e-3 / 955.2)
    with pytest.raises(UsageError, match="too many"):
        ladder_of(text, "f.csv", think_s=10.0)


def test_mean_and_percentile_are_in_like_units() -> None:
    with pytest.raises(UsageError, match="p95_s and response_ms"):
        read(table("sessions,tps,response_ms,p95_s", 1e3, 2e3))
    ladder = read(table("sessions,tps,response_ms,p95", 1e3, 2e3))
    assert ladder.points["response_p95_s"][0] == pytest.approx(2 / 955.2)


@pytest.mark.parametrize(
    ("text", "options", "problem", "cure"),
    [
        (table("sessions,tps,cpu", [12, 24, 48, 96, 99, 100]), {}, "more than 8 CPUs", "--cpu-unit %"),
        (table("nodes,tps,cpu", [3, 6, 12, 24, 48, 96]), {}, "more than 8 CPUs", "--cpu-unit %"),
        (table("sessions,tps"), {"load": "tps", "throughput": "2"}, "tps cannot be both", "own"),
        (table("sessions,tps"), {"load": "tps", "throughput": "tps"}, "both --load and --throughput", "own"),
        (table("sessions,tps"), {"response": "tps"}, "no column for the throughput", "--throughput"),
        ("1,2\n2,4\n4,8\n", {"load": "2"}, "column 2 cannot be both", "own"),
        (
            table("sessions,tps,rate", [2 * x for _, x in RATES]),
            {},
            "tps or rate",
            "--throughput tps or --throughput rate",
        ),
        (table("sessions,tps/hour"), {}, "no column for the throughput", "--throughput"),
        (table("Sitzungen,tps"), {}, "no column for the sessions", "--load Sitzungen"),
        (table("sessions,tps"), {"throughput_unit": "a/b/c"}, "not a unit of throughput", "orders/s"),
        (table("sessions,tps"), {"response_unit": "parsec"}, "not a unit of time", "ms"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused_with_a_cure(
    text: str, options: dict[str, str], problem: str, cure: str
) -> None:
    with pytest.raises(UsageError, match=problem) as e:
        read(text, Machine(cpus=8), **options)
    assert cure in (e.value.cure or "")


def test_a_response_time_without_a_unit_goes_by_littles_law() -> None:
    ladder = read("N,X,R\n1,100,10\n2,190,10.5\n4,350,11.4\n8,500,16")
    assert ladder.points["response_s"][3] == pytest.approx(0.016)
    assert "taken for ms" in ladder.notes[0]
    with pytest.raises(UsageError, match="has no unit"):
        read("N,X,R\n1,100,3e12\n2,190,3e12\n4,350,3e12\n8,500,3e12")


def test_per_cent_of_cpu_needs_the_machine() -> None:
    text = "N,X,cpu%\n1,100,20\n2,190,40\n4,350,80\n8,500,95"
    assert read(text).points["cpu"].is_null().all()
    assert "--cpus" in read(text).notes[0]
    assert read(text, Machine(cpus=4)).points["cpu"].to_list() == [0.8, 1.6, 3.2, 3.8]


# -- laws --

_POINTS = st.lists(
    st.tuples(st.integers(1, 512), st.floats(1.0, 1e6), st.floats(0.05, 1.0)),
    min_size=3,
    max_size=20,
    unique_by=lambda p: p[0],
)
"""Load, throughput, and the share of its time that a session is in calls."""
_CLOCK = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_PER = {"s": 1.0, "min": 60.0, "h": 3600.0}
_SIZE = {"": 1.0, "k ": 1e-3, "M ": 1e-6}


@examples(40)
@given(_POINTS, st.sampled_from(list(_CLOCK)), st.sampled_from(list(_PER)), st.sampled_from(list(_SIZE)))
def test_every_unit_gives_the_same_ladder(
    rungs: list[tuple[int, float, float]], clock: str, per: str, size: str
) -> None:
    def ladder_in(clock: str, per: str, size: str) -> Ladder:
        lines = (
            f"{n},{x * _PER[per] * _SIZE[size]!r},{share * n / x * _CLOCK[clock]!r}" for n, x, share in rungs
        )
        return read("\n".join([f"clients,{size}calls/{per},response_{clock}", *lines]))

    plain, other = ladder_in("s", "s", ""), ladder_in(clock, per, size)
    assert other.throughput_unit == plain.throughput_unit == "calls/s"
    for name in ("load", "throughput", "response_s"):
        assert other.points[name].to_list() == pytest.approx(plain.points[name].to_list())


@examples(40)
@given(_POINTS, st.sampled_from(list(_CLOCK)))
def test_without_a_unit_littles_law_finds_it(rungs: list[tuple[int, float, float]], clock: str) -> None:
    lines = (f"{n},{x!r},{share * n / x * _CLOCK[clock]!r}" for n, x, share in rungs)
    ladder = read("\n".join(["clients,calls/s,response", *lines]))
    expected = [share * n / x for n, x, share in sorted(rungs)]
    assert ladder.points["response_s"].to_list() == pytest.approx(expected)


@examples(40)
@given(_POINTS, st.sampled_from(["ms", "us"]))
def test_a_response_time_1_000_times_too_large_is_refused(
    rungs: list[tuple[int, float, float]], clock: str
) -> None:
    lines = (f"{n},{x!r},{share * n / x * _CLOCK[clock]!r}" for n, x, share in rungs)
    with pytest.raises(UsageError, match="too many") as e:
        read("\n".join(["clients,calls/s,response_s", *lines]))
    shares = sorted(share for *_, share in rungs)
    assert shares[(len(shares) - 1) // 2] < 0.4 or f"--response-unit {clock}" in (e.value.cure or "")


@examples(40)
@given(_POINTS, st.integers(0, 99))
def test_the_order_of_lines_does_not_matter(rungs: list[tuple[int, float, float]], seed: int) -> None:
    lines = [f"{n},{x!r}" for n, x, _ in rungs]
    shuffled = random.Random(seed).sample(lines, len(lines))
    one, other = (read("\n".join(["clients,tps", *order])).points for order in (lines, shuffled))
    assert one.equals(other)


@examples(40)
@given(_POINTS, st.integers(2, 4))
def test_lines_that_come_again_are_repeats(rungs: list[tuple[int, float, float]], times: int) -> None:
    lines = [f"{n},{x!r}" for n, x, _ in rungs]
    one, many = (read("\n".join(["clients,tps", *lines * k])).points for k in (1, times))
    assert sorted(many["repeat"].unique()) == list(range(1, times + 1))
    for repeat in range(1, times + 1):
        assert many.filter(pl.col("repeat") == repeat).drop("repeat").equals(one.drop("repeat"))


@examples(40)
@given(_POINTS, st.sampled_from([("", "."), (",", "."), (".", ","), (" ", ","), ("'", "."), ("\u00a0", ",")]))
def test_however_numbers_are_written_the_ladder_is_the_same(
    rungs: list[tuple[int, float, float]], signs: tuple[str, str]
) -> None:
    """Thousands separator and decimal sign, with the option that names the sign."""
    table = str.maketrans({",": signs[0], ".": signs[1]})
    lines = (f"{n}; {x:,.2f}".translate(table) for n, x, _ in rungs)
    ladder = read("\n".join(["clients;tps", *lines]), decimal=signs[1])
    assert pairs(ladder) == sorted((n, round(x, 2)) for n, x, _ in rungs)


def test_a_file_has_columns_and_no_ledger() -> None:
    text = "sessions,tps,cpu,cpu_wait\n1,100,.5,0\n2,198,1,0\n4,380,2,.01\n8,700,3.9,.5\n16,760,4,8\n"
    scaling = scaled(read(text, Machine(cpus=4, cores=4)))
    evidence = {c.id: c.evidence for c in scaling.answers}
    assert {"cpu-wait", "cpu-per-work", "equivalent-cores"} <= evidence.keys()
    assert not [e for e in evidence.values() if "ledger" in e]


@pytest.mark.parametrize(
    "head", ["tps,response_ms", "ktps,response", "tpm,latency (us)", "k orders/min,resp_s"]
)
@pytest.mark.parametrize("of_rate", [1, 1000, 1 / 60, 3600, 1e6])
@pytest.mark.parametrize("of_time", [1e3, 1.0, 1e-3])
def test_every_cure_that_is_offered_helps(head: str, of_rate: float, of_time: float) -> None:
    lines = "".join(f"{n},{x * of_rate!r},{1000 * n / x * of_time!r}\n" for n, x in RATES)
    text = f"sessions,{head}\n{lines}"
    try:
        read(text)
    except UsageError as e:
        assert e.cure
        for cure in e.cure.split("; "):
            option, value = shlex.split(cure)[:2]
            if option != "--think":
                read(text, **{option.removeprefix("--").replace("-", "_"): value})


@pytest.mark.parametrize(
    ("heading", "cells"),
    [
        ("latency", ("1900us", "2.0 ms", "2.1ms", "0.0022s")),
        ("latency", ("1900us", "2000us", "2100 us", "2200us")),
        ("latency_us", ("1900us", "2000", "2.1 ms", "2200")),
        ("latency_ms", ("1900us", "2", "2.1ms", "2.2")),
    ],
)
def test_a_cell_may_have_a_unit_of_time_with_or_without_a_space(heading: str, cells: tuple[str, ...]) -> None:
    rates = zip((1, 2, 4, 8), (520, 1000, 1900, 3600), cells, strict=True)
    ladder = read(f"sessions,tps,{heading}\n" + "".join(f"{n},{x},{r}\n" for n, x, r in rates))
    assert ladder.points["response_s"].to_list() == pytest.approx([0.0019, 0.002, 0.0021, 0.0022])


def test_a_unit_by_option_is_that_of_the_cells_without_one() -> None:
    rates = zip((1, 2, 4, 8), (520, 1000, 1900, 3600), ("1900us", "2", "2.1", "2.2"), strict=True)
    text = "sessions,tps,latency\n" + "".join(f"{n},{x},{r}\n" for n, x, r in rates)
    ladder = read(text, response_unit="ms")
    assert ladder.points["response_s"].to_list() == pytest.approx([0.0019, 0.002, 0.0021, 0.0022])
