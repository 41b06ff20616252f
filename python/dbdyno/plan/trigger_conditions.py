"""Conditions of triggers: ``sessions in (10,20,30) and cpu_wait > 30% for 3s``.

The functions are pure. Grammar (keywords in any case)::

    condition  = any [ "for" TIME ]
    any        = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" any ")" | figure OP value | figure ["not"] "in" "(" value { "," value } ")"
    figure     = NAME | NAME "(" ARGUMENT ")"
    OP         = ">" | ">=" | "<" | "<=" | "=" | "==" | "!=" | "<>"

A comparison with an unknown value (None) is itself unknown, neither true nor false (Kleene's logic).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.units import (
    FACTORS_NS,
    NS_PER_S,
    format_given,
    format_number,
    format_percent,
    parse_duration_ns,
    quantity,
)

MARGIN = 0.1
"""A condition counts as over when it is false even with its thresholds relaxed by this share."""
Values = Mapping[str, float | None]
"""Values by :attr:`Figure.key`. A figure that is absent or None is unknown."""
Unit = str  # "" | "share" | "time"


class Known(NamedTuple):
    """A figure that conditions may use."""

    doc: str
    unit: Unit = ""
    argument: str = ""  # what it takes in parentheses
    whole: bool = False  # a whole number, of a moment
    driven: bool = False  # of dbdyno's own calls


FIGURES: dict[str, Known] = {
    "sessions": Known("sessions that are connected", whole=True),
    "active": Known("sessions on a CPU, waiting for one, or in a wait that is not the client", whole=True),
    "db_time": Known("DB time, seconds per second (AAS), of the last second"),
    "cpu_wait": Known("share of DB time that is CPU WAIT, of the last two seconds", "share"),
    "wait": Known(
        "sessions in waits of a class, or in one event, on average of the last second",
        argument="CLASS or CLASS/EVENT",
    ),
    "lock_depth": Known("longest chain of sessions that wait for each other's locks", whole=True),
    "statement": Known("active sessions that execute this statement", argument="query id", whole=True),
    "p95": Known("95th percentile of response times of the last second", "time", driven=True),
    "response": Known("mean response time of calls that ended in the last second", "time", driven=True),
}
_OTHER_NAMES = {
    "aas": "db_time",
    "active_sessions": "active",
    "lock_chain": "lock_depth",
    "query": "statement",
}


@dataclass(frozen=True)
class Figure:
    name: str
    argument: str = ""

    @property
    def key(self) -> str:
        return f"{self.name}({self.argument})" if self.argument else self.name


_OPS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_NEGATED = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "in": "not in", "not in": "in"}


@dataclass(frozen=True)
class Compare:
    """A comparison. ``op`` is one of > >= < <= in "not in"; = and != are represented as in and "not in" with
    one value."""

    figure: Figure
    op: str
    values: tuple[float, ...]

    def negated(self) -> Compare:
        return Compare(self.figure, _NEGATED[self.op], self.values)


@dataclass(frozen=True)
class Several:
    """A conjunction (``every``) or disjunction of parts."""

    parts: tuple[Node, ...]
    every: bool

    def negated(self) -> Several:
        return Several(tuple(p.negated() for p in self.parts), not self.every)


Node = Compare | Several
Exact = tuple[str, float]
"""A figure's key with the value that it equals in a comparison by = or in."""


@dataclass(frozen=True)
class Condition:
    text: str
    node: Node
    for_ns: int

    def figures(self) -> tuple[Figure, ...]:
        return tuple(dict.fromkeys(c.figure for c in leaves(self.node)))


def leaves(node: Node) -> Iterator[Compare]:
    if isinstance(node, Compare):
        yield node
    else:
        for part in node.parts:
            yield from leaves(part)


class Verdict(NamedTuple):
    truth: bool | None
    exact: frozenset[Exact]  # comparisons by = and in that hold


def evaluate(node: Node, values: Values, before: Values | None = None, *, near: bool = False) -> Verdict:
    """Evaluates a condition on one sample. ``near`` relaxes thresholds by :data:`MARGIN`, so that the
    condition stays true for longer. ``before`` is the previous sample. A count that rose past an exact value
    between the two samples, and is still near it, matches that value."""
    if isinstance(node, Several):
        verdicts = [evaluate(part, values, before, near=near) for part in node.parts]
        deciding = not node.every
        truths = [f.truth for f in verdicts]
        truth = deciding if deciding in truths else None if None in truths else not deciding
        met = (f.exact for f in verdicts if f.truth)
        return Verdict(truth, frozenset[Exact]().union(*met) if truth else frozenset())
    value = values.get(node.figure.key)
    if value is None:
        return Verdict(None, frozenset())
    if node.op == "in":
        last = None if before is None else before.get(node.figure.key)
        rising = FIGURES[node.figure.name].whole
        exact = frozenset(
            (node.figure.key, v)
            for v in node.values
            if value == v
            or (_near(value, v) and (near or (rising and last is not None and last < v < value)))
        )
        return Verdict(bool(exact), exact)
    if node.op == "not in":
        return Verdict(value not in node.values, frozenset())
    (limit,) = node.values
    margin = MARGIN * abs(limit) * (-1 if node.op in (">", ">=") else 1) if near else 0.0
    return Verdict(_OPS[node.op](value, limit + margin), frozenset())


def _near(value: float, exact: float) -> bool:
    return abs(value - exact) <= MARGIN * abs(exact)


# The parser.

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)(?:\s*(?P<unit>%|(?:ns|us|ms|min|s|h|d)\b)|(?![\w%]))|(?P<op>>=|<=|<>|!=|==|[<>=])"
    r"|(?P<paren>[(),])|(?P<word>[A-Za-z_][A-Za-z_0-9-]*))"
)
_LONGEST, _DEEPEST = 10_000, 20
_EXAMPLE = (
    "for example: sessions in (10,20,30); cpu_wait > 30% for 3s; wait(CLASS/EVENT) >= 0.5 or active > 8"
)


class _Token(NamedTuple):
    kind: str  # number | op | paren | word | end
    text: str
    at: int  # from 0
    unit: str = ""


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at, self._depth = text, where, 0, 0
        if len(text) > _LONGEST:
            raise UsageError(
                f"{where}: a condition of {len(text):,} characters is too long", f"at most {_LONGEST:,}"
            )
        self._token = self._next()

    def condition(self) -> Condition:
        node = self._any()
        for_ns = 0
        if self._word("for"):
            for_ns = self._duration()
        if self._token.kind != "end":
            cure = "for TIME comes last, and is for the whole condition" if for_ns else "use and, or"
            self._fail(f"unexpected {self._token.text!r}", cure)
        return Condition(self._text.strip(), node, for_ns)

    def _any(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self._one, every=True), every=False)

    def _joined(self, word: str, part: Callable[[], Node], *, every: bool) -> Node:
        parts = [part()]
        while self._word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Several(tuple(parts), every)

    def _one(self) -> Node:
        if self._depth > _DEEPEST:
            self._fail(f"more than {_DEEPEST} levels of not and parentheses", "make several triggers of it")
        self._depth += 1
        if self._word("not"):
            node = self._one().negated()
        elif self._taken("paren", "("):
            node = self._any()
            self._expect(")", "a closing parenthesis is missing")
        else:
            node = self._comparison()
        self._depth -= 1
        return node

    def _comparison(self) -> Compare:
        figure = self._figure()
        unit = FIGURES[figure.name].unit
        refused = self._word("not")
        if self._word("in"):
            self._expect("(", "after in comes a list: in (10,20,30)")
            values = [self._value(unit)]
            while self._taken("paren", ","):
                values.append(self._value(unit))
            self._expect(")", "the list ends with )")
            return Compare(figure, "not in" if refused else "in", tuple(values))
        token = self._token
        if token.kind != "op" or refused:
            self._fail(f"expected a comparison after {figure.key}", "one of > >= < <= = != in (...)")
        self._token = self._next()
        op = {"=": "in", "==": "in", "!=": "not in", "<>": "not in"}.get(token.text, token.text)
        return Compare(figure, op, (self._value(unit),))

    def _figure(self) -> Figure:
        token = self._token
        if token.kind != "word":
            self._fail("expected a figure", f"one of {', '.join(FIGURES)}")
        name = token.text.lower().replace("-", "_")
        name = _OTHER_NAMES.get(name, name)
        if name not in FIGURES:
            self._fail(f"{token.text!r} is no figure", did_you_mean(name, FIGURES))
        takes = FIGURES[name].argument
        if not takes:
            self._token = self._next()
            return Figure(name)
        opened = re.compile(r"\s*\(").match(self._text, self._at)
        if opened is None:
            self._fail(f"{name} needs its {takes} in parentheses", _EXAMPLE)
        assert opened is not None
        end = self._text.find(")", opened.end())
        argument = self._text[opened.end() : end].strip() if end >= 0 else ""
        if not argument:
            self._fail(f"{name} needs its {takes} in parentheses", _EXAMPLE)
        if name == "statement" and not re.fullmatch(r"-?\d+", argument):
            self._fail(f"statement({argument}): not a query id", "a number: dbdyno show RUN --statements")
        self._at = end + 1
        self._token = self._next()
        return Figure(name, argument)

    def _value(self, unit: Unit) -> float:
        token = self._token
        if token.kind != "number":
            self._fail("expected a number", _EXAMPLE)
        value = float(token.text)
        if unit == "time" and token.unit.lower() in FACTORS_NS:
            value *= FACTORS_NS[token.unit.lower()] / NS_PER_S
        elif unit == "share" and token.unit == "%":
            value /= 100
        elif unit == "time":
            self._fail("expected a time", "a number and a unit: 20ms")
        elif token.unit:
            self._fail(f"{token.text}{token.unit}: no unit is expected here", "a number")
        if unit == "share" and value > 1:
            self._fail("a share of more than 100 %", "write 30% or 0.3")
        self._token = self._next()
        return value

    def _duration(self) -> int:
        token = self._token
        if token.kind != "number":
            self._fail("expected a time after for", "for 3s")
        self._token = self._next()
        return parse_duration_ns(f"{token.text}{token.unit}", self._where)

    def _word(self, word: str) -> bool:
        return self._taken("word", word)

    def _taken(self, kind: str, text: str) -> bool:
        if self._token.kind != kind or self._token.text.lower() != text:
            return False
        self._token = self._next()
        return True

    def _expect(self, paren: str, words: str) -> None:
        if not self._taken("paren", paren):
            self._fail(words, _EXAMPLE)

    def _next(self) -> _Token:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :]
            at = self._at + len(rest) - len(rest.lstrip())
            if not rest.strip():
                return _Token("end", "", len(self._text.rstrip()))
            self._token = _Token("", rest.strip()[0], at)
            self._fail(f"unexpected {rest.strip()[0]!r}", _EXAMPLE)
        assert match is not None
        self._at = match.end()
        kind = next(k for k in ("number", "op", "paren", "word") if match[k] is not None)
        return _Token(kind, match[kind], match.start(kind), match["unit"] or "")

    def _fail(self, words: str, cure: str) -> None:
        at = self._token.at
        here = "at its end" if self._token.kind == "end" else f"column {at + 1}"
        raise UsageError(f"{self._where} {self._text!r}, {here}: {words}", cure)


def parse_condition(text: str, where: str = "--when") -> Condition:
    """Parses a condition. Raises :class:`UsageError` with the column of the error and the alternatives
    permitted there."""
    return _Parser(text, where).condition()


def exact_words(exact: Sequence[Exact]) -> str:
    """Returns comparisons in words: ``sessions = 10``."""
    return ", ".join(f"{key} = {format_given(value)}" for key, value in sorted(exact))


def value_words(key: str, value: float) -> str:
    """Returns a figure with its value: ``cpu_wait 34 %``, ``response 12.3 ms``."""
    unit = FIGURES[key.partition("(")[0]].unit
    if unit == "share":
        return f"{key} {format_percent(value)}"
    return f"{key} {quantity(value, 's')}" if unit == "time" else f"{key} {format_number(value)}"
