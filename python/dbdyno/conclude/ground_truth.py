"""What the ledger must report for a load whose truth is known, and what it reports. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import sentence
from dbdyno.model.ledger_rows import BY_LABEL
from dbdyno.model.truth import Truth, TruthCase
from dbdyno.model.units import NS_PER_S, parse_duration_ns

ALLOWED = 0.02
"""An account may differ from its truth by this share of the sessions' time."""
UNACCOUNTED = 0.01
BRIEF = 0.15
"""CPU time of brief sessions may differ from its truth by this share: their ends are a mean, and some
are on their way when the window begins and ends."""

Tables = Mapping[str, pl.DataFrame]


class Known(NamedTuple):
    """An account, its truth in seconds per second, and where that comes from."""

    account: str
    aas: float | None
    source: str
    """The case of the catalogue's entry ``truth``."""


class Brief(NamedTuple):
    """What is known of sessions that came and went."""

    cpus: float  # that they used
    per_s: float  # how many a second
    end_ns: float  # CPU time of the end of one, in ``cpus``


class Facts(NamedTuple):
    """What is known of a measured case besides its tables."""

    sessions: int
    cpus: float  # that the server may use
    others: float | None  # CPUs that all other processes of the host used
    quota: float | None  # CPUs, where one was set
    counted_ns: float | None  # the server's own timing of labels["commit"] per call
    brief: Brief | None = None


def truths(case: TruthCase, facts: Facts, tables: Tables, tier: str) -> list[Truth]:
    """Truth against ledger for one case, with its remainder."""
    book = _Book(tables)
    if case.kind == "brief":
        return [_brief(case, facts, book, tier)]
    known = (*_KINDS[case.kind](case, facts, book), Known("unaccounted", 0.0, "nothing-left"))
    return [_truth(case, k, facts, book, tier) for k in known]


def _truth(case: TruthCase, known: Known, facts: Facts, book: _Book, tier: str) -> Truth:
    aas, low, high = book.account(known.account)
    return Truth(
        case=case.name,
        tier=tier,
        account=known.account,
        truth=known.aas,
        why=sentence("truth", {"cpus": facts.cpus, "others": facts.others}, case=known.source),
        ledger=aas,
        low=low,
        high=high,
        wall=facts.sessions,
        allowed=UNACCOUNTED if known.account == "unaccounted" else ALLOWED,
    )


class _Book:
    """The rung's accounts and rates of one cell."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        ledger = tables["ledger"]
        self._rung = ledger.filter(
            (pl.col("scope") == "rung") | ((pl.col("scope") == "memo") & (pl.col("who") == "rung"))
        )

    def account(self, name: str) -> tuple[float | None, float | None, float | None]:
        """(aas, low, high) of ``run``, ``runnable`` (run + runq), ``sleep``, ``sleep Class/Event``, ..."""
        if name == "run + runq":
            return self._sum(self._rows("run"), self._rows("runq"))
        if name.startswith("label "):
            event = name.removeprefix("label ")
            parts = [self._rows(a, event) for a in ("sleep", "runq", "label.run")]
            return self._sum(*(p for p in parts if p.height))
        account, _, event = name.partition(" ")
        return self._sum(self._rows(account, event or None))

    def calls_per_s(self) -> float | None:
        rates = self._tables["rates"].filter((pl.col("scope") == "rung") & (pl.col("name") == "calls_per_s"))
        return None if rates.is_empty() else rates["value"][0]

    def thinking(self) -> float | None:
        """Sessions between two calls, by the driver's clock: calls a second times the mean pause."""
        s = self._tables["cell_sessions"].filter(pl.col("calls") > 1)
        if s.is_empty():
            return None
        span = pl.col("last_end_ns") - pl.col("first_start_ns")
        pause = (span - pl.col("in_call_ns")) / (pl.col("calls") - 1)
        turn = pause + pl.col("in_call_ns") / pl.col("calls")
        return float(s.select((pause / turn).sum()).item())

    def _rows(self, account: str, event: str | None = None) -> pl.DataFrame:
        rows = self._rung.filter(pl.col("account") == account)
        return rows.filter(~BY_LABEL) if event is None else rows.filter(pl.col("detail") == event)

    def _sum(self, *parts: pl.DataFrame) -> tuple[float | None, float | None, float | None]:
        rows = pl.concat([p.select("aas", "low", "high") for p in parts]) if parts else pl.DataFrame()
        if rows.is_empty():
            return 0.0, None, None
        if rows["aas"].drop_nulls().is_empty():
            return None, None, None
        return tuple(float(rows[c].sum()) for c in ("aas", "low", "high"))  # type: ignore[return-value]


def _brief(case: TruthCase, facts: Facts, book: _Book, tier: str) -> Truth:
    """Nobody drives them, so there is no time in calls: the CPU time alone is known."""
    aas, low, high = book.account("run")
    known = facts.brief
    assert known is not None
    return Truth(
        case=case.name,
        tier=tier,
        account="run",
        truth=known.cpus,
        why=sentence("truth", {"rate": known.per_s, "end": round(known.end_ns)}, case="brief"),
        ledger=aas,
        low=low,
        high=high,
        wall=known.cpus or 1.0,
        allowed=BRIEF,
    )


def _asleep(case: TruthCase, facts: Facts, _book: _Book) -> Iterator[Known]:
    yield Known(f"sleep {case.labels['sleep']}", float(facts.sessions), "sleeps")
    yield Known("run + runq", 0.0, "sleeps")


def _spin(_case: TruthCase, facts: Facts, _book: _Book) -> Iterator[Known]:
    yield Known("run + runq", float(facts.sessions), "runnable")
    yield Known("sleep", 0.0, "never-sleeps")
    if facts.others is None:
        yield Known("run", None, "not-seen")
        return
    run = min(float(facts.sessions), facts.cpus - facts.others)
    yield Known("run", run, "free-cpus")
    yield Known("runq", facts.sessions - run, "beyond-free-cpus")


def _quota(_case: TruthCase, facts: Facts, _book: _Book) -> Iterator[Known]:
    yield Known("run + runq", float(facts.sessions), "runnable")
    yield Known("run", facts.quota, "quota")
    left = None if facts.quota is None else facts.sessions - facts.quota
    yield Known("runq", left, "beyond-quota")


def _convoy(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    held = _asleep_in_calls(case, book)
    yield Known(f"sleep {case.labels['sleep']}", held, "holder")
    waiting = None if held is None else facts.sessions - 1.0
    yield Known(f"sleep {case.labels['lock']}", waiting, "lock")


def _think(case: TruthCase, _facts: Facts, book: _Book) -> Iterator[Known]:
    yield Known("client", book.thinking(), "driver-clock")
    yield Known(f"sleep {case.labels['sleep']}", _asleep_in_calls(case, book), "sleep-of-calls")


def _mixture(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    yield from _think(case, facts, book)
    asleep, thinking = _asleep_in_calls(case, book), book.thinking()
    rest = None if asleep is None or thinking is None else facts.sessions - asleep - thinking
    yield Known("run + runq", rest, "rest")


def _asleep_in_calls(case: TruthCase, book: _Book) -> float | None:
    rate = book.calls_per_s()
    return None if rate is None else rate * case.sleep_ns / NS_PER_S


def _commit(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    rate, each_ns = book.calls_per_s(), facts.counted_ns
    total = None if rate is None or each_ns is None else rate * each_ns / NS_PER_S
    yield Known(f"label {case.labels['commit']}", total, "not-timed" if total is None else "flush")


_KINDS: dict[str, Callable[[TruthCase, Facts, _Book], Iterator[Known]]] = {
    "asleep": _asleep,
    "spin": _spin,
    "quota": _quota,
    "convoy": _convoy,
    "think": _think,
    "mixture": _mixture,
    "commit": _commit,
}


def think_ns(case: TruthCase) -> int:
    return parse_duration_ns(case.think)
