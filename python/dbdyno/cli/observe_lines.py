"""An observation where there is no terminal, or none is wanted: one line a window, notices as they come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

import polars as pl
from rich.console import Console

from dbdyno.conduct import Blind
from dbdyno.model.environment import Environment
from dbdyno.model.plan import Plan
from dbdyno.model.results import Results

_HEAD = (
    f"{'ended':8} {'window':>6} {'sess':>5} {'DB time':>8} {'DB CPU':>8} {'CPU WAIT':>8} {'asleep':>8} "
    f"{'client':>8}  top wait (in the run queue)"
)
_EVERY = 40


class LinesLooker(Blind):
    """See :class:`dbdyno.conduct.Looker`. Notices go to ``notices``, so that lines can be piped."""

    def __init__(self, console: Console, notices: Console, whom: str) -> None:
        self._console, self._notices, self._whom = console, notices, whom
        self._lines = 0

    def __enter__(self) -> LinesLooker:
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _v: BaseException | None, _tb: TracebackType | None
    ) -> None: ...

    def heard(self, count: int) -> None:
        """A signal came in."""
        if count == 1:
            self.notice("ending: the window under way is saved; Ctrl-C again ends at once")

    def planned(self, plan: Plan, run_id: str) -> None:
        self._print(f"run {run_id}")
        for choice in plan.choices:
            self._print(f"{choice.name} = {choice.value}: {choice.reason}")
        if self._whom:
            self._print(f"only {self._whom}")

    def opened(self, environment: Environment) -> None:
        server = environment.server
        self._print(f"{server.engine} {server.version} at {server.where}")
        if not server.here:
            self.notice(f"server not here, only its own words are known: {server.here_detail}")

    def notice(self, text: str) -> None:
        self._notices.print(text, style="yellow", markup=False, soft_wrap=True)

    def saved(self, results: Callable[[], Results]) -> None:
        if self._console.quiet:
            return
        if self._lines % _EVERY == 0:
            self._print(_HEAD)
        self._lines += 1
        self._print(line(results()))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


def line(results: Results) -> str:
    """One window: seconds per second of all its sessions; ``?``: unknown."""
    window = results.tables["windows"].row(0, named=True)
    ledger = results.tables["ledger"]
    rung = ledger.filter(pl.col("scope") == "rung")
    sessions = ledger.filter(pl.col("scope") == "session")["session"].n_unique()
    run, runq, sleep, client = (_sum(rung, a) for a in ("run", "runq", "sleep", "client"))
    known = [v for v in (run, runq, sleep) if v is not None]
    db_time = sum(known) if run is not None else None
    since = timedelta(microseconds=(window["t1_ns"] - results.info.started_monotonic_ns) / 1000)
    figures = " ".join(_number(v) for v in (db_time, run, runq, sleep, client))
    short = "" if window["status"] == "ok" else f"  {window['status']}: {window['reason']}"
    ended = (results.info.started + since).astimezone()
    return (
        f"{ended:%H:%M:%S} {window['repeat']:>6} {sessions:>5} {figures}  {_top(results)}{short}"
    ).rstrip()


def _sum(rung: pl.DataFrame, account: str) -> float | None:
    values = rung.filter(pl.col("account") == account)["aas"].drop_nulls()
    return float(values.sum()) if len(values) else None


def _number(value: float | None) -> str:
    return f"{'?' if value is None else f'{value:.3f}':>8}"


def _top(results: Results) -> str:
    """The wait that took most, the client's left out; its part in the run queue in brackets."""
    events = results.tables["events"].filter((pl.col("scope") == "rung") & pl.col("wait_event").is_not_null())
    events = events.filter(pl.col("wait_class") != "Client")
    summed = events.group_by("wait_class", "wait_event").agg(pl.col("sleep", "runq").sum())
    top = summed.sort("sleep", descending=True).head(1).to_dicts()
    return "".join(
        f"{e['wait_class']}/{e['wait_event']} {e['sleep']:.3f} ({e['runq']:.3f})"
        for e in top
        if e["sleep"] > 0
    )
