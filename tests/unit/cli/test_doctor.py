"""Lines of ``dbdyno doctor`` about data sources, and about the server that it starts."""

from __future__ import annotations

import os

from dbdyno.cli.doctor import _lines
from dbdyno.conduct import Diagnosis
from dbdyno.conduct.doctor import _started
from dbdyno.engines.postgres.enabling import Visibility
from dbdyno.engines.postgres.facts import sources
from dbdyno.model.schema.data_source import Enabling, Step
from dbdyno.model.sources.source import Source

ON = [
    Source(name=f"source {n}", provenance="/proc", status="ok", enabling=Enabling(f"gives {n}"))
    for n in "abc"
]
REQUESTED = Source(
    name="profile",
    provenance="perf",
    status="off",
    detail="long reason",
    enabling=Enabling("functions", "a right", (Step("dbdyno run WORKLOAD --profile"),)),
)
DENIED = Source(
    name="trace",
    provenance="bpf",
    status="not permitted",
    detail="a right is missing",
    enabling=Enabling("sleeps", "CAP_BPF", (Step("sysctl -w kernel.x=1", "root"), Step("dbdyno run W --y"))),
)


def lines(everything: bool) -> list[str]:
    return list(
        _lines(Diagnosis(None, (*ON, REQUESTED, DENIED), (), None, None, "It was started."), everything)
    )


def test_sources_that_are_on_are_named_in_one_line_and_missing_ones_have_their_cure() -> None:
    short = lines(everything=False)
    assert "source a; source b; source c" in " ".join(short)
    assert not any("gives a" in line for line in short)
    assert any("gives a" in line for line in lines(everything=True))
    assert any(line.split() == ["profile", "--profile", "functions"] for line in short)
    begin = short.index("trace: not permitted")
    assert "sysctl -w kernel.x=1" in "".join(short[begin:])
    assert max(map(len, short)) <= 80 and "It was started." in short


def test_a_source_that_not_all_loads_have_says_so() -> None:
    seen = Visibility("app", *[False] * (len(Visibility._fields) - 1))
    (counters,) = [
        s
        for s in sources(15, (), seen, ON[0], counts_own_work=False)
        if s.name == "engine counters, per session"
    ]
    text = " ".join(_lines(Diagnosis(None, (counters,), (), None, None, ""), everything=False))
    loads = "(built-in workloads; own scripts from PostgreSQL 18 on)"
    assert f"engine counters, per session {loads}." in text
    (of_18,) = [
        s
        for s in sources(18, (), seen, ON[0], counts_own_work=True)
        if s.name == "engine counters, per session"
    ]
    assert (of_18.status, of_18.enabling.only) == ("ok", "")


def test_who_started_the_server_is_said_and_where_its_data_stays() -> None:
    own = {"running": True, "stays": False, "owner_pid": os.getpid(), "data_dir": "/var/lib/x/data"}
    assert "stops it" in _started(own) and "/var/lib/x/data" in _started(own)
    assert "keeps running" in _started(own | {"stays": True})
    assert "4711" in _started(own | {"owner_pid": 4711}) and "stops" not in _started(
        own | {"owner_pid": 4711}
    )
