"""The self-test's verdicts ok, off and inconclusive, the use of CPUs by others, and the headline."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner

from dbdyno import conduct
from dbdyno.cli.app import app
from dbdyno.conclude.catalogue.criteria import LATE_READS, truth_verdict
from dbdyno.conclude.ground_truth import CpuUse, Facts, accounts_of, headline, judged, truths
from dbdyno.conduct.selftest import Planned, other_processes
from dbdyno.engines.postgres.truth import cases
from dbdyno.kernel import turns
from dbdyno.kernel.turns import Turn
from dbdyno.model.engine.truth import Disturbance, Needs, Truth, TruthCase
from dbdyno.model.errors import MachineBusy
from dbdyno.model.schema.tables import rows

CASES = {c.name: c for c in cases()}
IDLE, S = CpuUse(others=0.05, own=0.04, steal=0.0, queued=0.1), 1_000_000_000
STAT = """cpu  100 0 50 1000 10 5 5 20 0 0
cpu0 60 0 20 500 5 5 0 15 0 0
cpu1 40 0 30 500 5 0 5 5 0 0
intr 1
"""


def others(taken: float, waited: float | None = None, driver: float = 0.0) -> Disturbance:
    return Disturbance(cpus=2.0, others=taken * 2, steal=0.0, waited=waited, driver=driver)


def truth_of(off: float, **more: object) -> Truth:
    """Returns the truth of two sessions that should have slept all the time."""
    known = {"case": "asleep", "tier": "sampled", "account": "sleep", "truth": 2.0, "why": "", "wall": 2.0}
    return Truth.model_validate({**known, "ledger": 2.0 + 2 * off, "allowed": 0.02, **more})


@pytest.mark.parametrize(
    ("truth", "needs", "verdict"),
    [
        (truth_of(0.019), "idle", "ok"),
        (truth_of(-0.019), "nothing", "ok"),
        (truth_of(0.03, disturbance=others(0.0)), "idle", "off"),
        (truth_of(0.03, disturbance=others(0.029)), "idle", "off"),
        (truth_of(-0.03, disturbance=others(0.031)), "idle", "inconclusive"),
        (truth_of(0.3, disturbance=others(0.9)), "idle", "inconclusive"),
        (truth_of(0.3, disturbance=others(0.9, waited=0.29 - LATE_READS)), "idle", "off"),
        (truth_of(0.3, disturbance=others(0.9, waited=0.31 - LATE_READS)), "idle", "inconclusive"),
        (truth_of(0.3, disturbance=others(0.9, driver=0.31 - LATE_READS)), "driver", "inconclusive"),
        (truth_of(0.3, disturbance=others(0.9, waited=0.9)), "driver", "off"),
        (truth_of(LATE_READS - 0.001, disturbance=others(0.9)), "nothing", "inconclusive"),
        (truth_of(LATE_READS + 0.001, disturbance=others(0.9, waited=0.9, driver=0.9)), "nothing", "off"),
        (truth_of(0.03), "idle", "inconclusive"),
        (truth_of(0.03), "nothing", "off"),
        (truth_of(0.03, low=2.02, high=2.10, disturbance=others(0.0)), "idle", "ok"),
        (truth_of(0.19, low=0.9, high=3.9, disturbance=others(0.0)), "idle", "inconclusive"),
        (truth_of(0.019, low=0.9, high=3.9, disturbance=others(0.0)), "idle", "ok"),
        (truth_of(0.03, low=2.04, high=2.20, disturbance=others(0.0)), "idle", "off"),
        (truth_of(0.03, low=1.9, high=2.2, account="unaccounted", disturbance=others(0.0)), "nothing", "off"),
        (truth_of(0.0, truth=None), "idle", "unknown"),
        (truth_of(0.0, ledger=None), "idle", "unknown"),
    ],
)
def test_an_account_that_others_can_explain_is_inconclusive(truth: Truth, needs: Needs, verdict: str) -> None:
    assert truth_verdict(truth, needs) == verdict


@pytest.mark.parametrize(("late", "verdict"), [(0.0, "off"), (0.05, "off"), (0.1, "inconclusive")])
def test_late_reads_of_others_cpu_time_explain_as_much_of_an_error(late: float, verdict: str) -> None:
    busy = others(0.9)
    assert busy is not None
    truth = truth_of(0.08, disturbance=busy.model_copy(update={"late": late}))
    assert truth_verdict(truth, "nothing") == verdict


def test_a_meter_knows_how_late_it_read() -> None:
    """The first end was due two seconds ago; the meter measures for a second and is then stopped."""
    with subprocess.Popen(["sleep", "60"]) as server:
        now_ns = time.monotonic_ns()
        meter = other_processes.Meter(server.pid, now_ns - 2 * S, now_ns + 60 * S)
        time.sleep(1)
        used = meter.used()
        took = (time.monotonic_ns() - now_ns) / S
        server.kill()
    assert used is not None
    assert 2 / took <= used.late


def ledger_of(**accounts: float) -> dict[str, pl.DataFrame]:
    """Returns a ledger of the rung with these accounts, named ``account`` or ``account|detail``."""
    entries = [(*(*name.split("|"), None)[:2], aas) for name, aas in accounts.items()]
    entry_rows = [
        {"cell": "c", "scope": "rung", "who": "rung", "account": a, "detail": d, "aas": aas, "status": "ok"}
        for a, d, aas in entries
    ]
    table = pl.concat([rows("ledger", []), pl.DataFrame(entry_rows)], how="diagonal_relaxed")
    return {"ledger": table}


SPIN = {"run": 1.95, "runq": 2.05, "unaccounted": 0.0}


def verdicts(case: TruthCase, facts: Facts, tables: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    return {t.account: t.verdict for t in truths(case, facts, tables, "sampled")}


def test_a_ledger_that_is_right_is_ok() -> None:
    facts = Facts(4, 2.0, IDLE)
    assert set(verdicts(CASES["spin-2x"], facts, ledger_of(**SPIN)).values()) == {"ok"}
    assert list(verdicts(CASES["spin-2x"], facts, ledger_of(**SPIN))) == accounts_of(CASES["spin-2x"])


@pytest.mark.parametrize(
    ("wrong", "wrong_accounts"),
    [
        ({"run": 1.7}, {"run + runq", "run"}),  # a part of a session's CPU time is lost
        ({"run": 1.5, "runq": 1.5, "unaccounted": 1.0}, {"run + runq", "run", "runq", "unaccounted"}),
        ({"runq": 1.5, "sleep|Timeout/PgSleep": 0.55}, {"run + runq", "runq", "sleep"}),
        ({"run": 2.2, "runq": 1.8, "unaccounted": 0.05}, {"run", "runq", "unaccounted"}),
    ],
)
@pytest.mark.parametrize("taken", [0.0, 0.9])
def test_a_ledger_that_is_wrong_is_off(
    wrong: Mapping[str, float], wrong_accounts: set[str], taken: float
) -> None:
    """A wrong ledger is off on an idle machine, and if others took nearly all: CPU loops do not depend on
    them."""
    used = IDLE._replace(others=0.05 + taken)
    right = {"run": 1.95 - taken, "runq": 2.05 + taken, "unaccounted": 0.0}
    shifted = {name: wrong[name] - SPIN.get(name, 0.0) for name in wrong}
    ledger = right | {name: right.get(name, 0.0) + by for name, by in shifted.items()}
    by_account = verdicts(CASES["spin-2x"], Facts(4, 2.0, used), ledger_of(**ledger))
    off = {name for name, verdict in by_account.items() if verdict == "off"}
    assert off == wrong_accounts if not taken else off
    assert {name for name, verdict in by_account.items() if verdict != "ok"} == wrong_accounts


def test_a_ledger_that_says_nothing_is_unknown_or_off() -> None:
    by_account = verdicts(CASES["asleep"], Facts(4, 2.0, IDLE), {})
    assert by_account == {"sleep Timeout/PgSleep": "off", "run + runq": "ok", "unaccounted": "ok"}


def group_levels(usage: float) -> pl.DataFrame:
    figures = {"usage_ns": usage * 3 * S, "nr_periods": 30, "nr_throttled": 29}
    common = {"cell": "c", "origin": "cgroup", "scope": "server", "place": "/g", "status": "ok"}
    levels = [{**common, "key": k, "delta": float(v), "wall_ns": 3 * S} for k, v in figures.items()]
    return pl.concat([rows("cut_levels", []), pl.DataFrame(levels)], how="diagonal_relaxed")


def test_the_truth_of_a_quota_is_what_the_group_used() -> None:
    helper = {"cell": "c", "role": "helper:wal writer", "run_ns": S * 3 // 100, "over_ns": 3 * S}
    tasks = pl.concat([rows("cut_tasks", []), pl.DataFrame([helper])], how="diagonal_relaxed")
    tables = {**ledger_of(run=1.045, runq=0.955), "cut_levels": group_levels(1.055), "cut_tasks": tasks}
    facts = Facts(2, 2.0, IDLE, quota=1.0, groups=("/g",))
    by_account = {t.account: t for t in truths(CASES["quota"], facts, tables, "sampled")}
    assert by_account["run"].truth == pytest.approx(1.045)
    assert by_account["runq"].truth == pytest.approx(0.955)
    assert {t.verdict for t in by_account.values()} == {"ok"}
    assert "used up in 29 of 30 periods" in by_account["run"].why
    elsewhere = verdicts(CASES["quota"], facts._replace(groups=("/other",)), tables)
    assert elsewhere["run"] == elsewhere["runq"] == "unknown"


@pytest.mark.parametrize(("samples", "verdict"), [(3, "inconclusive"), (200, "off")])
def test_a_root_that_no_sample_met_is_not_proved_to_be_none(samples: int, verdict: str) -> None:
    """3 waiters for 3 s, whose root each sample met runnable, though it is asleep for 0.6 of the time. 3
    samples may miss that, 200 may not."""
    chain = {
        "cell": "c",
        "by": "doing",
        "name": "DB CPU",
        "seconds": 9.0,
        "low": 5.0,
        "high": 9.0,
        "samples": samples,
    }
    chains = pl.concat([rows("wait_chains", []), pl.DataFrame([chain])], how="diagonal_relaxed")
    rate = {
        "cell": "c",
        "scope": "rung",
        "name": "calls_per_s",
        "value": 0.6 * S / CASES["blocking"].sleep_ns,
    }
    rates = pl.concat([rows("rates", []), pl.DataFrame([rate])], how="diagonal_relaxed")
    windows = pl.DataFrame({"cell": ["c"], "wall_s": [3.0], "sessions": [4]})
    tables = {**ledger_of(), "wait_chains": chains, "rates": rates, "windows": windows}
    by_account = {t.account: t for t in truths(CASES["blocking"], Facts(4, 2.0, IDLE), tables, "sampled")}
    asleep = by_account["roots asleep"]
    assert (asleep.ledger, asleep.truth) == (0.0, pytest.approx(1.8))
    assert asleep.high == pytest.approx(3 * (1 - 0.05 ** (1 / samples)))
    assert asleep.verdict == verdict


def test_cpu_shares_are_unknown_under_other_limits() -> None:
    for facts in (Facts(4, 2.0, None), Facts(4, 2.0, IDLE, capped=True)):
        by_account = verdicts(CASES["spin-2x"], facts, ledger_of(**SPIN))
        assert (by_account["run"], by_account["runq"], by_account["run + runq"]) == (
            "unknown",
            "unknown",
            "ok",
        )


def test_cpu_times_are_of_the_cpus_that_the_server_may_use() -> None:
    tick = 10_000_000
    assert other_processes.cpu_times(STAT, {0, 1}) == (160 * tick, 20 * tick)
    assert other_processes.cpu_times(STAT, {1, 7}) == (75 * tick, 5 * tick)
    with pytest.raises(OSError, match="no line"):
        other_processes.cpu_times(STAT, {4})
    old = "cpu0 60 0 20 500\n"  # a kernel without the later columns
    assert other_processes.cpu_times(old, {0}) == (80 * tick, 0)


def test_cpu_time_of_others_is_the_rest_of_the_machines_time() -> None:
    first = other_processes.Reading(0, 0, 0, 0, 0, 0)
    last = other_processes.Reading(2 * S, 3 * S, S // 2, 2 * S, S // 10, S // 5)
    used = other_processes.between(first, last)
    assert used == CpuUse(others=0.5, own=0.05, steal=0.25, queued=0.1)
    assert other_processes.between(first, last._replace(at_ns=S // 4)) is None


def test_processes_that_come_and_go_between_two_readings_count() -> None:
    with subprocess.Popen(["sleep", "60"]) as server:
        meter = other_processes.Meter(server.pid, time.monotonic_ns(), time.monotonic_ns() + 60 * S)
        begin = time.monotonic()
        spent = 0
        while spent < S // 2 or time.monotonic() - begin < 1:
            burn = "import time; a = time.process_time_ns()\nwhile time.process_time_ns() - a < 10**8: pass"
            subprocess.run([sys.executable, "-c", burn], check=True)
            spent += 10**8
        took = time.monotonic() - begin
        used = meter.used()
        server.kill()
    assert used is not None
    assert used.others - used.own > 0.5 * spent / S / took
    assert other_processes.Meter(None, 0, 0).used() is None


def truth_with(verdict: str, **more: object) -> Truth:
    return truth_of(0.0, verdict=verdict, **more)


@pytest.mark.parametrize(
    ("verdicts", "case", "severity"),
    [
        (["ok", "ok"], "ok", "good"),
        (["ok", "unknown"], "ok", "good"),
        (["ok", "inconclusive"], "inconclusive", "note"),
        (["ok", "inconclusive", "off"], "off", "warning"),
        ([], "none", "note"),
        (["unknown"], "none", "note"),
    ],
)
def test_the_headline_is_that_of_the_worst_verdict(verdicts: list[str], case: str, severity: str) -> None:
    claim = headline([truth_with(v, disturbance=others(0.4)) for v in verdicts], 1)
    assert (claim.case, claim.severity) == (case, severity)
    assert claim.slots["off"] == verdicts.count("off") and claim.slots["unknown"] == verdicts.count("unknown")


def test_the_headline_names_cases_that_were_not_measured() -> None:
    assert headline([truth_with("inconclusive")], 1).case == "unseen"
    vague = truth_of(0.19, low=0.9, high=3.9, verdict="inconclusive", disturbance=others(0.0))
    assert headline([vague], 1).case == "vague" and "too wide" in judged(vague, "idle").reason
    stopped = headline([truth_with("ok")], 3)
    assert (stopped.slots["done"], stopped.slots["planned"]) == (1, 3)
    assert "1 of 3" in stopped.text


@pytest.mark.parametrize(
    ("verdict", "options", "code"),
    [("inconclusive", [], 0), ("inconclusive", ["--strict"], 6), ("off", [], 6), ("ok", ["--strict"], 0)],
)
def test_the_exit_code_is_that_of_the_worst_account(
    monkeypatch: pytest.MonkeyPatch, verdict: str, options: list[str], code: int
) -> None:
    """Verdicts are given, as no machine is busy and no ledger wrong on demand."""

    def measured(*arguments: object) -> None:
        listener = arguments[-1]
        planned = Planned(CASES["asleep"], 4, accounts_of(CASES["asleep"]), S)
        listener.planned([planned])  # type: ignore[attr-defined]
        listener.measured(planned, [truth_with(verdict, disturbance=others(0.4))])  # type: ignore[attr-defined]

    monkeypatch.setattr(conduct, "selftest", measured)
    done = CliRunner().invoke(app, ["selftest", "--json", *options])
    assert done.exit_code == code, done.output
    assert [t["verdict"] for t in json.loads(done.stdout)] == [verdict]


def test_quiet_prints_the_verdict_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*arguments: object) -> None:
        listener = arguments[-1]
        planned = Planned(CASES["asleep"], 4, accounts_of(CASES["asleep"]), S)
        listener.planned([planned])  # type: ignore[attr-defined]
        listener.tick(0, "measuring", 0.5, 3.0)  # type: ignore[attr-defined]
        listener.measured(planned, [truth_with("ok")])  # type: ignore[attr-defined]

    monkeypatch.setattr(conduct, "selftest", measured)
    loud, quiet = (CliRunner().invoke(app, ["selftest", *words]).stdout for words in ([], ["-q"]))
    assert quiet and loud.endswith(quiet) and "asleep" in loud and "asleep" not in quiet


class Begun(NamedTuple):
    """Other runs of this machine, as a self-test saw them while it measured."""

    tickets: list[list[str]]
    quiet: list[float]


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    """A self-test that ends as soon as it begins, in a directory of tickets of its own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    seen = Begun([], [])
    (tmp_path / "dbdyno-runs").mkdir(mode=0o700)

    def selftest(*_: object) -> None:
        other = Turn("other", tmp_path / "dbdyno-runs")
        seen.tickets.append([t.what for t in other.measuring()])
        other.close()

    monkeypatch.setattr(conduct, "selftest", selftest)
    monkeypatch.setattr(conduct.Waiting, "quiet", lambda _, quiet: seen.quiet.append(quiet.share))
    return seen


def test_a_selftest_is_seen_by_other_runs_and_warns_of_them(begun: Begun, tmp_path: Path) -> None:
    alone = CliRunner().invoke(app, ["selftest"])
    assert (begun.tickets, begun.quiet) == ([["selftest"]], [])
    assert "another run" not in alone.output
    with turns.turn("lio"):
        beside = CliRunner().invoke(app, ["selftest"])
    assert "another run" in beside.output and "lio (process" in beside.output
    assert list((tmp_path / "dbdyno-runs").iterdir()) == []


def test_a_selftest_waits_for_other_runs_and_a_quiet_machine(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    with turns.turn("lio") as other:
        monkeypatch.setattr(conduct.Waiting, "rest", lambda _: other.close())
        waited = CliRunner().invoke(app, ["selftest", "--wait", "--wait-quiet", "7%"])
    assert "waiting for lio" in waited.output
    assert (begun.tickets, begun.quiet) == ([["selftest"]], [0.07])


def test_a_selftest_on_a_busy_machine_measures_nothing(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MachineBusy("after 1s", "later")

    monkeypatch.setattr(conduct.Waiting, "quiet", refuse)
    shown = CliRunner().invoke(app, ["selftest", "--wait-quiet", "7%"])
    assert isinstance(shown.exception, MachineBusy)
    assert begun.tickets == []
