"""Triggers: the conditions' grammar, and when they fire, as a state machine over given samples."""

from __future__ import annotations

import polars as pl
import pytest

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import Experiment, Observation
from dbdyno.model.plan.triggers import TriggerSpec
from dbdyno.model.schema.tables import empty, rows
from dbdyno.model.sources.wait_families import Family, WaitFamilies
from dbdyno.observe.live_values import Wanted, counted, live_values, p95_ns
from dbdyno.plan.trigger_conditions import evaluate, parse_condition
from dbdyno.plan.triggers import Budget, Trigger, firings, parse_action, triggers_of

S = 1_000_000_000


def holds(text: str, **values: float) -> bool | None:
    return evaluate(parse_condition(text).node, values).truth


def trigger(when: str, cool_down: str = "0s", for_: str = "0s") -> Trigger:
    spec = TriggerSpec(when=when, do="snapshot", for_=for_, cool_down=cool_down)
    return triggers_of(Experiment(observation=Observation(), triggers=(spec,))).all[0]


def ramp(
    *counts: float, step_ns: int = S // 10, name: str = "sessions"
) -> list[tuple[int, dict[str, float]]]:
    return [(n * step_ns, {name: count}) for n, count in enumerate(counts)]


def moments(when: str, *counts: float, **options: str) -> list[tuple[float, str]]:
    name = options.pop("name", "sessions")
    result = firings(trigger(when, **options), ramp(*counts, name=name))
    return [(f.at_ns / S, f.matched) for f in result]


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("sessions in (10,20,30)", True),
        ("sessions not in (10, 20)", False),
        ("sessions = 10 and cpu_wait > 50%", False),
        ("sessions != 10 or cpu_wait >= 30 %", True),
        ("not (sessions > 5 or active > 100)", False),
        ("not sessions > 5 and active < 3", False),
        ("active > 100 or active < 3 and sessions = 10", True),  # and binds closer
        ("AAS > 1.5", True),
        ("db_time > 2 OR db_time<=1.5", False),
        ("lock_depth > 1", None),  # not known
        ("lock_depth > 1 and sessions = 11", False),
        ("lock_depth > 1 or sessions = 10", True),
        ("not lock_depth > 1", None),
    ],
)
def test_a_condition_of_known_and_unknown_figures(text: str, truth: bool | None) -> None:
    assert holds(text, sessions=10, active=2, cpu_wait=0.3, db_time=1.8) is truth


def test_a_condition_may_have_arguments_and_a_time_to_hold() -> None:
    result = parse_condition("wait(Lock/some thing) >= 0.5 and statement(-42) > 1 for 300 ms")
    assert [f.key for f in result.figures()] == ["wait(Lock/some thing)", "statement(-42)"]
    assert result.for_ns == 300_000_000
    assert holds("response > 20ms", response=0.021) is True


@pytest.mark.parametrize(
    ("text", "column", "cure"),
    [
        ("sesions > 3", "column 1", "did you mean 'sessions'?"),
        ("sessions", "at its end", ">"),
        ("sessions > ten", "column 12", "sessions in (10,20,30)"),
        ("sessions > 3 active > 4", "column 14", "and"),
        ("sessions in (1,2", "at its end", ")"),
        ("(sessions > 3", "at its end", ""),
        ("wait > 3", "column 1", "CLASS"),
        ("statement(abc) > 3", "column 1", "--statements"),
        ("cpu_wait > 30", "column 12", "30%"),
        ("sessions > 5%", "column 12", "a number"),
        ("response > 5", "column 12", "20ms"),
        ("sessions ~ 3", "column 10", ""),
        ("db_time > 2 for ever", "column 17", "3s"),
        ("", "at its end", "sessions"),
    ],
)
def test_a_mistake_is_named_with_its_column_and_cure(text: str, column: str, cure: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_condition(text)
    assert column in error.value.message
    assert cure in f"{error.value.message} {error.value.cure}"


def test_a_ramp_fires_once_at_each_value() -> None:
    counts = [n for n in range(1, 41) for _ in range(3)]
    assert [m for _, m in moments("sessions in (10,20,30)", *counts)] == [
        "sessions = 10",
        "sessions = 20",
        "sessions = 30",
    ]
    assert [t for t, _ in moments("sessions in (10,20,30)", *counts)] == pytest.approx([2.7, 5.7, 8.7])


def test_a_step_from_one_value_to_the_next_is_a_second_firing() -> None:
    assert moments("sessions in (10,20,30)", 10, 10, 20, 20, 30) == [
        (0.0, "sessions = 10"),
        (0.2, "sessions = 20"),
        (0.4, "sessions = 30"),
    ]


def test_flicker_around_a_value_fires_once_and_again_after_a_way_back() -> None:
    assert len(moments("sessions = 10", 9, 10, 9, 10, 11, 10, 9, 10)) == 1
    assert len(moments("sessions = 10", 9, 10, 8, 9, 10)) == 2


def test_a_value_that_was_passed_between_two_samples_is_met_near_it_and_only_on_the_way_up() -> None:
    assert moments("sessions in (10,20,30)", 8, 11, 15, 19, 22) == [
        (0.1, "sessions = 10"),
        (0.4, "sessions = 20"),
    ]
    assert moments("sessions in (10,20,30)", 0, 40, 12, 9) == []


def test_a_threshold_has_a_margin() -> None:
    assert len(moments("db_time > 10", 11, 9.5, 11, 9.2, 12, name="db_time")) == 1
    assert len(moments("db_time > 10", 11, 8.9, 11, name="db_time")) == 2
    assert len(moments("db_time < 10", 9, 10.5, 9, 11.1, 9, name="db_time")) == 2
    assert len(moments("not db_time <= 10", 11, 9.5, 11, name="db_time")) == 1


def test_a_condition_must_hold_for_as_long_as_it_asks() -> None:
    assert moments("sessions > 5 for 300ms", 6, 6, 1, 6, 6, 6, 6, 6) == [(0.6, "sessions > 5 for 300ms")]
    assert moments("sessions > 5", 6, 6, 6, for_="200ms") == [(0.2, "sessions > 5")]


def test_nothing_fires_again_within_the_cool_down() -> None:
    again = (6, 1, 6, 1, 6, 1, 6, 1)
    assert [t for t, _ in moments("sessions > 5", *again, cool_down="400ms")] == [0.0, 0.4]
    assert len(moments("sessions in (10,20)", 10, 20, 10, 20, cool_down="10s")) == 2  # each value by itself


def test_an_unknown_figure_neither_fires_nor_arms() -> None:
    samples = [(0, {"db_time": 11.0}), (S, {}), (2 * S, {"db_time": 11.0})]
    assert len(firings(trigger("db_time > 10"), samples)) == 1


def test_a_spent_budget_refuses_further_actions() -> None:
    planned = triggers_of(Experiment(observation=Observation(), trigger_actions=1, trigger_budget="1kB"))
    left = Budget.of(planned)
    assert not left.refusal(planned)
    assert "1 action" in left.begun().refusal(planned)
    assert "KiB" in left.stored(1024).refusal(planned)


def test_actions_are_read_and_wrong_ones_refused() -> None:
    assert parse_action("syscalls 5s").text == "trace 5s"
    assert parse_action("exec 3s ./x.sh 1").command == "./x.sh 1"
    assert parse_action("exec 3s ./x.sh 1").ns == 3 * S
    for text in (
        "profil 3s",
        "profile",
        "profile 100ms",
        "profile ever",
        "snapshot 3s",
        "exec",
        "exec 3s",
        "",
    ):
        with pytest.raises(UsageError, match="--do"):
            parse_action(text)


@pytest.mark.parametrize("when", ["p95 > 20ms", "response > 20ms"])
def test_figures_of_calls_are_refused_where_there_are_none(when: str) -> None:
    spec = TriggerSpec(when=when, do="snapshot")
    with pytest.raises(UsageError, match="makes none"):
        triggers_of(Experiment(observation=Observation(), triggers=(spec,)))
    assert triggers_of(Experiment(triggers=(spec,))).all


def test_the_95th_percentile_comes_from_the_threads_histograms() -> None:
    before, after = counted([(10, 50), (20, 5)]), counted([(10, 100), (20, 20), (10, 20), (40, 15)])
    assert p95_ns(after - before) == 40
    assert p95_ns(before) == 20 and p95_ns(before - before) is None


def test_without_samples_there_are_no_triggers() -> None:
    spec = TriggerSpec(when="sessions > 1", do="snapshot")
    with pytest.raises(UsageError, match="samples"):
        triggers_of(Experiment(observe=False, triggers=(spec,)))


# -- figures of samples --


def sample_tables(
    count: int, *met: tuple[int, str | None, str | None, int | None]
) -> dict[str, pl.DataFrame]:
    """``count`` samples 100 ms apart that each met these sessions: number, class, event, query id."""
    times = [(n, n * S // 10) for n in range(count)]
    samples = [
        {
            "sample": n,
            "sql_before_ns": at,
            "sql_after_ns": at,
            "pid": 100 + session,
            "role": "session",
            "session": session,
            "via": "sql",
            "state": "idle" if event == "Read" else "active",
            "wait_class": wait_class,
            "wait_event": event,
            "query_id": query,
            "status": "ok",
        }
        for n, at in times
        for session, wait_class, event, query in met
    ]
    asked = [
        {"sample": n, "due_ns": at, "start_ns": at, "end_ns": at, "status": "ok", "via": "sql"}
        for n, at in times
    ]
    return {"samples": rows("samples", samples), "sampler": rows("sampler", asked), "tasks": empty("tasks")}


FAMILIES = WaitFamilies({"Client": Family.CLIENT, "Latch": Family.LATCH})
WANTED = [
    Wanted(name, argument, f"{name}({argument})" if argument else name)
    for name, argument in (
        *(("sessions", ""), ("active", ""), ("db_time", ""), ("wait", "latch"), ("wait", "Latch/Log")),
        *(("wait", "Latch/Other"), ("statement", "7"), ("cpu_wait", "")),
    )
]


def test_figures_are_counted_from_samples() -> None:
    met = ((0, "Client", "Read", 7), (1, "Latch", "Log", 7), (2, None, None, 7), (3, "Latch", "Page", 8))
    result = live_values(sample_tables(12, *met), WANTED, FAMILIES, since_ns=0)
    assert len(result) == 11
    assert result[-1][1] == {
        "sessions": 4,
        "active": 3,
        "db_time": 3.0,
        "wait(latch)": 2.0,
        "wait(Latch/Log)": 1.0,
        "wait(Latch/Other)": 0.0,
        "statement(7)": 2,
        "cpu_wait": None,
    }
    assert result[0][1]["db_time"] is None  # less than a second was sampled
    assert result[0][1]["sessions"] == 4


def test_what_hidden_sessions_do_is_unknown_and_not_nothing() -> None:
    """A role that may not see others meets no wait, so that the lock table is not asked either."""
    seen = sample_tables(12, (1, None, None, 7), (2, None, None, None))
    hidden = pl.when(pl.col("session") == 2).then(pl.lit("hidden")).otherwise("state").alias("state")
    seen |= {"samples": seen["samples"].with_columns(hidden), "blocked": empty("blocked")}
    result = live_values(seen, [*WANTED, Wanted("lock_depth", "", "lock_depth")], FAMILIES, since_ns=0)
    assert {k for k, v in result[-1][1].items() if v is not None} == {"sessions"}
    assert result[-1][1]["sessions"] == 2


def test_the_longest_chain_of_lock_waits() -> None:
    """Process 103 waits for 102, both 102 and 101 for 100."""
    seen = sample_tables(2, (1, "Lock", "row", None), (2, "Lock", "row", None), (3, "Lock", "row", None))
    waits = [
        {
            "sample": 1,
            "before_ns": S // 10,
            "after_ns": S // 10,
            "pid": waiter,
            "wait_class": "Lock",
            "blocker": blocker,
            "status": "ok",
        }
        for waiter, blocker in ((101, 100), (102, 100), (103, 102))
    ]
    depth = [Wanted("lock_depth", "", "lock_depth")]
    result = live_values(seen | {"blocked": rows("blocked", waits)}, depth, FAMILIES, since_ns=0)
    assert result[-1][1] == {"lock_depth": 2}
    result = live_values(seen | {"blocked": empty("blocked")}, depth, FAMILIES, since_ns=0)
    assert result[-1][1] == {"lock_depth": 0}


def test_without_sessions_figures_are_zero() -> None:
    result = live_values(sample_tables(12), WANTED, FAMILIES, since_ns=0)
    assert result[-1][1]["sessions"] == 0
    assert result[-1][1]["db_time"] == 0
    assert result[-1][1]["cpu_wait"] == 0
