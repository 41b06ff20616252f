"""Anybody's table as a ladder: headings, separators, units; and every kind of bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.results.analyses import POINTS, Ladder
from dbdyno.store.ladder_csv import Columns, ladder_of, read_ladder
from dbdyno.store.ladder_csv.headings import named
from dbdyno.store.table_cells import number

FOUR = "1,100\n2,190\n4,350\n8,500\n"


def read(text: str, **columns: object) -> Ladder:
    return ladder_of(text, "f.csv", Columns(**columns))  # type: ignore[arg-type]


def pairs(ladder: Ladder) -> list[tuple[float, float]]:
    return ladder.points.select("load", "throughput").rows()


@pytest.mark.parametrize(
    "text",
    [
        FOUR,
        "N,X\n" + FOUR,
        "\ufeffsessions,throughput\r\n" + FOUR.replace("\n", "\r\n"),
        "# of a machine\n# clients tps\n" + FOUR.replace(",", " "),
        "threads\tqps\n" + FOUR.replace(",", "\t"),
        "users;rate\n" + FOUR.replace(",", ";"),
        " sessions | tps \n-----------+----\n" + FOUR.replace(",", " | ") + "(4 rows)\n",
        "| N | X(N) |\n|---|---|\n" + "".join(f"| {x.replace(',', ' | ')} |\n" for x in FOUR.split()),
        "sessions  throughput (calls/s)\n" + FOUR.replace(",", "    "),
        "host,N,X,\n" + "".join(f"db1,{x},\n" for x in FOUR.split()),
        "N,X\n" + FOUR.replace("350", "350  # a good one"),
        "N, X\n" + FOUR.replace(",", ", ") + "\n\n",
        "N,X\n8,500\n" + FOUR.replace("8,500\n", ""),
    ],
)
def test_one_ladder_may_be_written_in_many_ways(text: str) -> None:
    ladder = read(text.removeprefix("\ufeff"))
    assert pairs(ladder) == [(1, 100), (2, 190), (4, 350), (8, 500)]
    assert dict(ladder.points.schema) == POINTS


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("1;1.100,5\n2;2.190\n4;4.350\n8;7.500,25", 7500.25),
        ("1 10,5\n2 19,2\n4 35\n8 75,25", 75.25),
        ('N,X,cpu\n1,100,0.5\n2,190,1.0\n4,350,1.5\n8,"1,500",1.9', 1500.0),
        ('N,X\n1,"0,500"\n2,"0,900"\n4,"1,000"\n8,"1,100"', 1.1),
        ("N;X\n1;100\n2;1.000.000\n4;1.500.000\n8;1.900.500", 1900500.0),
        ("N X\n1 1,250\n2 1,500\n4 1,600\n8 12345,5", 12345.5),
        ("N,X\n1,1.052\n2,2.101\n4,4.190\n8,7.330", 7.33),  # commas part the columns: the dot is decimal
        ("N\tX\n1\t1 100\n2\t2 190\n4\t4 350\n8\t1'234'500.5", 1234500.5),
        ("N X\n1 1e2\n2 1.9E2\n4 350.\n8 5e+2", 500.0),
    ],
)
def test_decimal_commas_and_parted_thousands_are_read(text: str, last: float) -> None:
    assert pairs(read(text))[-1] == (8, last)


@pytest.mark.parametrize(
    ("text", "dot", "comma"),
    [
        ("N;X\n1;1,100\n2;2,190\n4;4,350\n8;7,500", 7500, 7.5),
        ("N;X\n1;1.100\n2;2.190\n4;4.350\n8;7.500", 7.5, 7500),
        ("N\tX\n1\t100\n2\t190\n4\t350\n8\t7.500", 7.5, 7500),
        ('N,X\n1,"1,100"\n2,"2,190"\n4,"4,350"\n8,"7,500"', 7500, 7.5),
        ("N,X\n1,812\n2,1.610\n4,2.900\n8,7.500", 7.5, 7500),  # 812 before 1.610: more likely thousands
    ],
)
def test_a_number_that_can_be_read_in_two_ways_is_asked_about(text: str, dot: float, comma: float) -> None:
    with pytest.raises(UsageError, match="is either") as e:
        read(text)
    assert e.value.cure and "--decimal '.' reads" in e.value.cure and "--decimal ',' reads" in e.value.cure
    assert pairs(read(text, decimal="."))[-1] == (8, dot)
    assert pairs(read(text, decimal=","))[-1] == (8, comma)


@pytest.mark.parametrize(
    ("heading", "role", "unit", "factor"),
    [
        ("# Users", "load", "users", 1), ("numThreads", "load", "threads", 1), ("N", "load", "", 1),
        ("concurrent clients", "load", "clients", 1), ("processors", "load", "processors", 1),
        ("Throughput (MB/s)", "throughput", "MB/s", 1), ("avg_tps", "throughput", "transactions/s", 1),
        ("orders per second", "throughput", "orders/s", 1), ("tpmC", "throughput", "transactions/s", 1 / 60),
        ("Latency (µs)", "response_s", "us", 1), ("avgResponseTime_ms", "response_s", "ms", 1),
        ("95th percentile ms", "response_p95_s", "ms", 1), ("sys cpu", "cpu_system", "", 1),
        ("CPU (%)", "cpu", "%", 1), ("run queue", "cpu_wait", "", 1), ("Run #", "repeat", "", 1),
        ("ktps", "throughput", "transactions/s", 1e3), ("tps (k)", "throughput", "transactions/s", 1e3),
        ("TPS_k", "throughput", "transactions/s", 1e3),
        ("Mtx/h", "throughput", "transactions/s", 1e6 / 3600),
        ("tx/hour", "throughput", "transactions/s", 1 / 3600),
        ("tpm", "throughput", "transactions/s", 1 / 60),
        ("requests per minute", "throughput", "requests/s", 1 / 60),
        ("NOPM", "throughput", "orders/s", 1 / 60),
        ("Throughput (k tx/s)", "throughput", "transactions/s", 1e3),
        ("ops/ms", "throughput", "operations/s", 1e3), ("ops/s (x1000)", "throughput", "operations/s", 1e3),
        ("million rows/h", "throughput", "rows/s", 1e6 / 3600),
        ("throughput per hour", "throughput", "", 1 / 3600), ("QphH", "throughput", "queries/s", 1 / 3600),
        ("kIOPS", "throughput", "I/Os/s", 1e3), ("txn_rate", "throughput", "transactions/s", 1),
        ("TxnRate", "throughput", "transactions/s", 1), ("reqrate", "throughput", "requests/s", 1),
        ("req_rate", "throughput", "requests/s", 1), ("MB/s", "throughput", "MB/s", 1),
        ("calls", "throughput", "calls/s", 1), ("Requests", "throughput", "requests/s", 1),
        ("nodes", "load", "nodes", 1), ("nodeCount", "load", "nodes", 1),
        ("Instances", "load", "instances", 1), ("aas", "load", "active sessions", 1),
        ("AAS", "load", "active sessions", 1), ("dop", "load", "parallel workers", 1),
        ("Degree of Parallelism", "load", "parallel workers", 1), ("degree", "load", "parallel workers", 1),
        ("queue_depth", "load", "I/Os in flight", 1), ("queueDepth", "load", "I/Os in flight", 1),
        ("QUEUE DEPTH", "load", "I/Os in flight", 1), ("iodepth", "load", "I/Os in flight", 1),
        ("ioDepth", "load", "I/Os in flight", 1), ("n_clients", "load", "clients", 1),
        ("nthreads", "load", "threads", 1), ("thds", "load", "threads", 1),
        ("responseTimeMs", "response_s", "ms", 1), ("cpu_pct", "cpu", "%", 1),
        ("duration (h)", "duration", "h", 1),
    ],
)  # fmt: skip
def test_a_heading_has_its_role_unit_and_factor(heading: str, role: str, unit: str, factor: float) -> None:
    column = named(heading)
    assert column is not None
    assert (column.role, column.unit, column.factor) == (role, unit, pytest.approx(factor))


@pytest.mark.parametrize(
    "heading",
    [
        *("throughput_stddev", "iowait", "response_p50_ns", "variant", "host", "max_ms", "err/s", "hit rate"),
        *("error rate", "latency_min", "p99", "time", "retries", "noise", "ms", "cpu count"),
    ],
)
def test_a_heading_of_no_column_of_a_ladder_is_left_out(heading: str) -> None:
    assert named(heading) is None


def test_loads_that_come_again_are_repeats() -> None:
    ladder = read("N,X\n" + FOUR + FOUR)
    assert ladder.points["repeat"].to_list() == [1, 2] * 4
    assert any("taken as repeats" in n for n in ladder.notes)
    repeated = read("N,X,run\n1,10,b\n2,19,b\n4,35,b\n8,50,b\n1,11,a\n2,20,a\n4,36,a\n8,51,a")
    assert repeated.points.filter(repeat=2)["throughput"].to_list() == [11, 20, 36, 51]
    assert repeated.notes == ()


def test_two_ladders_in_a_file_are_not_taken_for_repeats() -> None:
    text = "variant,N,X,day\n" + "".join(
        f"{v},{x},{v}{x[0]}\n" for v in ("base", "fast") for x in FOUR.split()
    )
    with pytest.raises(UsageError, match="2 ladders, by column variant") as e:
        read(text)
    assert "--where variant=base" in str(e.value)
    assert pairs(read(text, where={"variant": "fast"}))[-1] == (8, 500)
    assert read(text, repeat="variant").points["repeat"].n_unique() == 2


def test_columns_can_be_named_numbered_and_lines_chosen() -> None:
    text = "threads,clients,a,b,db\n" + "".join(
        f"{n + 1},{n},{n},{10 * n},{d}\n" for n in (1, 2, 4, 8) for d in "xy"
    )
    with pytest.raises(UsageError, match="threads or clients") as e:
        read(text, throughput="b")
    assert e.value.cure == "choose one: --load threads or --load clients"
    ladder = read(text, load="Clients", throughput="4", where={"db": "y"})
    assert pairs(ladder) == [(1, 10), (2, 20), (4, 40), (8, 80)]
    assert ladder.notes == ("columns left out: threads, a, db",)
    with pytest.raises(UsageError, match="no column 'clinets'") as e:
        read(text, load="clinets", throughput="b")
    assert "'clients'" in str(e.value)


def test_loads_need_not_be_whole() -> None:
    assert pairs(read("N,tps\n0.5,50\n1.25,120\n7.75,500"))[0] == (0.5, 50)


def line(n: int, new: str) -> str:
    lines = ["sessions,tps", *FOUR.split()]
    lines[n - 1] = new
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("# nothing\n\n", "empty"),
        ("sessions,tps\n", "no line of numbers"),
        ("sessions\n1\n2\n", "line 1: one column"),
        ("sessions,foo\n" + FOUR, "no column for the throughput"),
        ("foo,tps\n" + FOUR, "no column for the sessions"),
        ("tps,TPS,N\n1,1,1", "two columns 'TPS'"),
        ("1,2,3\n2,3,4", "no header"),
        (line(4, "4,abc"), "line 4, tps: 'abc' is not a number"),
        (line(4, "4,12 ms"), "line 4, tps: '12 ms' is not a number"),
        (line(4, "4,-1"), "line 4, tps: -1 is negative"),
        (line(4, "4,0"), "line 4, tps is zero"),
        (line(4, "4,NaN"), "line 4, tps: NaN is not a measured value"),
        (line(4, "4,-inf"), "line 4, tps: -inf is not a measured value"),
        (line(4, "4,1e999"), "line 4, tps: 1e999 is not a measured value"),
        (line(4, "4,"), "line 4, tps: no value"),
        (line(4, "4"), "line 4, tps: no value"),
        (line(4, "4,1,500"), "line 4 has 3 fields"),
        (line(4, "0,350"), "line 4, sessions is zero"),
        (line(4, "4,1e300"), "line 4, tps: 1e300 is out of range"),
        ("N,X\n1,1\n2,2\n2,3\n2,4\n", "2 different loads: at least 3"),
        ("N,X,R\n1,1,0\n", "line 2, R is zero"),
        ("N,X\n" + "1,1\n" * 20001, "a log, not a ladder"),
    ],
)
def test_wrong_input_is_refused_with_its_place_and_cure(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match="(?i)" + problem.replace(".", r"\.")) as e:
        read(text)
    assert e.value.exit_code == 2
    assert e.value.cure


def test_a_file_that_cannot_be_read_is_an_error_with_a_cure(tmp_path: Path) -> None:
    binary, large = tmp_path / "a.png", tmp_path / "large.csv"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x01\xff")
    large.write_bytes(b"1,2\n" * (5 << 20))
    for path, problem in (
        (binary, "binary"),
        (large, "larger than 16 MiB"),
        (tmp_path, "directory"),
        (tmp_path / "no", "No such"),
    ):
        with pytest.raises(UsageError, match=problem) as e:
            read_ladder(path)
        assert e.value.cure


SESSIONS = "sessions,tps\n" + FOUR


@pytest.mark.parametrize(
    ("content", "last"),
    [
        ("\ufeff" + SESSIONS, 500),
        (SESSIONS.replace("\n", "\r\n"), 500),
        (SESSIONS.replace("\n", "\r"), 500),
        ("\n\n" + SESSIONS.replace("\n", "\n\n"), 500),
        ("# host=db1\n" + SESSIONS.replace("\n", " # fine\n"), 500),
        ('"Sessions","TPS"\n"1","100"\n"2","190"\n"4","350"\n"8","500"\n', 500),
        ("sessions;tps\n" + FOUR.replace(",", ";").replace("350", "350,5"), 500),
        ("sessions , tps ,\n" + FOUR.replace("\n", ",\n"), 500),
        (SESSIONS + SESSIONS, 500),  # the header again
        ("sessions,tps,95\n" + FOUR.replace("\n", ",9\n"), 500),
        ("date,sessions,tps\n" + "".join(f"2026-11-22 10:00,{x}\n" for x in FOUR.split()), 500),
        ("scale clients threads tps lat_avg_ms\n1 1 2 100 9.9\n1 2 2 190 9\n1 8 2 500 9\n", 500),  # pgbench
        ("VU,NOPM\n1,6000\n2,11400\n8,30000\n", 500),  # HammerDB
        (
            " clients |  tps\n---------+-----\n"
            + "".join(f" {x.replace(',', ' | ')}\n" for x in FOUR.split()),
            500,
        ),
        ("sessions,tps,response_ms\n1,100,9\n2,190,\n8,500,-\n", 500),
        ("n,x\n" + "".join(f"{n},{n / (1 + n / 100)!r}\n" for n in range(1, 2001)), 2000 / 21),
    ],
)
def test_an_odd_file_may_be_a_ladder(tmp_path: Path, content: str, last: float) -> None:
    (path := tmp_path / "ladder.csv").write_bytes(content.encode())
    assert pairs(read_ladder(path))[-1][1] == pytest.approx(last)


@pytest.mark.parametrize(
    ("content", "problem", "cure"),
    [
        (b"", "is empty", "sessions,throughput"),
        (bytes(range(256)), "is binary", "save it as CSV"),
        (b"PK\x03\x04\x14\x00\x06\x00", "an Excel workbook", "save it as CSV"),
        (b"\x1f\x8b\x08\x00", "compressed", "save it as CSV"),
        (b'[{"sessions": 1, "tps": 955}]', "is JSON", "save it as CSV"),
        (SESSIONS.encode("utf-16-le"), "is binary", "save it as CSV"),
        (b"Results of May\n" + SESSIONS.encode(), "line 1: one column", "a title begins with #"),
        (SESSIONS.encode() + b"Total,1140\n", "line 6, sessions: 'Total' is not a number", "begin it with #"),
        (b"sessions,tps\n1,1.2k\n2,2.3k\n4,4000\n", "line 2, tps: '1.2k' is not a number", "ktps"),
        (b"sessions,tps\n1,100 tx/s\n2,190\n4,350\n", "line 2, tps: '100 tx/s' is not a number", "header"),
        (b"sessions,tps\n0,0\n" + FOUR.encode(), "line 2, sessions is zero", "leave the line out"),
        (FOUR.replace("\n", ",9\n").encode(), "3 columns and no header", "--load 1 --throughput 2"),
        (b"threads,tps,qps\n1,100,2000\n2,190,3800\n4,350,7000\n", "tps or qps", "--throughput tps"),
        (b"number of clients: 1\nlatency average = 1.0 ms\n", "line 2 has 5 fields", "same columns"),
    ],
)
def test_an_odd_file_that_is_no_ladder_is_refused_with_a_cure(
    tmp_path: Path, content: bytes, problem: str, cure: str
) -> None:
    (path := tmp_path / "ladder.csv").write_bytes(content)
    with pytest.raises(UsageError, match=problem) as e:
        read_ladder(path)
    assert cure in (e.value.cure or "")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_encodings_of_spreadsheets_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "ladder.csv"
    path.write_bytes(
        ("sessions;tps;größe\n" + "".join(f"{x.replace(',', ';')};ü\n" for x in FOUR.split())).encode(
            encoding
        )
    )
    ladder = read_ladder(path, Columns(load_unit="Leute"))
    assert pairs(ladder)[-1] == (8, 500)
    assert (ladder.name, ladder.load_unit) == ("ladder.csv", "Leute")


@examples(60)
@given(st.text(alphabet="0123456789.,;- \t\n\"'#|enXNabc%()/_é", max_size=60))
def test_any_text_is_a_ladder_or_an_error_of_the_user(text: str) -> None:
    try:
        ladder = read(text)
    except DbdynoError as e:
        assert isinstance(e, UsageError) and e.cure
    else:
        assert ladder.points["throughput"].min() > 0 and ladder.points["load"].n_unique() >= 4  # type: ignore[operator]


@examples(60)
@given(st.floats(0.001, 1e9), st.sampled_from([",", "."]))
def test_a_number_written_either_way_is_that_number(value: float, decimal: str) -> None:
    swap = str.maketrans(",.", ".,")
    text = f"{value:,.6f}"
    assert number(text.translate(swap) if decimal == "," else text, decimal) == pytest.approx(value, abs=1e-6)
