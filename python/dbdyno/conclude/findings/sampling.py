"""Do the samples bear what is said with them, and which data source was used?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, Row, at, ids, listed
from dbdyno.conclude.findings.facts import of_cell
from dbdyno.model.claim import Claim, Estimate
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.session_time import hidden
from dbdyno.model.source import TRACE
from dbdyno.model.units import significant

SAMPLES_LOST = 0.05
LATE_NS = 100_000_000
LATE_SHARE = 0.25
"""The sampler itself waits for a CPU if its samples begin this part of their interval late, in the mean."""
ENOUGH = 30
"""Samples of a window: with fewer no share is told apart from its half or its double."""
WIDE = 0.5
"""A claim whose interval is wider than this part of its value rests on too few samples."""
LARGE = 0.1
"""Waits from this share of the served time on are claims, even if no other finding speaks of them."""


def sampler(case: Case) -> Iterator[Claim]:
    """Samples that were not answered, or far too late."""
    found = [(_asked(case, c["cell"]), c) for c in case.cells()]
    bad = [(a, c) for a, c in found if a[1] + a[2] > SAMPLES_LOST * a[0]]
    if bad:
        n, lost, delayed = (sum(a[i] for a, _ in bad) for i in range(3))
        yield claim(
            "sampler-starved",
            {
                "samples": n,
                "measurements": case.many(len(bad)),
                "lost": lost,
                "delayed": delayed,
                "limit": LATE_NS,
            },
            (lost + delayed) / n,
            cells=ids([c for _, c in bad]),
        )


@of_cell
def _asked(case: Case, cell: str) -> tuple[int, int, int]:
    """Samples, how many of them were lost, and how many far too late."""
    table = case.table("cell_sampler", cell).filter(pl.col("status") != "off")
    late = (pl.col("start_ns") - pl.col("due_ns") > LATE_NS) & (pl.col("status") == "ok")
    lost, delayed = table.select(a=(pl.col("status") == "lost").sum(), b=late.sum()).row(0)
    return table.height, lost, delayed


def sampler_late(case: Case) -> Iterator[Claim]:
    """The sampler's own run-queue delay: it then sees the machine more often when a CPU has become free."""
    found: list[tuple[float, float, Row]] = []
    for cell in case.usable():
        for late, each in _spans(case, cell["cell"]):
            if each and late > LATE_SHARE * each:
                found.append((late / each, late, cell))
    if found:
        share, late, cell = max(found, key=lambda f: f[0])
        yield claim(
            "sampler-late",
            {"late": late, "place": at(cell, case), "share": share},
            share,
            cells=ids([c for *_, c in found]),
        )


@of_cell
def _spans(case: Case, cell: str) -> list[tuple[float, float]]:
    """By sampler: how late its samples began, and the time that each stands for; means, ns."""
    by_sampler = case.table("cut_sampler", cell).group_by("via", maintain_order=True)
    each = (pl.col("high_ns") - pl.col("low_ns")).mean()
    return by_sampler.agg(late=pl.col("late_ns").mean(), each=each).select("late", "each").rows()


def too_few(case: Case, claims: Sequence[Claim]) -> Iterator[Claim]:
    """Fewer samples than what is said with them needs."""
    few = [(n, c) for c in case.usable() if 0 < (n := _samples(case, c["cell"])) < ENOUGH]
    wide = [*_wide_claims(claims), *_wide_waits(case)]
    if few:
        n, cell = min(few, key=lambda f: f[0])
        yield claim(
            "few-samples",
            {"measurements": case.many(len(few)), "samples": n, "place": at(cell, case), "enough": ENOUGH},
            float(n),
            case="few",
            severity="warning",
            cells=ids([c for _, c in few]),
        )
    elif wide:
        text, cells = wide[0]
        more = f", and {len(wide) - 1} more" if len(wide) > 1 else ""
        yield claim(
            "few-samples",
            {"figure": text, "more": more, "limit": WIDE},
            Estimate("few-samples", float(len(wide)), "figures"),
            case="wide",
            cells=cells,
        )


@of_cell
def _samples(case: Case, cell: str) -> int:
    """How many samples the data source took that took most."""
    counted = case.table("cut_sampler", cell).group_by("via").len()
    return int(counted["len"].max() or 0)  # type: ignore[arg-type]


def _wide_claims(claims: Sequence[Claim]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for f in claims:
        v = f.value
        if v is None or v.low is None or v.high is None or f.severity == "good":
            continue
        if "samples" in f.evidence and v.high - v.low > WIDE * abs(v.value):
            ends = f"{significant(v.low)} to {significant(v.high)} {v.unit}"
            yield f"the interval of {f.id} is {ends}", f.cells


def _wide_waits(case: Case) -> Iterator[tuple[str, tuple[str, ...]]]:
    for cell in case.usable():
        for detail, low, high in _wide(case, cell["cell"]):
            ends = f"{significant(low)} to {significant(high)} s/s"
            yield f"the interval of {detail} is {ends} {at(cell, case)}", (cell["cell"],)


@of_cell
def _wide(case: Case, cell: str) -> list[tuple[str, float, float]]:
    """Large waits whose interval is too wide; none where sessions are hidden: not for want of samples."""
    rows = case.accounts(cell)
    if hidden(rows):
        return []
    large = (pl.col("account") == "sleep") & (pl.col("aas") > LARGE * case.served(cell))
    wide = pl.col("high") - pl.col("low") > WIDE * pl.col("aas")
    return rows.filter(large & wide & pl.col("detail").is_not_null()).select("detail", "low", "high").rows()


# -- data sources --

_ACCOUNTS = (("CPU", "run"), ("CPU WAIT", "runq"), ("waits", "sleep"))


def sources_used(case: Case) -> Iterator[Claim]:
    """The sources of the sessions' accounts, as the ledger names them."""
    ledger = account_rows(case.tables["ledger"], *(a for _, a in _ACCOUNTS)).drop_nulls("aas")
    said = {
        what: listed(
            ledger.filter(pl.col("account") == account)["source"].unique(maintain_order=True).to_list()
        )
        for what, account in _ACCOUNTS
    }
    told = "; ".join(f"{what}: {sources}" for what, sources in said.items() if sources)
    if not told:
        return
    trace = case.tables["cell_sources"].filter(pl.col("name") == TRACE)["status"]
    if said["waits"].startswith(TRACE):
        used = "exact"
    else:
        used = "untraceable" if len(trace) and (trace == "not supported").all() else "sampled"
    yield claim("witnesses-used", {"sources": told}, case=used)
