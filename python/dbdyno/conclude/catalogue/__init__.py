"""The catalogue of claims: every sentence about a run is in the TOML files beside this module.

An entry is a table named by the claim's id:

- ``question``: the question that the claim answers; ``page``: the page of the documentation
- ``when``: the criterion; its thresholds are slots for the constants that decide, ``{locks.BOUND:percent}``
  (:mod:`dbdyno.conclude.thresholds`)
- ``sentence``, ``evidence``, ``advice``: texts with named values ``{share:percent}``; a table of texts, if
  the sentence has cases (an advice may belong to a part, too)
- ``part``: sentences that are added if their values are known
- ``level``: good, note (the default), warning or invalid; ``unit`` of the claim's value
- ``each``: the placeholder for the end of the id, if the claim is made once per item (``errors-40001``)
- ``about``: throughput, time, quality or source; or "" for anything else. A file may begin with the one of
  its entries that have none. A screen shows claims about throughput and time
- ``short``: a template of a few words for a list of warnings; without it the id
- ``missing``: why a run lacks the claim and which measurement makes it, for an answer to the question of a
  recipe; without it ``when``
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.results.claim import Claim, Estimate, Severity
from dbdyno.model.schema.quantiles import TAILS
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
    **{one.key: partial(fmt.tail_ns, one.q) for one in TAILS.values()},
    "seconds": fmt.seconds,
    "size": format_size,
    "capital": capital,
    "p": format_p,
}
Cases = str | Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """An entry of the catalogue; the fields are described at the top of this module."""

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
    about: str = ""
    short: str = ""
    missing: str = ""
    file: str = ""
    """Name of the file that has the entry."""

    @property
    def name(self) -> str:
        """The id with the placeholder for its end: ``errors-CODE``."""
        return f"{self.id}-{self.each}" if self.each else self.id

    def sentences(self) -> list[str]:
        """Returns all sentences as templates: one per case, then the parts."""
        cases = [self.sentence] if isinstance(self.sentence, str) else list(self.sentence.values())
        return [*dict.fromkeys(cases), *(p.strip() for p in self.part.values())]

    def advices(self) -> list[str]:
        """Returns the advices as templates, without those that the run alone makes."""
        texts = [self.advice] if isinstance(self.advice, str) else self.advice.values()
        return [t for t in dict.fromkeys(texts) if t and not re.fullmatch(r"\{\w+\}", t)]


class _Words(Formatter):
    """A formatter for ``{share:percent}``, for ``{n:#call}`` (``3 calls``) and for ``{~calls}`` (the noun
    that the kind of run uses); all else is as in :meth:`str.format`."""

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
"""Files of claims about runs, in reading order: whether figures are usable, the work done, scaling,
causes."""


def _reading_order(file: Path) -> tuple[int, str]:
    return (_FIRST.index(file.stem) if file.stem in _FIRST else len(_FIRST), file.stem)


@cache
def entries() -> Mapping[str, Entry]:
    """Returns all entries by id, in the order in which claims of one level are read."""
    files = sorted(Path(__file__).parent.glob("*.toml"), key=_reading_order)
    tables = [(f.stem, tomllib.loads(f.read_text(encoding="utf-8"))) for f in files]
    all_entries = [
        Entry(id, **{"about": about, "file": file, **record})
        for file, table in tables
        for about in [table.pop("about", "")]
        for id, record in table.items()
    ]
    known = {e.id: e for e in all_entries}
    assert len(known) == len(all_entries), "two entries have one id"
    return known


def entry(id: str) -> Entry:
    """Returns the entry of an id, with or without its end (``errors-40001``). Raises :class:`UsageError` if
    there is none."""
    known = entries()
    if id in known:
        return known[id]
    for e in known.values():
        if e.each and id.startswith(f"{e.id}-"):
            return e
    raise UsageError(f"no claim is called {id!r}", did_you_mean(id, known, "dbdyno explain lists all"))


def claim(
    id: str,
    values: Mapping[str, Any],
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
    """Returns the claim ``id`` with its sentence filled from ``values``.

    ``case`` selects one of the entry's sentences; ``parts`` are added to it. ``value`` is an estimate with
    its interval, or a number in the entry's unit with ``low`` and ``high``. ``severity`` and ``advice``
    replace those of the entry.
    """
    entry = entries()[id]
    full_id = f"{id}-{each}" if each else id
    if value is not None and not isinstance(value, Estimate):
        value = Estimate(full_id, value, entry.unit, low, high)
    pieces = tuple(_pieces(id, values, case, parts))
    text = "".join(words for _, words in pieces)
    return Claim(
        id=full_id,
        text=f"{subject}: {text}" if subject else text,
        severity=severity or entry.level,
        subject=subject,
        value=value,
        evidence=_WORDS.vformat(_text_of(entry.evidence, case), (), values),
        advice=_advice(entry, values, (case, *parts)) if advice is None else advice,
        cells=tuple(cells),
        case=case,
        slots=dict(values),
        about=entry.about,
        short=_short(entry, values),
        pieces=pieces,
    )


def advice(id: str, case: str) -> str:
    """Returns the advice of the claim ``id`` for a case; "" if it has none."""
    return _advice(entries()[id], {}, (case,))


def sentence(
    id: str, values: Mapping[str, Any] | None = None, *, case: str = "", parts: Sequence[str] = ()
) -> str:
    """Returns the sentence of the claim ``id`` filled from ``values``, for remarks that are kept as text."""
    return "".join(words for _, words in _pieces(id, values or {}, case, parts))


def _pieces(id: str, values: Mapping[str, Any], case: str, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the sentence in pieces, each with the name of its slot; "" for words that all its claims
    have."""
    entry = entries()[id]
    template = "".join([_text_of(entry.sentence, case), *(entry.part[p] for p in parts)])
    constant = ""
    for words, slot, spec, conversion in _WORDS.parse(template):
        constant += words
        if slot is None:
            continue
        text = _WORDS.vformat(f"{{{slot}{f'!{conversion}' if conversion else ''}:{spec}}}", (), values)
        if slot.startswith("~"):
            constant += text
        else:
            yield from (("", constant), (slot, text))
            constant = ""
    if constant:
        yield ("", constant)


def _short(entry: Entry, values: Mapping[str, Any]) -> str:
    return _WORDS.vformat(entry.short, (), values) if entry.short else entry.id.replace("-", " ")


def described(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Returns claims that an older version stored with what the catalogue says of them; others unchanged."""
    return tuple(c if c.short else _described(c) for c in claims)


def _described(claim: Claim) -> Claim:
    try:
        of = entry(claim.id)
    except UsageError:  # an id of an older version
        return claim
    try:
        short = _short(of, claim.slots)
    except (LookupError, ValueError, TypeError):  # its slots had other names or values
        short = of.id.replace("-", " ")
    return claim.model_copy(update={"about": of.about, "short": short})


def with_nouns(text: str, **values: Any) -> str:
    """Returns ``text`` with its slots for nouns and for these values filled."""
    return _WORDS.vformat(text, (), values)


def worded(plan: Plan) -> Plan:
    """Returns ``plan`` with the reason of each of its choices as a sentence."""
    choices = (
        c if not c.says else c.model_copy(update={"reason": sentence(c.says, c.slots, case=c.case)})
        for c in plan.choices
    )
    return plan.model_copy(update={"choices": tuple(choices)})


def _advice(entry: Entry, values: Mapping[str, Any], cases: Sequence[str]) -> str:
    """Returns the advice of the first case or part that has one, else ""."""
    texts = (_text_of(entry.advice, case) for case in cases)
    return _WORDS.vformat(next((t for t in texts if t), ""), (), values)


def _text_of(texts: Cases, case: str) -> str:
    return texts if isinstance(texts, str) else texts.get(case, "")


def readable(template: str, begin: str = "<", end: str = ">") -> str:
    """Returns a template with its slots marked, for readers: ``<share> %``."""
    units = {"percent": " %", "ns": "", "seconds": " s"}

    def shown(field: re.Match[str]) -> str:
        name, spec = field[1], field[2] or ""
        unit = f" {spec[1:]}s" if spec.startswith("#") else units.get(spec, "")
        return f"{begin}{name.replace('_', ' ')}{end}{unit}"

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", shown, fill(template))
