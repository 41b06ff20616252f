"""Tables as programs and people write them: words in headings, decimal signs, cells, frames of lines."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dbdyno.model.errors import UsageError
from dbdyno.model.results.analyses import Ladder
from dbdyno.store.ladder_csv import Columns, ladder_of
from dbdyno.store.ladder_csv.headings import chosen, named
from dbdyno.store.samples import read_pair, read_sample

RATES = ((1, 955), (2, 1879), (4, 3549), (8, 6531))


def read(text: str, **columns: object) -> Ladder:
    return ladder_of(text, "f.csv", Columns(**columns))  # type: ignore[arg-type]


def pairs(ladder: Ladder) -> list[tuple[float, float]]:
    return ladder.points.select("load", "throughput").rows()


@pytest.mark.parametrize(
    "heading",
    [
        *("Latency (p99)", "Latency (max)", "RT (90%)", "Response time (stddev, ms)", "Latency ms (median)"),
        *("Latency [min]", "Latency (avg/.95/max)", "avg latency (±)", "Latency (99.9%)", "TPS (stddev)"),
        *("TPS (%)", "tps (relative)", "TPS (failed)", "Transactions (aborted)", "Connections (idle)"),
        *("CPU (idle)", "CPU (client)", "CPU (iowait)", "CPU idle %", "TPS (x)", "tps (95% CI)", "TPS +/-"),
        *("Throughput (errors/s)", "max queries/s", "slow queries per second", "cpu_min", "Rows (dead)"),
    ],
)
def test_a_heading_with_a_word_that_is_no_unit_and_no_average_is_no_figure_of_a_ladder(heading: str) -> None:
    assert named(heading) is None


@pytest.mark.parametrize(
    ("heading", "role", "unit"),
    [
        ("Latency (avg, s)", "response_s", "s"), ("Latency (mean) [ms]", "response_s", "ms"),
        ("Latency (ms/op)", "response_s", "ms"), ("Latency (95%)", "response_p95_s", ""),
        ("Latency (p95, ms)", "response_p95_s", "ms"), ("Latency p(95)", "response_p95_s", ""),
        ("cpu (sys)", "cpu_system", ""), ("CPU (user, %)", "cpu_user", "%"), ("CPU time (min)", "cpu", "min"),
        ("Concurrency (threads)", "load", "threads"), ("Connections (active)", "load", "connections"),
        ("tps (including connections establishing)", "throughput", "transactions/s"),
        ("tps (without initial connection time)", "throughput", "transactions/s"),
        ("TPS (mean of 5 runs)", "throughput", "transactions/s"), ("X(N)", "throughput", ""),
    ],
)  # fmt: skip
def test_words_in_brackets_count_like_the_others(heading: str, role: str, unit: str) -> None:
    column = named(heading)
    assert column is not None and (column.role, column.unit) == (role, unit)


def test_a_column_that_is_chosen_has_the_unit_of_the_words_that_are_known() -> None:
    assert chosen("tpm (peak)", "throughput").per == "min"
    assert chosen("Latency (p99, ms)", "response_s").unit == "ms"
    assert not chosen("Nodes (used)", "load").closed
    assert chosen("PG 18 (~100B)", "throughput").factor == 1


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("clients|tps|lat média\n1|1.436|0.70\n2|2.082|0.79\n4|4.084|0.99\n", True),  # left out
        ("clients|tps|cpu\n1|1.436|0.70\n2|2.082|0.79\n4|4.084|0.99\n", True),  # used
        ("clients|tps|lat_ms\n1|1.436|696.4\n2|2.082|960.6\n4|4.084|979.4\n", False),  # Little's law
        ("sessions,tps,repeat\n4,202,1\n8,402.644,1\n12,596.809,1\n", False),
        ("sessions\ttps\n4\t202\n8\t402.644\n12\t596.809\n", False),
        ("clients|tps|cpu\n1|1,436|0.70\n2|2,082|0.79\n4|4,084|0.99\n", False),  # commas of thousands
    ],
)
def test_only_columns_that_are_used_decide_between_dot_and_comma(text: str, asks: bool) -> None:
    if asks:
        with pytest.raises(UsageError, match=r"1.436 is either 1,436 or 1.436"):
            read(text)
        text_or = read(text, decimal=",") if "cpu" not in text else read(text, decimal=",", cpu="none")
        assert pairs(text_or)[0] == (1, 1436)
    else:
        assert pairs(read(text))[0][1] in (1436, 1.436, 202)


def test_a_comma_csv_with_a_column_of_the_form_is_read_with_a_note() -> None:
    text = "sessions,tps,cpu\n1,1.436,0.7\n2,2.082,0.79\n4,4.084,0.99\n"
    assert any("1.436 was read as 1.436" in n for n in read(text).notes)


@pytest.mark.parametrize(
    "text",
    [
        '"Users","Throughput\n(tps)"\n' + "".join(f"{n},{x}\n" for n, x in RATES),
        "┌─────────┬────────┐\n│ clients │  tps   │\n│  int32  │ double │\n├─────────┼────────┤\n"
        + "".join(f"│ {n} │ {x} │\n" for n, x in RATES)
        + "├─────────┴────────┤\n│ 4 rows  2 columns │\n└──────────────────┘\n",
        " clients │ tps \n─────────┼─────\n" + "".join(f" {n} │ {x}\n" for n, x in RATES) + "(4 rows)\n",
        "+---+---+\n| clients | tps |\n+---+---+\n"
        + "".join(f"| {n} | {x} |\n" for n, x in RATES)
        + "+---+---+\n4 rows in set (0.00 sec)\n",
        "Results of May:\n\n| Threads | TPS |\n|:--:|--:|\n"
        + "".join(f"| {n} | {x} |\n" for n, x in RATES)
        + "\n*measured on db1*\n",
        "Users,Throughput\n,(tps)\n" + "".join(f"{n},{x}\n" for n, x in RATES),
        "Users;Throughput;host\n#;tx/s;\n" + "".join(f"{n};{x};a\n" for n, x in RATES),
        "clients,1,2,4,8\ntps,955,1879,3549,6531\n",
        "| clients | 1 | 2 | 4 | 8 |\n|---|---|---|---|---|\n| tps | 955 | 1879 | 3549 | **6531** |\n",
        "| **Clients** | `TPS` |\n|---|---|\n" + "".join(f"| **{n}** ⭐ | ~{x} 🚀 |\n" for n, x in RATES),
        "clients|tps\n" + "".join(f"{n} threads|{x} tx/s\n" for n, x in RATES),
        "clients|tps\n" + "".join(f"{n}|{x} (+5 %)\n" for n, x in RATES),
        "clients|tps\n" + "".join(f"{n}|{x} ± 12\n" for n, x in RATES),
        "clients|tps\n" + "".join(f"{n}|{x / 1000}k\n" for n, x in RATES),
        '"Clients #",tps\n' + "".join(f"{n},{x}  # good\n" for n, x in RATES),
    ],
)
def test_one_table_may_have_many_forms(text: str) -> None:
    assert pairs(read(text)) == [(n, pytest.approx(x)) for n, x in RATES]


def test_cells_with_units_dashes_and_indian_groups_are_read() -> None:
    ladder = read("clients,tps,latency\n1,955,1.05 ms\n2,1879,—\n4,3549,1.13 ms\n")
    assert ladder.points["response_s"].to_list() == [pytest.approx(0.00105), None, pytest.approx(0.00113)]
    assert pairs(read('users,tpm\n1,"1,12,500"\n2,"2,20,000"\n4,"11,02,000"\n'))[-1][1] * 60 == 1_102_000
    with pytest.raises(UsageError, match="'900 rows' is not a number") as e:
        read("clients,tps,latency\n1,955,900 rows\n2,1879,1.1 ms\n4,3549,1.2 ms\n")
    assert "--response none" in (e.value.cure or "")


def test_columns_of_words_keep_the_words_of_their_cells() -> None:
    text = "machine,N,X\n" + "".join(f"{m} cores,{n},{x}\n" for m in (8, 16) for n, x in RATES)
    with pytest.raises(UsageError, match="2 ladders, by column machine") as e:
        read(text)
    assert "--where 'machine=8 cores'" in (e.value.cure or "")
    assert len(read(text, where={"machine": "8 cores"}).points) == 4


@pytest.mark.parametrize(
    "text",
    [
        "Clients,PG 18; touch x,b\n1,10,1\n2,20,2\n4,30,3\n",
        "Load Gen,Users,Avg tps,tps (k)\n1,1,10,11\n2,2,19,20\n4,4,33,35\n",
        "Load Gen,Users,X\n" + "".join(f"$(id) {g},{n},{x}\n" for g in "ab" for n, x in RATES),
    ],
)
def test_cures_with_words_of_the_file_are_single_arguments_for_the_shell(text: str) -> None:
    with pytest.raises(UsageError) as e:
        read(text)
    words = shlex.split((e.value.cure or "").replace(";", " "))
    assert {"PG 18  touch x", "Avg tps", "Load Gen=$(id) a"} & set(words)


def test_samples_have_line_breaks_in_headings_and_the_decimal_sign_of_their_column(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    path.write_text('"run","ms\n(mean)","other"\n1,"1,234","0,5"\n2,"1,300","0,7"\n')
    with pytest.raises(UsageError, match="may be"):
        read_sample(path, "2")
    assert read_sample(path, "2", ",").values == (1.234, 1.3)
    path.write_text("│ before │ after │\n├────────┼───────┤\n│ 1.5 │ **2.5** │\n│ 1.6 │ 2.7 │\n(2 rows)\n")
    assert [n.values for n in read_pair(path)] == [(1.5, 1.6), (2.5, 2.7)]


def test_a_log_of_pgbench_is_refused_by_its_name(tmp_path: Path) -> None:
    (path := tmp_path / "log").write_text("0 199 2241 0 1175850568 995598\n0 200 2465 0 1175850568 998079\n")
    for function in (lambda: ladder_of(path.read_text(), "log"), lambda: read_sample(path)):
        with pytest.raises(UsageError, match="log of pgbench") as e:
            function()
        assert "awk" in (e.value.cure or "")
