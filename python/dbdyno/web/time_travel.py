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
from dbdyno.present.document.page import Html, el
from dbdyno.present.media.html import fragment
from dbdyno.web.app import Lab, Page
from dbdyno.web.shell import SAVE, TIMELINE_SCRIPTS, TIMELINE_STYLES, View
from dbdyno.web.spans import FROM, TO, asked, baseline, form, refusal, written

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
        above = _above(time, shown, drawn, request.query_params, complete)
        return View(
            Document(present.span_title(time.whole_results), [*doubt, *shown.blocks]),
            above=above,
            scripts=(*TIMELINE_SCRIPTS, "time.js"),
            styles=("lab.css", *TIMELINE_STYLES, "time.css"),
            data={
                "time-chart": drawn or {},
                "time-state": shown.state(time) | {"late": present.LATE_OF_SPAN},
            },
            status=shown.status,
        )

    def span(request: Request) -> Response:
        time = recent.of(lab.store.open(request.path_params["run"]))
        if part := request.query_params.get(PART):
            chosen = time.chosen(*asked(request.query_params))
            return JSONResponse({"html": fragment(present.late_of_span(time.results(chosen), part))})
        shown = _Shown.of(time, request.query_params)
        return JSONResponse(shown.state(time) | {"html": fragment(shown.blocks)}, shown.status)

    return [Page("/time/{run}", view, lab), Route("/time/{run}/span", span, methods=["GET"])]


class _Shown(NamedTuple):
    """The span that an address asks for, its baseline, and their blocks."""

    blocks: list[Block]
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
            return cls([*refusal(error)], status=400)
        results = time.results(chosen)
        lead: list[Block] = [Paragraph(f"{present.span_extent(results)}.", lead=True)]
        try:
            own = present.span_sections(results, complete=complete)
        except StoreError as error:
            return cls([*lead, *refusal(error)], chosen, status=409)
        try:
            before = baseline(parameters, chosen.start_s, chosen.end_s)
            against = None if before is None else time.chosen(*before)
        except UsageError as error:
            return cls([*lead, *refusal(error), *own], chosen, status=400)
        if against is None:
            return cls([*lead, *own], chosen)
        return cls([*_compared(time, against, chosen), *own], chosen, against)

    def state(self, time: conduct.ObservedTime) -> dict[str, Any]:
        """Returns the ends of both spans in seconds since 1970, as scripts read them."""
        whole = self.span is None or self.span.span == time.whole.span
        return {
            "span": None if whole else _ends(self.span),
            "against": _ends(self.baseline),
        }


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
    time: conduct.ObservedTime,
    shown: _Shown,
    drawn: Mapping[str, Any] | None,
    parameters: Mapping[str, str],
    complete: bool,
) -> Html:
    notes = [
        *(drawn or {}).get("notes", ()),
        *(["Dotted lines: a trigger fired."] if drawn and drawn["marks"] else []),
    ]
    return el(
        "section",
        el("h2", "Active sessions", id="over-time-title"),
        el("div", el("div", id="time-plot"), _tools(complete), class_="card"),
        el(
            "p",
            " ".join(["A span takes whole windows: those whose middle lies in it.", *notes]),
            class_="foot",
        ),
        None if complete else _form(time, shown, parameters),
        el("p", role="status", id="time-status", class_="muted"),
        id="over-time",
        aria_labelledby="over-time-title",
    )


def _tools(complete: bool) -> Html:
    names = [("time-in", "Zoom to the span"), ("time-out", "Whole time")]
    names += (
        [] if complete else [("time-all", "All windows"), ("time-other", "Drag A, the span to compare with")]
    )
    buttons = [el("button", text, type="button", id=id, aria_pressed="false" if id == "time-other" else None)
               for id, text in names]  # fmt: skip
    return el("div", *buttons, class_="tools", hidden=True)


def _form(time: conduct.ObservedTime, shown: _Shown, parameters: Mapping[str, str]) -> Html:
    def clock(seconds: float) -> str:
        return present.span_clock(time.whole_results, seconds)

    spans = [None if c is None else (c.start_s, c.end_s) for c in (shown.span, shown.baseline)]
    return form(parameters, (spans[0], spans[1]), clock, (BY_WAIT,), _by_wait(parameters))


def _by_wait(parameters: Mapping[str, str]) -> tuple[str, str]:
    """Returns the address of the other form of the chart, and its name."""
    kept = {k: v for k, v in parameters.items() if k not in (BY_WAIT, SAVE)}
    if parameters.get(BY_WAIT) == "wait":
        return f"?{urlencode(kept)}", "CPU WAIT as one"
    return f"?{urlencode({**kept, BY_WAIT: 'wait'})}", "CPU WAIT by wait"
