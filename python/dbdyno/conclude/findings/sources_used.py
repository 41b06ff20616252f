"""Which witness filled what."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.conclude.catalogue import claim
from dbdyno.conclude.findings.context import Case, listed
from dbdyno.model.claim import Claim
from dbdyno.model.ledger_rows import account_rows
from dbdyno.model.source import TRACE

_ACCOUNTS = (("CPU", "run"), ("CPU WAIT", "runq"), ("waits", "sleep"))


def witnesses_used(case: Case) -> Iterator[Claim]:
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
