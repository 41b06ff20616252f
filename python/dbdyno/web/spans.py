"""Spans of time in addresses: ``from``, ``to``, and ``against``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.text.visible import with_stop
from dbdyno.model.units import NS_PER_S, format_ns, whole_second
from dbdyno.present.document.document import Block, Paragraph
from dbdyno.present.document.page import Html, el
from dbdyno.present.media.html import fragment

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
_FIELDS = {FROM: "From ", TO: "to ", AGAINST_FROM: "A from ", AGAINST_TO: "to "}
_NO_ENDS = (None, None)
_LEAST_S = 0.001
"""Spans that have less in common do not overlap."""
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
        another = asked(parameters, AGAINST_FROM, AGAINST_TO)
        if not any(another):
            raise UsageError(
                "B is compared with nothing, as A, the other span, has no times",
                'fill in "A from" and "to", or press "Drag A" and drag over the chart',
            )
        return another
    if how not in BEFORE_S:
        raise UsageError(f"no such span: against={how[:40]}", f"{', '.join(BEFORE_S)} (before), or {ANOTHER}")
    return Asked(start_s - BEFORE_S[how], end_s - BEFORE_S[how])


def written(seconds: float) -> str:
    """Returns a time for an address: UTC, to the second at which pages show it (:func:`whole_second`)."""
    return f"{datetime.fromtimestamp(whole_second(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def refusal(error: DbdynoError) -> list[Paragraph]:
    """Returns an error in a page: what is wrong, and what to do."""
    cure = [Paragraph(f"What to do: {with_stop(error.cure)}")] if error.cure else []
    return [Paragraph(f"{error.message[:1].upper()}{error.message[1:]}.", "warning"), *cure]


Ends = tuple[float, float]


def overlap(a: Ends, b: Ends) -> list[Paragraph]:
    """Returns a line about the time that both spans have; empty if they have none."""
    shared_s = min(a[1], b[1]) - max(a[0], b[0])
    if shared_s < _LEAST_S:
        return []
    length = format_ns(shared_s * NS_PER_S)
    return [Paragraph(f"A and B overlap by {length}. It is in both, so the change looks smaller.", "warning")]


def fields(
    parameters: Mapping[str, str], spans: tuple[Ends | None, Ends | None], clock: Callable[[float], str]
) -> dict[str, str]:
    """Returns the times in the fields of :func:`form` by their names: those of the span and its baseline as
    they are shown. Where one is not, since it was refused, those that were asked for.

    ``clock`` writes a time for a field.
    """
    shown = dict(zip(_FIELDS, (*(spans[0] or _NO_ENDS), *(spans[1] or _NO_ENDS)), strict=True))
    times = {name: _typed(parameters, name) if end is None else end for name, end in shown.items()}
    return {name: "" if time is None else clock(time) for name, time in times.items()}


def form(
    parameters: Mapping[str, str], values: Mapping[str, str], kept: Sequence[str], link: tuple[str, str]
) -> Html:
    """Returns fields for the span and the one that it is compared with: exact times, and what works without a
    mouse and without scripts.

    ``values``: of :func:`fields`. ``kept``: further parameters that stay. ``link``: to another form of the
    page, and its text.
    """
    chosen = parameters.get(AGAINST, "")
    fields = [
        el(
            "label",
            text,
            el("input", type="datetime-local", step=1, name=name, value=values[name] or None),
        )
        for name, text in _FIELDS.items()
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


def section(
    title: str, every: str, foot: str, form: Html | None, notes: Iterable[Block], more: Html | None = None
) -> Html:
    """Returns the chart over time (see time.js) with what chooses spans in it.

    ``every``: of what all is shown without a span. ``form``: None in a page that is kept, where spans stay.
    ``notes``: what is wrong with the chosen spans.
    """
    tools = [("time-in", "Zoom to the span"), ("time-out", "Whole time")]
    if form is not None:
        tools += [("time-all", f"All {every}"), ("time-other", "Drag A, the span to compare with")]
    buttons = [el("button", text, type="button", id=id, aria_pressed="false" if id == "time-other" else None)
               for id, text in tools]  # fmt: skip
    return el(
        "section",
        el("h2", title, id="over-time-title"),
        el("div", el("div", id="time-plot"), el("div", *buttons, class_="tools", hidden=True), class_="card"),
        el("p", foot, class_="foot"),
        form,
        el("div", fragment(notes), role="status", id="time-status"),
        more,
        id="over-time",
        aria_labelledby="over-time-title",
    )


def _typed(parameters: Mapping[str, str], name: str) -> float | None:
    try:
        return _moment(parameters, name)
    except UsageError:
        return None


def _moment(parameters: Mapping[str, str], name: str) -> float | None:
    text = parameters.get(name, "").strip()
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if not 1970 < moment.year < 9999:  # so that it can be shown in every time zone
            raise ValueError(text)
        return moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"no time in {name}={text[:40]}", _CURE) from None
