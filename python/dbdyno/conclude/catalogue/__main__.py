"""Prints the page of all claims: ``python -m dbdyno.conclude.catalogue > docs/claims.md``."""

from __future__ import annotations

import sys

from dbdyno.conclude.catalogue import Entry, entries, readable
from dbdyno.conclude.thresholds import criterion, filled

_HEAD = """# Claims

<!-- Made by: python -m dbdyno.conclude.catalogue > docs/claims.md -->

What dbdyno concludes from a run, an observation or a ladder. A claim has an id, a sentence, its figure with
unit and interval, the evidence and, where something can be done, advice. *warning*: figures are worse than
they look; *invalid*: they cannot be used; *note*: what to know; *good*: what was checked and holds.
`dbdyno explain ID` prints an entry. In the sentences, words in italics stand for values.
"""
_TAIL = """
Drift and uneven-sessions share a false-alarm rate of {stats.significance.FALSE_ALARMS:percent} on a steady
run (Bonferroni over the measurements that they test); counts of whole calls have at least their rounding
error, {steadiness.PHASE_VARIANCE:plain} call² per session and half.
Both tests are in `python/dbdyno/stats/significance.py`, with their false alarms counted in
`tests/unit/stats/test_stats.py`.
"""


def page() -> str:
    """Returns all entries as Markdown."""
    return _HEAD + "".join(_section(e) for e in entries().values()) + filled(_TAIL, "the end of the page")


def _section(entry: Entry) -> str:
    lines = [
        f"\n## {entry.name}",
        f"**{entry.question}** Level: {entry.level}.",
        f"Made when: {criterion(entry)}.",
    ]
    lines += ["", *(f"- {readable(s, '*', '*')}" for s in entry.sentences())]
    if advices := entry.advices():
        lines += ["", *(f"Advice: {readable(a, '*', '*')}." for a in advices)]
    if entry.page:
        lines += ["", f"More: [{entry.page}]({entry.page})."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
