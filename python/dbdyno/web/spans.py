"""Spans of time in addresses: ``from``, ``to``, and ``against``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.units import whole_second
from dbdyno.present.document.document import Paragraph
from dbdyno.present.document.page import Html, el

FROM, TO, AGAINST, AGAINST_FROM, AGAINST_TO = "from", "to", "against", "against-from", "against-to"
BEFORE_S = {"1h": 3600, "1d": 86_400, "1w": 604_800}
"""Baselines of a span: the same one so long before."""
ANOTHER = "span"
"""Or the one of :data:`AGAINST_FROM` and :data:`AGAINST_TO`."""
_CHOICES = {
    "": "nothing",
    "1h": "the same an hour before",
    "1d": "the same a day before",
    "1w": "the same a week before",
    ANOTHER: "another span",
}
_CURE = "2026-11-21T14:03:00 (local time of the server of this page), or with Z at the end for UTC"


class Asked(NamedTuple):
    """Two ends in seconds since 1970; None for the begin or the end of all."""

    start_s: float | None
    end_s: float | None


def asked(parameters: Mapping[str, str], begin: str = FROM, end: str = TO) -> Asked:
    """Returns the span of an address. Raises :class:`UsageError`."""
    return Asked(_moment(parameters, begin), _moment(parameters, end))


def baseline(parameters: Mapping[str, str], start_s: float, end_s: float) -> Asked | None:
    """Returns the span that the one from ``start_s`` to ``end_s`` is compared with; None without any.

    Raises :class:`UsageError`.
    """
    how = parameters.get(AGAINST, "")
    if not how:
        return None
    if how == ANOTHER:
        return asked(parameters, AGAINST_FROM, AGAINST_TO)
    if how not in BEFORE_S:
        raise UsageError(f"no such span: against={how[:40]}", f"{', '.join(BEFORE_S)} (before), or {ANOTHER}")
    return Asked(start_s - BEFORE_S[how], end_s - BEFORE_S[how])


def written(seconds: float) -> str:
    """Returns a time for an address: UTC, to the second at which pages show it (:func:`whole_second`)."""
    return f"{datetime.fromtimestamp(whole_second(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def refusal(error: DbdynoError) -> list[Paragraph]:
    """Returns an error in a page: what is wrong, and what to do."""
    cure = [Paragraph(f"What to do: {error.cure}.")] if error.cure else []
    return [Paragraph(f"{error.message[:1].upper()}{error.message[1:]}.", "warning"), *cure]


Ends = tuple[float, float] | None


def form(
    parameters: Mapping[str, str],
    spans: tuple[Ends, Ends],
    clock: Callable[[float], str],
    kept: Sequence[str],
    link: tuple[str, str],
) -> Html:
    """Returns fields for the span and the one that it is compared with: exact times, and what works without a
    mouse and without scripts.

    ``spans``: both, as they are shown. ``clock`` writes a time for a field. ``kept``: further parameters that
    stay. ``link``: to another form of the page, and its text.
    """
    chosen, names = parameters.get(AGAINST, ""), ((FROM, TO), (AGAINST_FROM, AGAINST_TO))
    texts = (("From ", "to "), ("A from ", "to "))
    fields = [
        el(
            "label",
            text,
            el("input", type="datetime-local", step=1, name=name, value=clock(end) if ends else None),
        )
        for pair, words, ends in zip(names, texts, spans, strict=True)
        for name, text, end in zip(pair, words, ends or (0.0, 0.0), strict=True)
    ]
    choice = [el("option", text, value=value, selected=chosen == value) for value, text in _CHOICES.items()]
    return el(
        "form",
        *fields[:2],
        el("label", "Compare this span, B, with A: ", el("select", *choice, name=AGAINST)),
        el("span", *fields[2:], id="time-others", hidden=chosen != ANOTHER),
        *(el("input", type="hidden", name=k, value=parameters[k]) for k in kept if parameters.get(k)),
        el("button", "Show", type="submit"),
        el("a", link[1], href=link[0]),
        method="get",
        id="time-form",
        class_="span",
    )


def _moment(parameters: Mapping[str, str], name: str) -> float | None:
    text = parameters.get(name, "").strip()
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"no time in {name}={text[:40]}", _CURE) from None
