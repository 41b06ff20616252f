"""Compares the ledger with the truth for loads whose truth is known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue.criteria import (
    TRUTH,
    TRUTH_BRIEF,
    TRUTH_UNACCOUNTED,
    is_vague,
    truth_verdict,
)
from dbdyno.model.engine.truth import Disturbance, Needs, Truth, TruthCase
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import BY_LABEL
from dbdyno.model.results.session_time import ON_CPU
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from dbdyno.stats.estimates import unseen

Tables = Mapping[str, pl.DataFrame]


class Known(NamedTuple):
    """An account, its true value in seconds per second, and the origin of the truth: a case of the
    catalogue's sentence, with its values."""

    account: str
    aas: float | None
    why: str
    values: Mapping[str, Any] = {}
    needs: Needs = "idle"


class Brief(NamedTuple):
    """Known figures of short sessions that connect and end during the window."""

    cpus: float  # CPU seconds per second that they used
    per_s: float  # sessions per second
    end_ns: float  # CPU time that a session's end takes, included in ``cpus``


class CpuUse(NamedTuple):
    """Use of the CPUs that the server may run on, in CPUs."""

    others: float  # all processes but the server's live ones, with dbdyno's own and those that have ended
    own: float  # the part of ``others`` that dbdyno used
    steal: float  # withheld by the hypervisor
    queued: float  # run-queue time of the server's live processes, in seconds per second
    late: float = 0.0  # share of the window by which the reads were late, plus the time that they took


class Facts(NamedTuple):
    """Facts about a measured case besides its tables."""

    sessions: int
    cpus: float  # CPUs that the server may use
    used: CpuUse | None  # None if unknown
    quota: float | None = None  # CPU quota in CPUs, None without one
    counted_ns: float | None = None  # the server's own timing of labels["commit"] per call
    brief: Brief | None = None
    groups: Sequence[str] = ()  # control groups of the server's processes alone
    capped: bool = False  # the server may use less CPU time than ``cpus`` CPUs have


def truths(case: TruthCase, facts: Facts, tables: Tables, tier: str) -> list[Truth]:
    """Returns truth against ledger for each known account of a case, and for the remainder."""
    book = _Book(tables)
    allowed = TRUTH_BRIEF if case.kind == "brief" else TRUTH
    wall = float(facts.sessions) if facts.brief is None else facts.brief.cpus or 1.0
    disturbance = _disturbance(facts, book)
    judgements = []
    for known in _known(case, facts, book):
        aas, low, high = book.account(known.account)
        truth = Truth(
            case=case.name,
            tier=tier,
            account=known.account,
            truth=known.aas,
            why=sentence("selftest-truth", known.values, case=known.why),
            ledger=aas,
            low=low,
            high=high,
            wall=wall,
            allowed=TRUTH_UNACCOUNTED if known.account == "unaccounted" else allowed,
            disturbance=disturbance,
        )
        judgements.append(judged(truth, known.needs))
    return judgements


def _disturbance(facts: Facts, book: _Book) -> Disturbance | None:
    used = facts.used
    if used is None:
        return None
    return Disturbance(
        cpus=facts.cpus,
        others=max(0.0, used.others - used.own),
        steal=max(0.0, used.steal),
        waited=None if facts.brief else used.queued / facts.sessions,
        driver=book.used("^driver$", "runq_ns"),
        late=used.late,
    )


def judged(truth: Truth, needs: Needs) -> Truth:
    """Returns ``truth`` with its verdict and, if that is inconclusive, the reason."""
    verdict, others, reason = truth_verdict(truth, needs), truth.disturbance, ""
    if verdict == "inconclusive":
        values = {} if others is None else {"others": others.others, "steal": others.steal / others.cpus}
        case = "vague" if is_vague(truth) else "busy" if values else "unseen"
        reason = sentence("selftest-account", values, case=case)
    return truth.model_copy(update={"verdict": verdict, "reason": reason})


def accounts_of(case: TruthCase) -> list[str]:
    """Returns the names of the accounts that are checked for a case, before it is measured."""
    return [k.account for k in _known(case, Facts(1, 1.0, None), _Book({}))]


def headline(results: Sequence[Truth], planned: int) -> Claim:
    """Returns the summary claim over all accounts. ``planned`` is the number of cases that were to be
    measured."""
    by = {v: [t for t in results if t.verdict == v] for v in ("ok", "off", "inconclusive", "unknown")}
    disturbed = [t for t in by["inconclusive"] if not is_vague(t)]
    disturbances = [t.disturbance for t in disturbed if t.disturbance is not None]
    counts = {verdict: len(those) for verdict, those in by.items()}
    done = len({t.case for t in results})
    values = counts | {
        "all": len(results) - counts["unknown"],
        "cases": len({t.case for t in by["ok"]}),
        "done": done,
        "planned": planned,
        "names": ", ".join(dict.fromkeys(f"{t.case}: {t.account}" for t in by["off"])),
        "others": max((d.others for d in disturbances), default=0.0),
        "steal": max((d.steal / d.cpus for d in disturbances), default=0.0),
    }
    case = next((v for v in ("off", "inconclusive", "ok") if by[v]), "none")
    if case == "inconclusive" and not disturbances:
        case = "unseen" if disturbed else "vague"
    parts = {
        "besides": case == "off" and counts["inconclusive"] > 0,
        "unknown": counts["unknown"] > 0,
        "cut": done < planned,
    }
    return claim(
        "selftest",
        values,
        case=case,
        parts=[name for name, holds in parts.items() if holds],
        severity="warning" if case == "off" else "good" if case == "ok" else "note",
    )


_ROOTS = "roots "
"""Prefix of accounts about the roots of lock waits."""
_WAITS = "waits "
"""Prefix of accounts that are numbers of waits per call, summed over all sessions."""


class _Book:
    """Accounts and rates of one cell, summed over its rung."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        ledger = self._table("ledger")
        self._rung = ledger.filter(
            (pl.col("scope") == "rung") | ((pl.col("scope") == "memo") & (pl.col("who") == "rung"))
        )

    def account(self, name: str) -> tuple[float | None, float | None, float | None]:
        """Returns (aas, low, high) of an account: ``run``, ``runnable`` (run + runq), ``sleep``, ``sleep
        Class/Event``, ... All are None if the account is unknown."""
        if name == "run + runq":
            return self._sum(self._rows("run"), self._rows("runq"))
        if name.startswith("label "):
            event = name.removeprefix("label ")
            parts = [self._rows(a, event) for a in ("sleep", "runq", "label.run")]
            return self._sum(*(p for p in parts if p.height))
        if name.startswith(_ROOTS):
            return self._roots(name.removeprefix(_ROOTS))
        if name.startswith(_WAITS):
            return self._waits(name.removeprefix(_WAITS))
        account, _, event = name.partition(" ")
        return self._sum(self._rows(account, event or None))

    def _roots(self, doing: str) -> tuple[float | None, float | None, float | None]:
        """Returns (aas, low, high) of waiters whose root is runnable or asleep (``doing``), in seconds per
        second."""
        rows = self._table("wait_chains").filter(pl.col("by") == "doing")
        if rows.is_empty():
            return None, None, None
        wall_s = float(self._table("windows")["wall_s"][0])
        sampled = rows.filter(pl.col("samples") > 0)
        if sampled.is_empty():
            return None, None, None
        by_state = sampled.filter(pl.col("name").is_in(ON_CPU) == (doing == "runnable"))
        aas, low, high = (float(by_state[c].sum()) for c in ("seconds", "low", "high"))
        whole, sampled_s = float(rows["seconds"].sum()), float(sampled["seconds"].sum())
        # Waits without a sample could have either kind of root: all of them widen the upper end.
        high = max(high, unseen(int(sampled["samples"].max() or 0)) * sampled_s) + whole - sampled_s  # type: ignore[arg-type]
        return aas / wall_s, low / wall_s, min(high, whole) / wall_s

    def counts_waits(self) -> bool:
        """Returns whether the trace counted the waits; true also before anything was measured."""
        events = self._table("events")
        return events.is_empty() or events["waits_per_s"].null_count() < events.height

    def _waits(self, event: str) -> tuple[float | None, float | None, float | None]:
        """Returns (value, low, high) of waits per call in one wait event, times sessions. The error allows
        for the one call per session that each end of the window cuts."""
        rate, window = self.calls_per_s(), self._table("windows")
        label = pl.concat_str("wait_class", pl.lit("/"), "wait_event")
        rows = self._table("events").filter((pl.col("scope") == "rung") & (label == event))
        counted = rows["waits_per_s"].drop_nulls()
        if not rate or window.is_empty() or counted.is_empty():
            return None, None, None
        sessions, wall_s = float(window["sessions"][0]), float(window["wall_s"][0])
        value = float(counted.sum()) / rate * sessions
        error = sessions**2 / (rate * wall_s)
        return value, max(0.0, value - error), value + error

    def calls_per_s(self) -> float | None:
        rates = self._table("rates").filter((pl.col("scope") == "rung") & (pl.col("name") == "calls_per_s"))
        return None if rates.is_empty() else rates["value"][0]

    def asleep(self, case: TruthCase) -> float | None:
        """Returns the mean number of sessions in the sleep that each call makes on purpose; None without a
        call rate."""
        rate = self.calls_per_s()
        return None if rate is None else rate * case.sleep_ns / NS_PER_S

    def group(self, groups: Sequence[str], key: str) -> tuple[float, float] | None:
        """Returns the growth of a counter of the server's own control groups and the time in ns over which it
        grew. None if it was not read."""
        levels = self._table("cut_levels").filter((pl.col("origin") == "cgroup") & (pl.col("key") == key))
        rows = levels.filter(pl.col("place").is_in(list(groups))).drop_nulls("delta")
        return None if rows.is_empty() else (float(rows["delta"][0]), float(rows["wall_ns"][0]))

    def used(self, roles: str, figure: str = "run_ns") -> float:
        """Returns seconds per second of tasks whose role matches the expression."""
        tasks = self._table("cut_tasks").filter(pl.col("role").str.contains(roles)).drop_nulls(figure)
        return float((tasks[figure] / tasks["over_ns"]).sum())

    def thinking(self) -> float | None:
        """Returns the mean number of sessions between two calls by the driver's clock: per session, the mean
        pause over the mean duration of pause plus call. None if no session made two calls."""
        s = self._table("cell_sessions").filter(pl.col("calls") > 1)
        if s.is_empty():
            return None
        span = pl.col("last_end_ns") - pl.col("first_start_ns")
        pause = (span - pl.col("in_call_ns")) / (pl.col("calls") - 1)
        turn = pause + pl.col("in_call_ns") / pl.col("calls")
        return float(s.select((pause / turn).sum()).item())

    def _none_seen(self) -> tuple[float | None, float | None]:
        """Returns the interval of an account without a row: (0, upper end), or (None, None) where the trace
        records every change, so that no row means zero. With samples only, no sample does not prove zero."""
        samples, windows = self._table("cut_sampler"), self._table("windows")
        if samples.is_empty() or windows.is_empty() or self._table("cut_traced").height:
            return None, None
        return 0.0, unseen(samples.height) * float(windows["sessions"][0])

    def _table(self, name: str) -> pl.DataFrame:
        return self._tables.get(name, empty(name))

    def _rows(self, account: str, event: str | None = None) -> pl.DataFrame:
        rows = self._rung.filter(pl.col("account") == account)
        return rows.filter(~BY_LABEL) if event is None else rows.filter(pl.col("detail") == event)

    def _sum(self, *parts: pl.DataFrame) -> tuple[float | None, float | None, float | None]:
        rows = pl.concat([p.select("aas", "low", "high") for p in parts]) if parts else pl.DataFrame()
        if rows.is_empty():
            return 0.0, *self._none_seen()
        if rows["aas"].drop_nulls().is_empty():
            return None, None, None
        low, high = (None if rows[end].null_count() else float(rows[end].sum()) for end in ("low", "high"))
        return float(rows["aas"].sum()), low, high


def _known(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    yield from _KINDS[case.kind](case, facts, book)
    if case.kind != "brief":  # no driver times these sessions, so there is no call time to account for
        yield Known("unaccounted", 0.0, "nothing", needs="nothing")


def _brief(_case: TruthCase, facts: Facts, _book: _Book) -> Iterator[Known]:
    known = facts.brief
    if known is None:
        yield Known("run", None, "unseen")
    else:
        yield Known("run", known.cpus, "brief", {"per_s": known.per_s, "end": round(known.end_ns)})


def _asleep(case: TruthCase, facts: Facts, _book: _Book) -> Iterator[Known]:
    yield Known(f"sleep {case.labels['sleep']}", float(facts.sessions), "asleep")
    yield Known("run + runq", 0.0, "asleep")


def _loop(facts: Facts) -> Iterator[Known]:
    yield Known("run + runq", float(facts.sessions), "loop", needs="driver")
    yield Known("sleep", 0.0, "loop", needs="nothing")


def _spin(_case: TruthCase, facts: Facts, _book: _Book) -> Iterator[Known]:
    yield from _loop(facts)
    if facts.used is None or facts.capped:
        why = "unseen" if facts.used is None else "capped"
        yield from (Known(account, None, why) for account in ("run", "runq"))
        return
    values = {"cpus": facts.cpus, "others": facts.used.others, "steal": facts.used.steal}
    run = max(0.0, min(float(facts.sessions), facts.cpus - facts.used.others - facts.used.steal))
    yield Known("run", run, "free", values, "nothing")
    values = {"run": run, "sessions": facts.sessions}
    yield Known("runq", facts.sessions - run, "queue", values, "driver")


def _quota(_case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    """Yields the truth under a CPU quota from the group's own usage. The quota itself is no truth: the kernel
    hands it out in slices that may be overrun (CFS bandwidth control), and other processes may leave less."""
    yield from _loop(facts)
    used = book.group(facts.groups, "usage_ns")
    if used is None:
        yield from (Known(account, None, "uncounted") for account in ("run", "runq"))
        return
    counts = [book.group(facts.groups, key) for key in ("nr_periods", "nr_throttled")]
    periods, throttled = (None if count is None else int(count[0]) for count in counts)
    values = {"quota": facts.quota, "periods": periods, "throttled": throttled}
    run = used[0] / used[1] - book.used("^(other|helper)")
    yield Known("run", run, "usage", values, "nothing")
    yield Known("runq", facts.sessions - run, "usage", values, "driver")


def _convoy(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    held = book.asleep(case)
    why = "uncalled" if held is None else ""
    yield Known(f"sleep {case.labels['sleep']}", held, why or "holder")
    waiting = None if held is None else facts.sessions - 1.0
    yield Known(f"sleep {case.labels['lock']}", waiting, why or "waiters")


def _blocking(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    """Yields the roots of lock waits: at any time one session holds the lock; it first sleeps, then it is
    runnable."""
    held = book.asleep(case)
    waiters = facts.sessions - 1.0
    why = "uncalled" if held is None else "roots"
    yield Known(f"{_ROOTS}asleep", None if held is None else waiters * held, why)
    yield Known(f"{_ROOTS}runnable", None if held is None else waiters * (1 - held), why)


def _think(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    asleep = book.asleep(case)
    yield Known("client", book.thinking(), "clock")
    yield Known(f"sleep {case.labels['sleep']}", asleep, "uncalled" if asleep is None else "calls")
    if book.counts_waits():
        yield Known(f"{_WAITS}{case.labels['sleep']}", float(facts.sessions), "one", needs="nothing")


def _mixture(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    asleep, thinking = book.asleep(case), book.thinking()
    yield from _think(case, facts, book)
    rest = None if asleep is None or thinking is None else facts.sessions - asleep - thinking
    yield Known("run + runq", rest, "uncalled" if rest is None else "rest")


def _commit(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    rate, each_ns = book.calls_per_s(), facts.counted_ns
    total = None if rate is None or each_ns is None else rate * each_ns / NS_PER_S
    yield Known(f"label {case.labels['commit']}", total, "untimed" if total is None else "flush")


_KINDS: dict[str, Callable[[TruthCase, Facts, _Book], Iterator[Known]]] = {
    "asleep": _asleep,
    "spin": _spin,
    "quota": _quota,
    "convoy": _convoy,
    "think": _think,
    "mixture": _mixture,
    "commit": _commit,
    "brief": _brief,
    "blocking": _blocking,
}


def think_ns(case: TruthCase) -> int:
    return parse_duration_ns(case.think)
