"""Session time by script and statement, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from tests.unit import report_results

from dbdyno.account.script_ledger import script_ledger, script_ledger_total
from dbdyno.conclude.run.case import Case
from dbdyno.conclude.run.scripts import most_time
from dbdyno.model.results.results import Results
from dbdyno.model.schema.data_sources.scripted import NO_ID, NO_LEDGER
from dbdyno.model.schema.tables import Tables, empty, rows
from dbdyno.present.document.document import Paragraph, Table
from dbdyno.present.figures import selection
from dbdyno.present.run.script_time import session_time

HEAD = {"workload": "w", "variant": "base", "sessions": 2}
S = 1_000_000_000
COMMANDS = (
    # script, command, text, the client's seconds
    (0, 0, "\\set n 1", None),
    (0, 1, "begin", 1),
    (0, 2, "update t set v = :n", 4),
    (0, 3, "commit", 6),
    (1, 0, "select v from t where k = :n", 3),
    (1, 1, "UPDATE t SET v = 1", 2),
)
TEXTS = {7: "update t set v = $1", 8: "select v from t where k = $1", 9: "vacuum t", 10: "commit"}
SERVER = (
    # query id, account, wait, seconds
    (7, "run", None, 1.5),
    (7, "runq", None, 1.5),
    (7, "sleep", "Lock/x", 1.5),
    (8, "run", None, 2.0),
    (8, "client", None, 0.7),
    (9, "run", None, 0.25),
    (None, "run", None, 1.0),
    (None, "sleep", "IO/w", 5.0),
)


def _keys(cell: str, repeat: int) -> dict[str, Any]:
    return HEAD | {"cell": cell, "repeat": repeat}


def _cell(cell: str, repeat: int, rate: float | None, server: tuple[Any, ...]) -> Tables:
    """Two sessions, 10 s: 18 s in calls of two scripts, 2 s between calls."""
    head = _keys(cell, repeat)
    window = {"t0_ns": 0, "t1_ns": 10 * S, "wall_s": 10.0, "status": "ok", "reason": None, "rate_per_s": rate}
    wall = {
        "scope": "memo",
        "session": None,
        "who": "rung",
        "account": "wall",
        "parent": None,
        "detail": None,
    }
    script = dict.fromkeys(("weight", "calls"), 1) | dict.fromkeys(("errors", "retried", "retries"), 0)
    session = {"first_start_ns": 0, "last_end_ns": 10 * S, "in_call_ns": 9 * S, "end_reason": "deadline"}
    session |= {"straddle_in": 0, "calls": 1, "errors": 0}
    command = {"executions": 5, "failures": 0, "retries": 0, "max_ns": None}
    return {
        "windows": rows("windows", [head | window]),
        "ledger": rows(
            "ledger", [head | wall | {"aas": 2.0, "low": 2.0, "high": 2.0, "status": "ok", "source": "d"}]
        ),
        "script_rates": rows(
            "script_rates",
            [
                head | script | {"script": n, "name": "ab"[n], "in_call_ns": t * S}
                for n, t in ((0, 12), (1, 6))
            ],
        ),
        "command_rates": rows(
            "command_rates",
            [
                head
                | command
                | {"script": s, "name": "ab"[s], "command": c, "line": c + 1, "text": text}
                | {"total_ns": None if t is None else t * S}
                for s, c, text, t in COMMANDS
            ],
        ),
        "statement_ledger": rows(
            "statement_ledger",
            [
                head
                | {"query_id": i, "query_status": "ok", "worker": False, "account": a, "detail": d}
                | {"seconds": t, "low": t, "high": t, "source": "samples"}
                for i, a, d, t in server
            ],
        ),
        "cell_sessions": pl.DataFrame([{"cell": cell, "session": n} | session for n in (0, 1)]),
    }


def _tables(rate: float | None = None, server: tuple[Any, ...] = SERVER, cells: int = 1) -> Tables:
    parts = [_cell(f"c{n}", n, rate, server) for n in range(1, cells + 1)]
    tables = {name: pl.concat([p[name] for p in parts]) for name in parts[0]}
    tables["statement_texts"] = rows(
        "statement_texts", [{"query_id": i, "text": t, "length": len(t)} for i, t in TEXTS.items()]
    )
    return {**tables, "script_ledger": script_ledger(tables)}


def _seconds(ledger: pl.DataFrame, **where: Any) -> dict[str, float]:
    kept = ledger.filter(*(pl.col(k).eq_missing(pl.lit(v)) for k, v in where.items()))
    return dict(kept.select("account", "seconds").iter_rows())


def test_all_rows_add_up_to_session_time() -> None:
    ledger = _tables()["script_ledger"]
    whole = ledger.filter(account="all")
    assert whole["seconds"].sum() == pytest.approx(20.0) and whole["share"].sum() == pytest.approx(1.0)
    assert _seconds(ledger, part="between statements", script=0) == {"all": pytest.approx(1.0)}
    assert _seconds(ledger, part="between statements", script=1) == {"all": pytest.approx(1.0)}
    assert _seconds(ledger, part="between calls") == {"all": pytest.approx(2.0)}


def test_each_statement_is_its_accounts_and_the_clients_time() -> None:
    for (_, _), rows_ in _tables()["script_ledger"].filter(part="statement").group_by("script", "command"):
        spent = dict(rows_.select("account", "seconds").iter_rows())
        assert spent.pop("all") == pytest.approx(sum(spent.values()))


def test_an_id_of_two_scripts_is_divided_by_the_clients_time() -> None:
    ledger = _tables()["script_ledger"]
    first, second = (_seconds(ledger, script=s, command=c) for s, c in ((0, 2), (1, 1)))
    assert first == pytest.approx({"all": 4.0, "run": 1.0, "runq": 1.0, "sleep": 1.0, "client": 1.0})
    assert second == pytest.approx({"all": 2.0, "run": 0.5, "runq": 0.5, "sleep": 0.5, "client": 0.5})
    assert _seconds(ledger, script=1, command=0) == pytest.approx({"all": 3.0, "run": 2.0, "client": 1.0})


def test_time_without_an_id_is_of_begin_and_commit_within_wide_bounds() -> None:
    ledger = _tables()["script_ledger"]
    commit = ledger.filter(script=0, command=3)
    assert _seconds(commit) == pytest.approx({"all": 6.0, "run": 6 / 7, "sleep": 30 / 7, "client": 6 / 7})
    sleep = commit.row(by_predicate=pl.col("account") == "sleep", named=True)
    assert (sleep["low"], sleep["high"]) == (0.0, pytest.approx(5.0)) and NO_ID in sleep["source"]


def test_statements_of_no_script_have_a_line_of_their_own() -> None:
    assert _seconds(_tables()["script_ledger"], part="other statements") == {"run": pytest.approx(0.25)}


def test_more_time_without_an_id_than_the_client_waited_stays_with_other_statements() -> None:
    ledger = _tables(server=(*SERVER, (None, "sleep", "Client/other", 4.0)))["script_ledger"]
    commit, other = _seconds(ledger, script=0, command=3), ledger.filter(part="other statements")
    assert commit["client"] == pytest.approx(0.0)
    assert other["seconds"].sum() == pytest.approx(0.25 + 10.0 - 7.0)


def test_without_times_by_statement_only_the_clients_are_known() -> None:
    ledger = _tables(server=())["script_ledger"]
    assert set(ledger.filter(part="statement")["account"]) == {"all", "client"}
    left = ledger.filter(part="statement", account="client")
    assert left["seconds"].null_count() == left.height and set(left["status"]) == {NO_LEDGER}
    assert ledger.filter(account="all")["seconds"].sum() == pytest.approx(20.0)


def test_paced_calls_begin_before_their_session_does() -> None:
    ledger = _tables(rate=100.0)["script_ledger"]
    assert ledger.filter(part="between statements").is_empty()
    assert _seconds(ledger, part="between calls") == {"all": pytest.approx(4.0)}
    assert ledger.filter(account="all")["seconds"].sum() == pytest.approx(20.0)


def test_cells_of_a_load_are_summed_up() -> None:
    tables = _tables(cells=2)
    total = script_ledger_total(tables)
    assert set(total["cell"]) == {"all"} and total.filter(account="all")["seconds"].sum() == pytest.approx(
        40.0
    )
    assert _seconds(total, script=1, command=0) == pytest.approx({"all": 6.0, "run": 4.0, "client": 2.0})
    assert total.filter(account="all")["share"].sum() == pytest.approx(1.0)


def test_calls_without_a_script_have_no_ledger() -> None:
    tables = _tables()
    assert script_ledger({**tables, "script_rates": empty("script_rates")}).is_empty()


def _results(tables: Tables) -> Results:
    results: Results = report_results.results()
    pick = selection.pick_of(results, None)
    assert pick is not None
    keys = dict(zip(("workload", "variant", "sessions"), pick.rung, strict=True)) | {"cell": pick.cell}
    shown = tables["script_ledger"].with_columns(pl.lit(v).alias(k) for k, v in keys.items())
    return replace(results, tables={**results.tables, "script_ledger": shown})


def _shown(tables: Tables) -> tuple[list[Table], str]:
    results = _results(tables)
    pick = selection.pick_of(results, None)
    assert pick is not None
    blocks = session_time(results, pick)
    words = " ".join(b.text for b in blocks if isinstance(b, Paragraph))
    return [b for b in blocks if isinstance(b, Table)], words


def test_scripts_and_statements_are_shown_with_their_time() -> None:
    (scripts, statements), words = _shown(_tables())
    rows_ = {r.cells[0].text: [c.text for c in r.cells[1:]] for r in scripts.rows}
    assert rows_["a"][:2] == ["12.0 s", "60.0"] and rows_["(between calls)"][:2] == ["2.00 s", "10.0"]
    assert rows_["(statements of no script)"][:2] == ["250 ms", "-"]
    assert statements.rows[0].cells[0].text == "a:4 commit" and statements.rows[0].cells[1].text == "6.00 s"
    assert "begin, commit: the server gives no query id" in words and "divided by the client's time" in words


def test_server_time_without_an_id_is_shown_of_its_statements_together() -> None:
    """Nobody knows whether begin or commit slept: both together took 7 s, 1 s on a CPU and 5 s asleep."""
    (_, statements), _ = _shown(_tables())
    rows_ = {r.cells[0].text: [c.text for c in r.cells[1:]] for r in statements.rows}
    for line in ("a:2 begin", "a:4 commit"):
        assert rows_[line][4:] == ["?"] * 5, line
    together = rows_["(without query id, together)"]
    assert (
        together[0] == "7.00 s" and together[4] == "1.00 s" and together[6:] == ["5.00 s", "1.00 s", "IO/w"]
    )
    assert rows_["a:3 update t set v = :n"][6] == "1.00 s"


def test_unknown_times_have_a_reason() -> None:
    (_, statements), words = _shown(_tables(server=()))
    assert {r.cells[5].text for r in statements.rows} == {"-"}
    assert f"Server time is unknown: {NO_LEDGER}." in words


def test_the_script_of_most_time_is_a_claim() -> None:
    case = cast(Case, SimpleNamespace(tables=_tables(), plan=SimpleNamespace(variants=())))
    (claim,) = most_time(case)
    assert claim.text == "a takes 60 % of session time at 2 sessions. Line 4 takes 50 % of its time: commit."


def test_the_claim_names_the_largest_wait_where_it_is_known() -> None:
    slow = tuple(s if s[0] is not None else (None, "sleep", "IO/w", 7.0) for s in SERVER[:-1])
    case = cast(Case, SimpleNamespace(tables=_tables(server=slow), plan=SimpleNamespace(variants=())))
    assert " Most of that is asleep in IO/w (58 %)." in next(most_time(case)).text
    unknown = cast(Case, SimpleNamespace(tables=_tables(server=()), plan=SimpleNamespace(variants=())))
    assert "Most of that" not in next(most_time(unknown)).text
