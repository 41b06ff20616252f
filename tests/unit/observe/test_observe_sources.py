"""How the witnesses of a cell are judged, from what was read."""

import threading
import time
from collections.abc import Mapping

import polars as pl
import pytest
from tests.fake_engine import FakeServer

from dbdyno.model.engine.protocols import Server, Target
from dbdyno.model.schema.tables import RAW, empty, raw, rows
from dbdyno.model.sources.source import TRACE, Source
from dbdyno.observe import frames, sources
from dbdyno.observe.sources import EXITS, WatchState
from dbdyno.observe.watch import How, open_watch

Tables = dict[str, pl.DataFrame]


class Engine(FakeServer):
    """A server with witnesses of its own."""

    def __init__(self, *own: Source) -> None:
        super().__init__(Target(dsn="fake:"))
        self._own = own

    def sources(self) -> tuple[Source, ...]:
        return self._own


def tables(**filled: pl.DataFrame) -> Tables:
    return {name: empty(raw(name)) for name in RAW} | filled


def tasks(*read: Mapping[str, object]) -> pl.DataFrame:
    blank = {"before_ns": 1, "after_ns": 2, "pid": 3, "tid": 3, "role": "session", "status": "ok"}
    return rows("tasks", [{**blank, **row} for row in read])


def sampler(*statuses: str) -> pl.DataFrame:
    blank = {"due_ns": 1, "start_ns": 1, "end_ns": 2}
    return rows("sampler", [{"sample": n, "status": s, **blank} for n, s in enumerate(statuses)])


def verdicts(gathered: Tables, server: Server | None = None, **options: object) -> dict[str, dict[str, str]]:
    frame = sources(server or Engine(), gathered, **options)  # type: ignore[arg-type]
    return {row["name"]: row for row in frame.iter_rows(named=True)}


def test_a_witness_with_one_good_read_is_ok_and_lost_ones_are_counted() -> None:
    read = tasks(
        {}, {"session": 1}, {"role": "helper:x", "status": "vanished"}, {"role": "driver", "status": "lost"}
    )
    result = verdicts(tables(tasks=read))
    assert (result["os tasks"]["status"], result["os tasks"]["detail"]) == ("ok", "1 vanished of 3 reads")
    assert result["driver tasks"]["status"] == "lost"


@pytest.mark.parametrize("status", ["not here", "not permitted", "not supported", "lost", "vanished"])
def test_a_witness_without_a_good_read_has_a_reason_and_a_cure(status: str) -> None:
    result = verdicts(tables(tasks=tasks({"status": status})))
    assert result["os tasks"]["status"] == status
    assert result["os tasks"]["detail"]


def test_no_read_at_all_is_not_here() -> None:
    result = verdicts(tables())
    assert {result[n]["status"] for n in ("os tasks", "cgroup", "host", "activity samples")} == {"not here"}
    assert result["driver"]["status"] == "lost"


def test_block_io_is_off_where_its_column_is_unknown() -> None:
    assert verdicts(tables(tasks=tasks({})))["block I/O delay"]["status"] == "off"
    assert verdicts(tables(tasks=tasks({"blkio_ns": 0})))["block I/O delay"]["status"] == "ok"


def test_lost_samples_have_the_servers_error() -> None:
    result = verdicts(tables(sampler=sampler("lost")), reported=WatchState(trouble="connection refused"))
    assert "connection refused" in result["activity samples"]["detail"]
    result = verdicts(tables(sampler=sampler("ok", "ok", "lost")), reported=WatchState(trouble="it broke"))[
        "activity samples"
    ]
    assert (result["status"], result["detail"]) == ("ok", "1 lost of 3 samples: it broke")


def test_the_engine_names_the_view_and_adds_witnesses_of_its_own() -> None:
    view = Source(name="activity samples", provenance="pg_stat_activity", status="ok")
    own = Source(name="session counters", provenance="some view", status="not supported", detail="needs 18")
    result = verdicts(tables(sampler=sampler("ok")), Engine(view, own))
    assert result["activity samples"]["provenance"] == "pg_stat_activity"
    assert result["session counters"]["status"] == "not supported"


class Seen(Engine):
    """A server on the real machine."""

    def __init__(self) -> None:
        super().__init__()
        self.world = None  # type: ignore[assignment]


class OurThreads:
    """A load whose driver is this very thread."""

    def threads(self) -> list[int]:
        return [threading.get_native_id()]


def test_with_observation_switched_off_only_the_drivers_threads_are_read() -> None:
    watch = open_watch(Seen(), OurThreads(), How(enabled=False))  # type: ignore[arg-type]
    now_ns = time.monotonic_ns()
    watch.start(now_ns, now_ns + 1)
    watch.stop()
    read = frames(watch)
    assert set(read["tasks"]["role"]) == {"driver", "dbdyno"}
    assert all(read[name].is_empty() for name in ("samples", "cgroup", "host", "traced"))
    result = verdicts(tables(tasks=read["tasks"]), enabled=False)
    assert result.pop("driver tasks")["status"] == "ok"
    assert {row["status"] for name, row in result.items() if name != "driver"} == {"off"}


def test_a_refused_witness_has_its_own_reason() -> None:
    state = WatchState(
        states={"scheduler trace": ("not permitted", "needs CAP_BPF"), "sampler priority": ("ok", "")}
    )
    result = verdicts(tables(tasks=tasks({})), reported=state)
    assert (result["scheduler trace"]["status"], result["scheduler trace"]["detail"]) == (
        "not permitted",
        "needs CAP_BPF",
    )
    assert result["sampler priority"]["status"] == "ok"
    refused = sampler("lost").with_columns(via=pl.lit("memory"))
    state = WatchState(states={"wait event word": ("not permitted", "another uid")})
    word = verdicts(tables(tasks=tasks({}), sampler=refused), reported=state)["wait event word"]
    assert (word["status"], word["detail"]) == ("not permitted", "another uid")


def test_a_witness_that_lost_a_part_is_limited_and_its_figures_count() -> None:
    read = {"before_ns": 1, "after_ns": 2, "pid": 3, "tid": 3, "role": "session", "status": "ok"}
    traced = tables(tasks=tasks({}), traced=rows("traced", [read, {**read, "status": "lost"}]))
    states = {TRACE: ("limited", "3 processes found no room"), EXITS: ("limited", "9 messages")}
    result = verdicts(traced, reported=WatchState(states=states))
    assert result[TRACE]["status"] == "limited"
    assert result[TRACE]["detail"] == "3 processes found no room; 1 lost of 2 reads"
    assert (result[EXITS]["status"], result[EXITS]["detail"]) == ("limited", "9 messages")
    assert verdicts(traced, reported=WatchState(states={TRACE: ("ok", "")}))[TRACE]["status"] == "ok"


def test_memory_samples_and_activity_samples_are_counted_apart() -> None:
    both = pl.concat([sampler("ok", "lost"), sampler("ok", "ok", "ok").with_columns(via=pl.lit("memory"))])
    result = verdicts(tables(tasks=tasks({}), sampler=both))
    assert result["activity samples"]["detail"] == "1 lost of 2 samples"
    assert (result["wait event word"]["status"], result["wait event word"]["detail"]) == ("ok", "")


def test_unrequested_witnesses_are_off_and_those_elsewhere_not_here() -> None:
    assert verdicts(tables(tasks=tasks({})))["scheduler trace"]["status"] == "off"
    elsewhere = verdicts(tables(tasks=tasks({"status": "not here"})))
    assert {elsewhere[n]["status"] for n in ("scheduler trace", "wait event word")} == {"not here"}


def test_an_observation_has_no_driver_among_its_witnesses() -> None:
    assert "driver" not in verdicts(tables(), driven=False)
