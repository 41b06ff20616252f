"""Answers the question of a recipe by the claims that it names."""

from __future__ import annotations

from itertools import chain

from dbdyno.conclude.catalogue import Entry, claim, entries, entry
from dbdyno.conclude.thresholds import criterion
from dbdyno.model.plan.kinds import kind_of, speaking_of
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.model.text.nouns import fill

_OPEN = ("undecided", "undecided-cpu", "unclear", "few", "single")
"""Cases of claims that leave their question open."""


def reply(results: Results) -> tuple[Claim, ...]:
    """Returns the claims that the recipe names, in its order; the claim ``not-decided`` if the run has none
    of them. Empty if the recipe names none."""
    names = results.plan.experiment.answer
    if not names:
        return ()
    claims = [*results.findings, *results.answers, *chain.from_iterable(s.answers for s in results.scaling)]
    if results.comparison is not None:
        claims += results.comparison.conclusions
    named = [c for name in names for c in claims if _is_named(c.id, name)]
    if named:
        return tuple(_with_advice(c) if c.case in _OPEN and c.advice else c for c in named)
    with speaking_of(kind_of(results.plan)):
        return (_not_decided(entry(names[0]), results),)


def _is_named(id: str, name: str) -> bool:
    """Returns whether it is the claim ``name``, or one of those that have its id with an end."""
    known = entries().get(name)
    return id == name or (known is not None and known.each != "" and id.startswith(f"{name}-"))


def _with_advice(open: Claim) -> Claim:
    return open.model_copy(update={"text": f"{open.text} To do: {open.advice}."})


_SPOILING = (
    "no-calls",
    "executions-failed",
    "check-failed",
    "cell-invalid",
    "client-limited",
    "nothing-measured",
)
"""Claims on measurements without usable figures, from which the claims of an answer cannot be made."""


def _spoiling(results: Results) -> Claim | None:
    """Returns the first claim on unusable figures of half of the measurements or more; None if more are
    usable."""
    measured = results.tables["windows"].height
    for id in _SPOILING:
        claims = [c for c in results.findings if c.id == id]
        if claims and 2 * len({cell for c in claims for cell in c.cells}) >= measured:
            return claims[0]
    return None


def _not_decided(lacking: Entry, results: Results) -> Claim:
    if (spoiling := _spoiling(results)) is not None:
        why = (_with_advice(spoiling) if spoiling.advice else spoiling).text.rstrip(".")
        return claim("not-decided", {"why": why}, case="known")
    if lacking.missing:
        return claim("not-decided", {"why": fill(lacking.missing)}, case="known")
    return claim("not-decided", {"question": lacking.question, "criterion": criterion(lacking)}, case="open")
