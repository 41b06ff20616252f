"""The catalogue of claims: every sentence about a run stands in the TOML files beside this module.

An entry is a table named by the claim's id:

- ``question``: what it answers; ``page``: of the documentation
- ``when``: the criterion; its thresholds are slots for the constants that decide, ``{locks.BOUND:percent}``
  (:mod:`dbdyno.conclude.thresholds`)
- ``sentence``, ``evidence``, ``advice``: with named values ``{share:percent}``; tables of them, where the
  sentence has cases (an advice may belong to a part, too)
- ``part``: sentences that are added where their values are known
- ``level``: good, note (if left out), warning or invalid; ``unit`` of the claim's value
- ``each``: what ends the id of a claim that is made once for each: ``errors-40001`` for ``errors``
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.results.claim import Claim, Estimate, Severity
from dbdyno.model.text.nouns import at_once, capital, fill, noun
from dbdyno.model.units import format_average, format_ns, format_p, format_rate, format_size, significant

if TYPE_CHECKING:
    from dbdyno.model.plan.plan import Plan


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "percent": fmt.percent,
    "rate": format_rate,
    "number": significant,
    "average": format_average,
    "plain": fmt.plain,
    "ns": format_ns,
    "p95": partial(fmt.tail_ns, 0.95),
    "p99": partial(fmt.tail_ns, 0.99),
    "seconds": fmt.seconds,
    "size": format_size,
    "capital": capital,
    "p": format_p,
}
Cases = str | Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """What the catalogue holds of a claim."""

    id: str
    question: str
    when: str
    sentence: Cases
    evidence: Cases = ""
    advice: Cases = ""
    part: Mapping[str, str] = field(default_factory=dict)
    level: Severity = "note"
    unit: str = ""
    each: str = ""
    page: str = ""

    @property
    def name(self) -> str:
        """``errors-CODE``."""
        return f"{self.id}-{self.each}" if self.each else self.id

    def sentences(self) -> list[str]:
        """All of its sentences as templates, one a case, then the parts."""
        cases = [self.sentence] if isinstance(self.sentence, str) else list(self.sentence.values())
        return [*dict.fromkeys(cases), *(p.strip() for p in self.part.values())]

    def advices(self) -> list[str]:
        texts = [self.advice] if isinstance(self.advice, str) else self.advice.values()
        return [fill(t) for t in dict.fromkeys(texts) if t]


class _Words(Formatter):
    """``{share:percent}``, ``{n:#call}`` for ``3 calls``, ``{~calls}`` for a noun of the kind of run; else as
    :meth:`str.format`."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(key, str) and key.startswith("~"):
            return noun(key[1:])
        return super().get_value(key, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "#session":
            return at_once(f"{value:,}")
        if format_spec == "#call":
            return f"{value:,} {noun('call' if value == 1 else 'calls')}"
        if format_spec.startswith("#"):
            return f"{value:,} {format_spec[1:]}{'' if value == 1 else 's'}"
        if format_spec in FORMATS:
            return FORMATS[format_spec](value)
        return str(super().format_field(value, format_spec))


_WORDS = _Words()


_FIRST = (
    *("triggers", "quality", "hosts", "paced", "counting", "growth", "table_scans", "commands", "ladder"),
    *("sizes", "time", "wrong_test", "cpu_profile", "background", "memory", "checks"),
)
"""Files of claims about runs, in reading order: are figures usable, what was done, how it scales, why."""


def _place(file: Path) -> tuple[int, str]:
    return (_FIRST.index(file.stem) if file.stem in _FIRST else len(_FIRST), file.stem)


@cache
def entries() -> Mapping[str, Entry]:
    """All entries by id, in the order in which claims of one level are read."""
    files = sorted(Path(__file__).parent.glob("*.toml"), key=_place)
    tables = [tomllib.loads(f.read_text(encoding="utf-8")) for f in files]
    found = [Entry(id, **record) for table in tables for id, record in table.items()]
    known = {e.id: e for e in found}
    assert len(known) == len(found), "two entries have one id"
    return known


def entry(id: str) -> Entry:
    """The entry of an id, with or without what ends it (``errors-40001``). Raises :class:`UsageError`."""
    known = entries()
    if id in known:
        return known[id]
    for e in known.values():
        if e.each and id.startswith(f"{e.id}-"):
            return e
    raise UsageError(f"no claim is called {id!r}", did_you_mean(id, known))


def claim(
    id: str,
    said: Mapping[str, Any],
    value: Estimate | float | None = None,
    *,
    case: str = "",
    parts: Sequence[str] = (),
    each: str = "",
    severity: Severity | None = None,
    low: float | None = None,
    high: float | None = None,
    advice: str | None = None,
    cells: Sequence[str] = (),
    subject: str = "",
) -> Claim:
    """The claim ``id`` with the named values ``said``.

    ``case``: which of its sentences; ``parts``: what is added. ``value``: with its interval, or a number in
    the entry's unit with ``low`` and ``high``. ``severity`` and ``advice`` in place of the entry's.
    """
    found = entries()[id]
    full_id = f"{id}-{each}" if each else id
    if value is not None and not isinstance(value, Estimate):
        value = Estimate(full_id, value, found.unit, low, high)
    text = sentence(id, said, case=case, parts=parts)
    return Claim(
        id=full_id,
        text=f"{subject}: {text}" if subject else text,
        severity=severity or found.level,
        subject=subject,
        value=value,
        evidence=_WORDS.vformat(_case(found.evidence, case), (), said),
        advice=_advice(found, said, (case, *parts)) if advice is None else advice,
        cells=tuple(cells),
        case=case,
        said=dict(said),
    )


def sentence(
    id: str, said: Mapping[str, Any] | None = None, *, case: str = "", parts: Sequence[str] = ()
) -> str:
    """What the claim ``id`` says with the named values ``said``: a remark that is kept as text."""
    found = entries()[id]
    texts = [_case(found.sentence, case), *(found.part[p] for p in parts)]
    return _WORDS.vformat("".join(texts), (), said or {})


def with_nouns(text: str, **values: Any) -> str:
    """A text with its slots for nouns, and these values, filled."""
    return _WORDS.vformat(text, (), values)


def worded(plan: Plan) -> Plan:
    """``plan`` with its choices' reasons in words."""
    said = (
        c if not c.says else c.model_copy(update={"reason": sentence(c.says, c.said, case=c.case)})
        for c in plan.choices
    )
    return plan.model_copy(update={"choices": tuple(said)})


def _advice(found: Entry, said: Mapping[str, Any], cases: Sequence[str]) -> str:
    """The advice of the first of its cases and parts that has one."""
    texts = (_case(found.advice, case) for case in cases)
    return _WORDS.vformat(next((t for t in texts if t), ""), (), said)


def _case(texts: Cases, case: str) -> str:
    return texts if isinstance(texts, str) else texts.get(case, "")


def readable(template: str, begin: str = "<", end: str = ">") -> str:
    """A sentence with its values marked: ``<share> %``."""
    units = {"percent": " %", "ns": "", "seconds": " s"}

    def shown(field: re.Match[str]) -> str:
        name, spec = field[1], field[2] or ""
        unit = f" {spec[1:]}s" if spec.startswith("#") else units.get(spec, "")
        return f"{begin}{name.replace('_', ' ')}{end}{unit}"

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", shown, fill(template))
