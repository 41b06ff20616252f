"""A ladder's answers in words and numbers: what it delivers, to where it scales, why it ends. Pure."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from dbdyno.conclude.answers import ladders
from dbdyno.conclude.answers.capacity import bends, deliveries, paragraph
from dbdyno.conclude.answers.cpu_wait import headroom, onset
from dbdyno.conclude.answers.ladders import ladders_of
from dbdyno.conclude.answers.reason import reason
from dbdyno.conclude.answers.smt import equivalent, threads
from dbdyno.model.analyses import Scaling
from dbdyno.model.claim import Claim
from dbdyno.model.results import Results

__all__ = ["answered", "ladders_of", "observed", "paragraph"]


def answered(scaling: Scaling, results: Results | None = None) -> Scaling:
    """``scaling`` with its answers: one-session, peak, one-core, one-cpu, knee, second-knee,
    scales-to, at-cpus, one-more-session, reason, cpu-wait-onset, smt-yield, cpu-per-work, cpu-inflation,
    equivalent-cores; each as far as it can be told, and some say that it cannot and why.

    ``results``: of the run that the ladder is of (:func:`ladders_of`); without them there is no ledger.
    """
    if not ladders.loads(scaling.ladder):
        return scaling
    kind, why = reason(scaling, results)
    made = (
        *deliveries(scaling),
        *bends(scaling),
        why,
        onset(scaling, results),
        *threads(scaling, results, kind),
    )
    return replace(scaling, answers=made)


def observed(results: Results) -> tuple[Claim, ...]:
    """Of an observed run, which has no ladder: headroom and equivalent-cores; empty of any other run."""
    found = headroom(results)
    if found is None:
        return ()
    cores = results.tables["cores"] if "cores" in results.tables else pl.DataFrame()
    known = cores.drop_nulls("threads") if cores.height else cores
    return (found, equivalent(known, "At the present load")) if known.height else (found,)
