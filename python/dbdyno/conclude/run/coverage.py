"""Checks the coverage: whether all sessions were seen, including brief ones, from which sources, and with
enough samples for the claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.checking import check
from dbdyno.conclude.run.case import SESSION_LEDGER, Case, Row, at, ids, known_aas, listed, many, of_cell
from dbdyno.model.results.brief import STATUS, met
from dbdyno.model.results.claim import Claim, Estimate, Severity
from dbdyno.model.results.ledger_rows import account_rows
from dbdyno.model.results.session_time import hidden
from dbdyno.model.sources.source import HIDDEN_STATUS, TRACE
from dbdyno.model.text.interruptions import AWAY, LATE, SLOW
from dbdyno.model.units import NS_PER_S, format_ns, quantity, significant

GRAVE = 0.05
"""Share of DB CPU from which on the claim is a warning."""


@check("brief-sessions")
def brief_sessions(case: Case) -> Iterator[Claim]:
    """Yields windows of an observation with sessions that no sample, or too few samples, contained."""
    if not case.observed or case.chosen:
        return
    brief_cells = [
        (n, cell) for cell in case.usable if (n := unseen(case, cell)) or _cpu(case, cell) is not None
    ]
    if not brief_cells:
        return
    counts = [n for n, _ in brief_cells if n is not None]
    cells = [cell for _, cell in brief_cells]
    worst = max(cells, key=lambda c: _cpu(case, c) or 0.0)
    used, all_used = _cpu(case, worst), case.aas(worst["cell"], "run")
    share = used / all_used if used and all_used else 0.0
    whole = case.aas(worst["cell"], "runq", scope="brief") if _traced(case, worst) else None
    number = many(sum(counts), "session") if counts else "Some sessions"
    yield claim(
        "brief-sessions",
        {"sessions": number, "used": used, "share": share, "waited": whole, "place": at(worst, case)},
        float(sum(counts)) if counts else None,
        case="unknown" if used is None else "used" if whole is None else "traced",
        severity="warning" if share >= GRAVE else None,
        cells=ids(cells),
    )


@of_cell
def unseen(case: Case, cell: Row) -> int | None:
    """Returns the number of sessions that connected and have no row of their own; None if the server does not
    count them."""
    levels = case.levels(cell["cell"], "engine")
    rows = levels.filter((pl.col("key") == "logons") & pl.col("delta").is_not_null())
    if rows.is_empty():
        return None
    return max(0, round(rows["delta"].sum()) - met(case.table("cut_tasks", cell["cell"]), cell["t0_ns"]))


@of_cell
def _cpu(case: Case, cell: Row) -> float | None:
    return known_aas(case.accounts(cell["cell"], "brief").filter(pl.col("account") == "run"))


@of_cell
def _traced(case: Case, cell: Row) -> bool:
    rows = case.accounts(cell["cell"], "brief").filter(pl.col("account") == "runq")
    return rows.height > 0 and rows["status"][0] != STATUS


# -- sessions, gaps --

GAP_NS = NS_PER_S // 100
"""Least time between two windows that is a gap and not rounding: windows follow one another directly."""


@check("nobody-observed")
def nobody(case: Case) -> Iterator[Claim]:
    """Yields windows in which no session matched the filter, or nobody was connected."""
    if not case.observed:
        return
    usable = case.usable
    empty = [c for c in usable if not case.wall(c["cell"]) and (case.chosen or not unseen(case, c))]
    if empty:
        whom = _whom(case)
        which = "all windows" if len(empty) == len(usable) else case.many(len(empty))
        yield claim(
            "nobody-observed",
            {"filter": whom, "windows": which},
            len(empty),
            case="filtered" if whom else "all",
            severity="warning" if whom else None,
            cells=ids(empty),
        )


@check("sessions-hidden")
def hidden_sessions(case: Case) -> Iterator[Claim]:
    """Yields sessions whose states and wait events our role may not see."""
    counted = [(n, c) for c in case.usable if (n := _hidden(case, c["cell"]))]
    candidates = [({"hidden": n, "sessions": of, "status": HIDDEN_STATUS}, c) for (n, of), c in counted]
    source = case.tables["cell_sources"].filter(pl.col("name") == "sessions of other users")
    advice = str(source["detail"][0]) if source.height else None
    yield from case.worst("sessions-hidden", candidates, "hidden", advice=advice)


@of_cell
def _hidden(case: Case, cell: str) -> tuple[int, int] | None:
    """Returns (hidden, all) sessions of a window whose waits are unknown for that reason; None if there are
    none."""
    if not hidden(case.accounts(cell)):
        return None
    rows = case.table(SESSION_LEDGER, cell).filter(
        (pl.col("scope") == "session") & (pl.col("account") == "client")
    )
    return int(rows["status"].str.contains(HIDDEN_STATUS).sum()), rows["session"].n_unique()


@check("observation-gap", of="whole")
def gaps(case: Case) -> Iterator[Claim]:
    """Yields time between two windows, in which the server or dbdyno was unavailable or late."""
    cells: list[Row] = sorted(case.cells, key=lambda c: int(c["t0_ns"])) if case.observed else []
    gaps_after = [
        (b["t0_ns"] - a["t1_ns"], a) for a, b in pairwise(cells) if b["t0_ns"] - a["t1_ns"] > GAP_NS
    ]
    for who in dict.fromkeys(_who_was_late(a) for _, a in gaps_after):
        same_cause = [(ns, a) for ns, a in gaps_after if _who_was_late(a) == who]
        where = listed([f"{format_ns(ns)} after window {a['repeat']}" for ns, a in same_cause])
        yield claim(
            "observation-gap",
            {"gap": format_ns(sum(ns for ns, _ in same_cause)), "where": where},
            sum(ns for ns, _ in same_cause) / NS_PER_S,
            case=who,
            cells=ids([a for _, a in same_cause]),
        )


def _who_was_late(before: Row) -> str:
    """Returns the cause of a gap, from the reason of the window before it."""
    reason = str(before["reason"])
    starts = ((AWAY, "away"), (SLOW, "slow"), (LATE, "late"))
    return next((case for start, case in starts if reason.startswith(start)), "lost")


def _whom(case: Case) -> str:
    chosen = case.plan.experiment.observation
    assert chosen is not None
    named = (
        ("user", chosen.user),
        ("database", chosen.database),
        ("application", chosen.application),
        ("process", ", ".join(map(str, chosen.pids))),
    )
    return ", ".join(f"{name} {value}" for name, value in named if value)


# -- samples --

SAMPLES_LOST = 0.05
LATE_NS = 100_000_000
LATE_SHARE = 0.25
"""Mean lateness, as a share of the sampling interval, from which on the sampler itself waits for a CPU."""
ENOUGH = 30
"""Samples that a window needs: with fewer no share can be distinguished from its half or its double."""
WIDE = 0.5
"""Width of an interval relative to its value from which on the claim has too few samples."""
LARGE = 0.1
"""Share of the served time from which on waits are checked although no other claim mentions them."""


@check("sampler-starved")
def sampler(case: Case) -> Iterator[Claim]:
    """Yields samples that were not answered, or far too late."""
    bad = [(a, c) for c in case.cells if (a := _asked(case, c["cell"])) and a[1] + a[2] > SAMPLES_LOST * a[0]]
    if bad:
        n, lost, delayed = (sum(a[i] for a, _ in bad) for i in range(3))
        values: dict[str, Any] = {"samples": n, "lost": lost, "delayed": delayed, "limit": LATE_NS}
        values["measurements"] = case.many(len(bad))
        yield claim("sampler-starved", values, (lost + delayed) / n, cells=ids([c for _, c in bad]))


@of_cell
def _asked(case: Case, cell: str) -> tuple[int, int, int]:
    """Returns the numbers of samples, of lost samples, and of samples far too late."""
    table = case.table("cell_sampler", cell).filter(pl.col("status") != "off")
    late = (pl.col("start_ns") - pl.col("due_ns") > LATE_NS) & (pl.col("status") == "ok")
    lost, delayed = table.select(a=(pl.col("status") == "lost").sum(), b=late.sum()).row(0)
    return table.height, lost, delayed


@check("sampler-late")
def sampler_late(case: Case) -> Iterator[Claim]:
    """Yields the sampler's own run-queue delay: a late sampler sees the machine more often just after a CPU
    became free, which biases samples."""
    spans = ((late, each, cell) for cell in case.usable for late, each in _spans(case, cell["cell"]))
    candidates = [({"late": late, "share": late / each}, cell) for late, each, cell in spans if each]
    yield from case.worst("sampler-late", [f for f in candidates if f[0]["share"] > LATE_SHARE], "share")


@of_cell
def _spans(case: Case, cell: str) -> list[tuple[float, float]]:
    """Returns by sampler the mean lateness of its samples and the mean time that each represents, in ns."""
    by_sampler = case.table("cut_sampler", cell).group_by("via", maintain_order=True)
    each = (pl.col("high_ns") - pl.col("low_ns")).mean()
    return by_sampler.agg(late=pl.col("late_ns").mean(), each=each).select("late", "each").rows()


def too_few(case: Case, claims: Sequence[Claim]) -> Iterator[Claim]:
    """Yields a claim if there are fewer samples than the other claims need."""
    where = "-observed" if case.observed else ""
    counted = [(n, c) for c in case.usable if 0 < (n := _samples(case, c["cell"])) < ENOUGH]
    if case.plan.jobs:  # they say why tasks sleep, and nothing else
        counted = [(n, c) for n, c in counted if case.aas(c["cell"], "sleep") > LARGE * case.wall(c["cell"])]
    if counted:
        few = [({"samples": n, "least": -n, "enough": ENOUGH}, c) for n, c in counted]
        grave: Severity = "note" if case.plan.jobs else "warning"
        yield from case.worst("few-samples", few, "samples", by="least", case=f"few{where}", severity=grave)
    elif wide := [*_wide_claims(claims), *_wide_waits(case)]:
        text, cells = wide[0]
        more = f", and {len(wide) - 1} more" if len(wide) > 1 else ""
        value = Estimate("few-samples", float(len(wide)), "figures")
        values = {"figure": text, "more": more, "limit": WIDE}
        yield claim("few-samples", values, value, case=f"wide{where}", cells=cells)


@of_cell
def _samples(case: Case, cell: str) -> int:
    """Returns the number of samples of the data source that took most."""
    counted = case.table("cut_sampler", cell).group_by("via").len()
    return int(counted["len"].max() or 0)  # type: ignore[arg-type]


def _wide_claims(claims: Sequence[Claim]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for f in claims:
        v = f.value
        if v is None or v.low is None or v.high is None or f.severity == "good":
            continue
        if "samples" in f.evidence and v.high - v.low > WIDE * abs(v.value):
            ends = " to ".join(quantity(end, v.unit) for end in (v.low, v.high))
            yield f"the interval of {f.id} is {ends}", f.cells


def _wide_waits(case: Case) -> Iterator[tuple[str, tuple[str, ...]]]:
    for cell in case.usable:
        for detail, low, high in _wide(case, cell["cell"]):
            ends = f"{significant(low)} to {significant(high)} s/s"
            yield f"the interval of {detail} is {ends} {at(cell, case)}", (cell["cell"],)


@of_cell
def _wide(case: Case, cell: str) -> list[tuple[str, float, float]]:
    """Returns large waits whose interval is too wide. Empty if sessions are hidden, because then samples are
    not the cause."""
    rows = case.accounts(cell)
    if hidden(rows):
        return []
    large = (pl.col("account") == "sleep") & (pl.col("aas") > LARGE * case.served(cell))
    wide = pl.col("high") - pl.col("low") > WIDE * pl.col("aas")
    return rows.filter(large & wide & pl.col("detail").is_not_null()).select("detail", "low", "high").rows()


# -- data sources --

_ACCOUNTS = (("CPU", "run"), ("CPU WAIT", "runq"), ("waits", "sleep"))


@check("data-sources-used", of="whole")
def sources_used(case: Case) -> Iterator[Claim]:
    """Yields the sources of the sessions' accounts, as the ledger names them."""
    ledger = account_rows(case.tables["ledger"], *(a for _, a in _ACCOUNTS)).drop_nulls("aas")
    values = {
        what: listed(
            ledger.filter(pl.col("account") == account)["source"]
            .str.split("; ")
            .explode()
            .unique(maintain_order=True)
            .to_list()
        )
        for what, account in _ACCOUNTS
    }
    alike: dict[str, list[str]] = {}
    for what, sources in values.items():
        alike.setdefault(sources, []).append(what)
    named = "; ".join(f"{listed(whats)} by {sources}" for sources, whats in alike.items() if sources)
    if not named:
        return
    trace = case.tables["cell_sources"].filter(pl.col("name") == TRACE)["status"]
    waits = ledger.filter(pl.col("account") == "sleep")
    traced = waits["source"].str.split("; ").explode() == TRACE
    if waits.is_empty() and not case.plan.jobs:
        used = "unknown"
    elif len(traced) and traced.any():
        used = "exact" if traced.all() else "both"
    else:
        refused = len(trace) > 0 and (trace == "not supported").all()
        used = "untraceable" if refused or case.plan.jobs else "sampled"
    yield claim("data-sources-used", {"sources": named}, case=used)
