"""Time travel: an observation over time. What is below the chart is of a span, or of one against another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from dbdyno import conduct, present
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.present.document.document import Block, Document, Paragraph
from dbdyno.present.document.page import Html
from dbdyno.present.media.html import fragment
from dbdyno.web.app import Lab, Page
from dbdyno.web.shell import SAVE, TIMELINE_SCRIPTS, TIMELINE_STYLES, View
from dbdyno.web.spans import (
    FROM,
    TO,
    asked,
    baseline,
    fields,
    form,
    overlap,
    refusal,
    section,
    written,
)

PART = "part"
"""Parameter of a span's address: the section whose blocks are asked for."""
BY_WAIT = "by"
"""Parameter ``by=wait``: CPU WAIT is drawn by the wait before it."""


def address(run: str, start_s: float | None = None, end_s: float | None = None) -> str:
    """Returns the address of an observation over time, or of a span of it."""
    ends = {n: written(s) for n, s in ((FROM, start_s), (TO, end_s)) if s is not None}
    return f"/time/{quote(run)}{'?' if ends else ''}{urlencode(ends)}"


def routes(lab: Lab) -> Sequence[BaseRoute]:
    recent = conduct.RecentObservations()
    charts: WeakKeyDictionary[conduct.ObservedTime, dict[bool, dict[str, Any]]] = WeakKeyDictionary()

    def chart(time: conduct.ObservedTime, by_wait: bool) -> dict[str, Any]:
        forms = charts.setdefault(time, {})
        if by_wait not in forms:
            forms[by_wait] = present.time_chart(time.whole_once(), by_wait=by_wait)
        return forms[by_wait]

    def view(request: Request) -> View:
        time = recent.of(lab.store.open(request.path_params["run"]))
        complete = SAVE in request.query_params
        shown = _Shown.of(time, request.query_params, complete=complete)
        drawn, doubt = _tried(lambda: chart(time, request.query_params.get(BY_WAIT) == "wait"))
        state = shown.state(time, request.query_params)
        above = _above(shown, state, drawn, request.query_params, complete)
        return View(
            Document(present.span_title(time.whole_results), [*doubt, *shown.blocks]),
            above=above,
            scripts=(*TIMELINE_SCRIPTS, "time.js"),
            styles=("lab.css", *TIMELINE_STYLES, "time.css"),
            data={
                "time-chart": drawn or {},
                "time-state": state | {"late": present.LATE_OF_SPAN},
            },
            status=shown.status,
        )

    def span(request: Request) -> Response:
        time = recent.of(lab.store.open(request.path_params["run"]))
        if part := request.query_params.get(PART):
            chosen = time.chosen(*asked(request.query_params))
            return JSONResponse({"html": fragment(present.late_of_span(time.results(chosen), part))})
        shown = _Shown.of(time, request.query_params)
        parts = {"html": fragment(shown.blocks), "notes": fragment(shown.notes)}
        return JSONResponse(shown.state(time, request.query_params) | parts, shown.status)

    return [Page("/time/{run}", view, lab), Route("/time/{run}/span", span, methods=["GET"])]


class _Shown(NamedTuple):
    """The span that an address asks for, its baseline, their blocks, and ``notes`` of what is wrong."""

    blocks: list[Block]
    notes: list[Paragraph]
    span: conduct.Chosen | None = None
    baseline: conduct.Chosen | None = None
    status: int = 200

    @classmethod
    def of(
        cls, time: conduct.ObservedTime, parameters: Mapping[str, str], *, complete: bool = False
    ) -> _Shown:
        try:
            chosen = time.chosen(*asked(parameters))
        except UsageError as error:
            return cls([], refusal(error), status=400)
        results = time.results(chosen)
        lead: list[Block] = [Paragraph(f"{present.span_extent(results)}.", lead=True)]
        try:
            own = present.span_sections(results, complete=complete)
        except StoreError as error:
            return cls(lead, refusal(error), chosen, status=409)
        try:
            before = baseline(parameters, chosen.start_s, chosen.end_s)
            against = None if before is None else time.chosen(*before)
        except UsageError as error:
            return cls([*lead, *own], refusal(error), chosen, status=400)
        if against is None:
            return cls([*lead, *own], [], chosen)
        shared = overlap(against[1:], chosen[1:])
        return cls([*_compared(time, against, chosen), *own], shared, chosen, against)

    def state(self, time: conduct.ObservedTime, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Returns the ends of both spans in seconds since 1970, as scripts read them, and what the fields
        have."""
        whole = self.span is None or self.span.span == time.whole.span
        return {
            "span": None if whole else _ends(self.span),
            "against": _ends(self.baseline),
            "fields": self.fields(time, parameters),
        }

    def fields(self, time: conduct.ObservedTime, parameters: Mapping[str, str]) -> dict[str, str]:
        def clock(seconds: float) -> str:
            return present.span_clock(time.whole_results, seconds)

        shown = [None if c is None else c[1:] for c in (self.span, self.baseline)]
        return fields(parameters, (shown[0], shown[1]), clock)


def _ends(chosen: conduct.Chosen | None) -> list[float] | None:
    """Returns both ends to the millisecond, as the chart has them."""
    return None if chosen is None else [round(chosen.start_s, 3), round(chosen.end_s, 3)]


def _compared(time: conduct.ObservedTime, a: conduct.Chosen, b: conduct.Chosen) -> list[Block]:
    first, second = time.results(a), time.results(b)
    lead = [
        Paragraph(f"{name}: {present.span_extent(r)}.", lead=True)
        for name, r in (("A", first), ("B", second))
    ]
    return [*lead, *present.span_comparison(time.compared(a, b), first, second)]


def _tried(make: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any] | None, list[Paragraph]]:
    try:
        return make(), []
    except StoreError as error:
        return None, refusal(error)


def _above(
    shown: _Shown,
    state: Mapping[str, Any],
    drawn: Mapping[str, Any] | None,
    parameters: Mapping[str, str],
    complete: bool,
) -> Html:
    notes = [
        "A span takes whole windows: those whose middle lies in it.",
        *(drawn or {}).get("notes", ()),
        *(["Dotted lines: a trigger fired."] if drawn and drawn["marks"] else []),
    ]
    own = None if complete else form(parameters, state["fields"], (BY_WAIT,), _by_wait(parameters))
    return section("Active sessions", "windows", " ".join(notes), own, shown.notes)


def _by_wait(parameters: Mapping[str, str]) -> tuple[str, str]:
    """Returns the address of the other form of the chart, and its name."""
    kept = {k: v for k, v in parameters.items() if k not in (BY_WAIT, SAVE)}
    if parameters.get(BY_WAIT) == "wait":
        return f"?{urlencode(kept)}", "CPU WAIT as one"
    return f"?{urlencode({**kept, BY_WAIT: 'wait'})}", "CPU WAIT by wait"
