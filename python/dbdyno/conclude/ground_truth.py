"""What the ledger must say of a load whose truth is known, and what it says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.conclude.catalogue import claim, sentence
from dbdyno.conclude.catalogue.criteria import TRUTH, TRUTH_BRIEF, TRUTH_UNACCOUNTED, truth_verdict
from dbdyno.model.engine.truth import Disturbance, Needs, Truth, TruthCase
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.ledger_rows import BY_LABEL
from dbdyno.model.results.session_time import ON_CPU
from dbdyno.model.schema.tables import empty
from dbdyno.model.units import NS_PER_S, parse_duration_ns
from dbdyno.stats.estimates import unseen

Tables = Mapping[str, pl.DataFrame]


class Known(NamedTuple):
    """An account, its truth in seconds per second, and where that comes from: a case of the catalogue's
    sentence, with its values."""

    account: str
    aas: float | None
    why: str
    said: Mapping[str, Any] = {}
    needs: Needs = "idle"


class Brief(NamedTuple):
    """What is known of sessions that came and went."""

    cpus: float  # that they used
    per_s: float  # how many a second
    end_ns: float  # CPU time of the end of one, in ``cpus``


class CpuUse(NamedTuple):
    """What used the CPUs that the server may use, in CPUs."""

    others: float  # all but the server's processes: dbdyno's own, too, and those that have ended
    own: float  # dbdyno's, of these
    steal: float  # withheld by the hypervisor
    queued: float  # seconds per second that the server's processes waited for a CPU; not of those that ended
    late: float = 0.0  # share of the window by which its reads were late, or took


class Facts(NamedTuple):
    """What is known of a measured case besides its tables."""

    sessions: int
    cpus: float  # that the server may use
    used: CpuUse | None  # None: not known
    quota: float | None = None  # CPUs, where one was set
    counted_ns: float | None = None  # the server's own timing of labels["commit"] per call
    brief: Brief | None = None
    groups: Sequence[str] = ()  # control groups of the server's processes alone
    capped: bool = False  # the server may use less CPU time than ``cpus`` CPUs have


def truths(case: TruthCase, facts: Facts, tables: Tables, tier: str) -> list[Truth]:
    """Truth against ledger for one case, with its remainder."""
    book = _Book(tables)
    allowed = TRUTH_BRIEF if case.kind == "brief" else TRUTH
    wall = float(facts.sessions) if facts.brief is None else facts.brief.cpus or 1.0
    disturbance = _disturbance(facts, book)
    made = []
    for known in _known(case, facts, book):
        aas, low, high = book.account(known.account)
        truth = Truth(
            case=case.name,
            tier=tier,
            account=known.account,
            truth=known.aas,
            why=sentence("selftest-truth", known.said, case=known.why),
            ledger=aas,
            low=low,
            high=high,
            wall=wall,
            allowed=TRUTH_UNACCOUNTED if known.account == "unaccounted" else allowed,
            disturbance=disturbance,
        )
        made.append(judged(truth, known.needs))
    return made


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
    """``truth`` with its verdict, and the reason of one that is inconclusive."""
    verdict, found, reason = truth_verdict(truth, needs), truth.disturbance, ""
    if verdict == "inconclusive":
        said = {} if found is None else {"others": found.others, "steal": found.steal / found.cpus}
        reason = sentence("selftest-account", said, case="busy" if said else "unseen")
    return truth.model_copy(update={"verdict": verdict, "reason": reason})


def accounts_of(case: TruthCase) -> list[str]:
    """What is checked of a case, before it is measured."""
    return [k.account for k in _known(case, Facts(1, 1.0, None), _Book({}))]


def headline(found: Sequence[Truth], planned: int) -> Claim:
    """What all accounts say. ``planned``: cases that were to be measured."""
    by = {v: [t for t in found if t.verdict == v] for v in ("ok", "off", "inconclusive", "unknown")}
    seen = [t.disturbance for t in by["inconclusive"] if t.disturbance is not None]
    counts = {verdict: len(those) for verdict, those in by.items()}
    done = len({t.case for t in found})
    said = counts | {
        "all": len(found) - counts["unknown"],
        "cases": len({t.case for t in by["ok"]}),
        "done": done,
        "planned": planned,
        "names": ", ".join(dict.fromkeys(f"{t.case}: {t.account}" for t in by["off"])),
        "others": max((d.others for d in seen), default=0.0),
        "steal": max((d.steal / d.cpus for d in seen), default=0.0),
    }
    case = next((v for v in ("off", "inconclusive", "ok") if by[v]), "none")
    case = "unseen" if case == "inconclusive" and not seen else case
    parts = {
        "besides": case == "off" and counts["inconclusive"] > 0,
        "unknown": counts["unknown"] > 0,
        "cut": done < planned,
    }
    return claim(
        "selftest",
        said,
        case=case,
        parts=[name for name, there in parts.items() if there],
        severity="warning" if case == "off" else "good" if case == "ok" else "note",
    )


_ROOTS = "roots "
"""How an account begins that is of the roots of lock waits."""
_WAITS = "waits "
"""How one begins that is a number of waits: those of a call, of all sessions in sum."""


class _Book:
    """The rung's accounts and rates of one cell."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        ledger = self._table("ledger")
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
        if name.startswith(_ROOTS):
            return self._roots(name.removeprefix(_ROOTS))
        if name.startswith(_WAITS):
            return self._waits(name.removeprefix(_WAITS))
        account, _, event = name.partition(" ")
        return self._sum(self._rows(account, event or None))

    def _roots(self, doing: str) -> tuple[float | None, float | None, float | None]:
        """Waiters whose root is runnable, or asleep; in seconds per second."""
        rows = self._table("wait_chains").filter(pl.col("by") == "doing")
        if rows.is_empty():
            return None, None, None
        wall_s = float(self._table("windows")["wall_s"][0])
        met = rows.filter(pl.col("samples") > 0)
        if met.is_empty():
            return None, None, None
        mine = met.filter(pl.col("name").is_in(ON_CPU) == (doing == "runnable"))
        aas, low, high = (float(mine[c].sum()) for c in ("seconds", "low", "high"))
        whole, seen = float(rows["seconds"].sum()), float(met["seconds"].sum())
        high = max(high, unseen(int(met["samples"].max() or 0)) * seen) + whole - seen  # type: ignore[arg-type]
        return aas / wall_s, low / wall_s, min(high, whole) / wall_s

    def counts_waits(self) -> bool:
        """Whether the trace counted the waits, or nothing was measured yet."""
        events = self._table("events")
        return events.is_empty() or events["waits_per_s"].null_count() < events.height

    def _waits(self, event: str) -> tuple[float | None, float | None, float | None]:
        """Waits a call in one wait event, times sessions; the window's ends cut one call of each."""
        rate, window = self.calls_per_s(), self._table("windows")
        label = pl.concat_str("wait_class", pl.lit("/"), "wait_event")
        mine = self._table("events").filter((pl.col("scope") == "rung") & (label == event))
        counted = mine["waits_per_s"].drop_nulls()
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
        """Sessions asleep in the calls' own sleep."""
        rate = self.calls_per_s()
        return None if rate is None else rate * case.sleep_ns / NS_PER_S

    def group(self, groups: Sequence[str], key: str) -> tuple[float, float] | None:
        """Growth of a counter of the server's own control groups, and the time in ns in which it grew."""
        levels = self._table("cut_levels").filter((pl.col("origin") == "cgroup") & (pl.col("key") == key))
        mine = levels.filter(pl.col("place").is_in(list(groups))).drop_nulls("delta")
        return None if mine.is_empty() else (float(mine["delta"][0]), float(mine["wall_ns"][0]))

    def used(self, roles: str, figure: str = "run_ns") -> float:
        """Seconds per second of tasks whose role matches."""
        mine = self._table("cut_tasks").filter(pl.col("role").str.contains(roles)).drop_nulls(figure)
        return float((mine[figure] / mine["over_ns"]).sum())

    def thinking(self) -> float | None:
        """Sessions between two calls, by the driver's clock: calls a second times the mean pause."""
        s = self._table("cell_sessions").filter(pl.col("calls") > 1)
        if s.is_empty():
            return None
        span = pl.col("last_end_ns") - pl.col("first_start_ns")
        pause = (span - pl.col("in_call_ns")) / (pl.col("calls") - 1)
        turn = pause + pl.col("in_call_ns") / pl.col("calls")
        return float(s.select((pause / turn).sum()).item())

    def _none_seen(self) -> tuple[float | None, float | None]:
        """Ends of an account without a row: none where the trace sees all; no sample is no proof."""
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
    if case.kind != "brief":  # nobody drives them, so there is no time in calls
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
    said = {"cpus": facts.cpus, "others": facts.used.others, "steal": facts.used.steal}
    run = max(0.0, min(float(facts.sessions), facts.cpus - facts.used.others - facts.used.steal))
    yield Known("run", run, "free", said, "nothing")
    said = {"run": run, "sessions": facts.sessions}
    yield Known("runq", facts.sessions - run, "queue", said, "driver")


def _quota(_case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    """A quota is handed out in slices that may be overrun, and others may leave less: what counts is what the
    group used."""
    yield from _loop(facts)
    used = book.group(facts.groups, "usage_ns")
    if used is None:
        yield from (Known(account, None, "uncounted") for account in ("run", "runq"))
        return
    counts = [book.group(facts.groups, key) for key in ("nr_periods", "nr_throttled")]
    periods, throttled = (None if count is None else int(count[0]) for count in counts)
    said = {"quota": facts.quota, "periods": periods, "throttled": throttled}
    run = used[0] / used[1] - book.used("^(other|helper)")
    yield Known("run", run, "usage", said, "nothing")
    yield Known("runq", facts.sessions - run, "usage", said, "driver")


def _convoy(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    held = book.asleep(case)
    why = "uncalled" if held is None else ""
    yield Known(f"sleep {case.labels['sleep']}", held, why or "holder")
    waiting = None if held is None else facts.sessions - 1.0
    yield Known(f"sleep {case.labels['lock']}", waiting, why or "waiters")


def _blocking(case: TruthCase, facts: Facts, book: _Book) -> Iterator[Known]:
    """One session has the lock at any time: it sleeps, then it is runnable."""
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
