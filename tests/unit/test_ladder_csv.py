"""Anybody's table as a ladder: headings, separators, units; and every kind of bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dbdyno.model.analyses import POINTS, Ladder, Machine
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.store.ladder_csv import Columns, ladder_of, read_ladder, read_numbers
from dbdyno.store.ladder_csv.headings import named
from dbdyno.store.ladder_csv.text import number

FOUR = "1,100\n2,190\n4,350\n8,500\n"


def read(text: str, machine: Machine | None = None, **columns: object) -> Ladder:
    return ladder_of(text, "f.csv", Columns(**columns), machine)  # type: ignore[arg-type]


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
def test_ways_to_write_the_same_ladder(text: str) -> None:
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
def test_decimal_commas_and_parted_thousands(text: str, last: float) -> None:
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
def test_headings(heading: str, role: str, unit: str, factor: float) -> None:
    found = named(heading)
    assert found is not None
    assert (found.role, found.unit, found.factor) == (role, unit, pytest.approx(factor))


@pytest.mark.parametrize(
    "heading",
    [
        *("throughput_stddev", "iowait", "response_p50_ns", "variant", "host", "max_ms", "err/s", "hit rate"),
        *("error rate", "latency_min", "p99", "time", "retries", "noise", "ms", "cpu count"),
    ],
)
def test_headings_of_nothing_a_ladder_has(heading: str) -> None:
    assert named(heading) is None


def test_units_become_the_contracts() -> None:
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
        ("sessions,X", {"throughput_unit": "k orders/s"}, 1e-3, "orders/s"),
        ("sessions,tpm", {}, 60, "transactions/s"),
        ("sessions,tpm", {"throughput_unit": "orders"}, 60, "orders/s"),
        ("sessions,tps", {"throughput_unit": "calls/min"}, 60, "calls/s"),  # what the option says of the file
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
    for made in (read(text), read(text, duration="2min", duration_unit="min")):
        assert [x for _, x in pairs(made)] == pytest.approx([x for _, x in RATES])
        assert made.points["cpu"].to_list() == pytest.approx([0.9 * n for n, _ in RATES])
        assert made.points["cpu_user"].to_list() == pytest.approx([0.6 * n for n, _ in RATES])
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
def test_little_s_law_refuses_a_wrong_unit(head: str, response: float | list[float], cure: str) -> None:
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
def test_little_s_law_lets_pass_what_may_be(
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
    ("text", "options", "said", "cure"),
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
        (table("Sitzungen,tps"), {}, "no column for the sessions", "--load Sitzungen"),
        (table("sessions,tps"), {"throughput_unit": "a/b/c"}, "not a unit of throughput", "orders/s"),
        (table("sessions,tps"), {"response_unit": "parsec"}, "not a unit of time", "ms"),
    ],
)
def test_what_does_not_fit_together_is_asked_about(
    text: str, options: dict[str, str], said: str, cure: str
) -> None:
    with pytest.raises(UsageError, match=said) as e:
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


def test_loads_that_come_again_are_repeats() -> None:
    ladder = read("N,X\n" + FOUR + FOUR)
    assert ladder.points["repeat"].to_list() == [1, 2] * 4
    assert any("taken as repeats" in n for n in ladder.notes)
    told = read("N,X,run\n1,10,b\n2,19,b\n4,35,b\n8,50,b\n1,11,a\n2,20,a\n4,36,a\n8,51,a")
    assert told.points.filter(repeat=2)["throughput"].to_list() == [11, 20, 36, 51]
    assert told.notes == ()


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
    ("text", "said"),
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
def test_bad_input_says_where_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="(?i)" + said.replace(".", r"\.")) as e:
        read(text)
    assert e.value.exit_code == 2
    assert e.value.cure


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, large = tmp_path / "a.png", tmp_path / "large.csv"
    binary.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x01\xff")
    large.write_bytes(b"1,2\n" * (5 << 20))
    for path, said in (
        (binary, "binary"),
        (large, "larger than 16 MiB"),
        (tmp_path, "directory"),
        (tmp_path / "no", "No such"),
    ):
        with pytest.raises(UsageError, match=said) as e:
            read_ladder(path)
        assert e.value.cure


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_what_spreadsheets_write(tmp_path: Path, encoding: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("1\n2.5\n3e2\n", None, [1, 2.5, 300]),
        ("# of a run\nms\n1,5\n2,25\n", None, [1.5, 2.25]),
        ("time (ms)\n1.5\n2.25\n", None, [1.5, 2.25]),
        ("a,b\n1,5\n2,6\n", "B", [5, 6]),
        ("a;b\n1,5;5,5\n2,5;6,25\n", "b", [5.5, 6.25]),
        ("1 100\n2 190\n", "2", [100, 190]),
        ("ms\n1\n2\n", "ms", [1, 2]),
        ("1e300\n2e300\n", None, [1e300, 2e300]),
    ],
)
def test_numbers_of_a_file(tmp_path: Path, text: str, column: str | None, expected: list[float]) -> None:
    (path := tmp_path / "numbers.csv").write_text(text)
    assert read_numbers(path, column) == expected


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", None, "no values"),
        ("ms\n", None, "no values"),
        ("1\nabc\n", None, "line 2, column 1: 'abc' is not a number"),
        ("1\nnan\n", None, "line 2, column 1: nan is not a measured value"),
        ("1,100\n2,200\n", None, "line 1, column 1: 1,100 is either 1,100 or 1.1"),
        ("a,b\n1,5\n", None, "is a table"),
        ("a,b\n1,5\n", "c", "no column 'c'"),
        ("a,b\n1,\n", "b", "line 2, b: no value"),
    ],
)
def test_numbers_that_are_none(tmp_path: Path, text: str, column: str | None, said: str) -> None:
    (path := tmp_path / "numbers.csv").write_text(text)
    with pytest.raises(UsageError, match=said) as e:
        read_numbers(path, column)
    assert e.value.cure
