"""Time travel through the snapshots of days: the report of a span, or of it against another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.routing import BaseRoute

from dbdyno import conduct, present
from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import whole_second
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.present.document.page import Html, el
from dbdyno.store import SnapshotStore
from dbdyno.web.app import Lab, Page
from dbdyno.web.shell import SAVE, TIMELINE_SCRIPTS, TIMELINE_STYLES, View
from dbdyno.web.spans import Asked, asked, baseline, form, refusal

PLACE = "/snapshots"
SERVER, FIGURE = "server", "figure"
"""Parameters: the number of the server, 0 the newest; and what is drawn."""
_NONE = "There are no snapshots in this store."
_CURE = "take one now and then: dbdyno snapshot --every 10min"
_Pair = tuple[SnapshotInfo, SnapshotInfo]


class _Figure(NamedTuple):
    name: str
    unit: str
    colour: str


_FIGURES = {
    "db-time": _Figure("DB time, by the server's clock", "active sessions", "accent"),
    "transactions": _Figure("Transactions", "transactions/s", "series-1"),
}


def routes(lab: Lab) -> Sequence[BaseRoute]:
    store = SnapshotStore(lab.store.root)
    loads = _Loads(store)

    def view(request: Request) -> View:
        asked_for, servers = request.query_params, conduct.snapshot_series(store.list())
        doubts = [Paragraph(f"Left out: {why}.", "warning") for why in store.damaged.values()]
        if not servers:
            lead = [*doubts, Paragraph(_NONE, lead=True), Paragraph(f"What to do: {_CURE}.")]
            return View(Document("Snapshots", [], lead=lead), place=PLACE)
        number = _number(asked_for, len(servers))
        infos = servers[number]
        if len(infos) < 2:
            one = Paragraph("There is one snapshot of this server; what happened needs two.", lead=True)
            return View(
                Document("Snapshots", [], lead=[*doubts, one]), above=_servers(servers, number), place=PLACE
            )
        shown, spans, status = _shown(lab, store, infos, asked_for)
        chart: dict[str, Any] = {}
        try:
            chart = _chart(loads.of(infos), asked_for)
        except StoreError as error:
            doubts += refusal(error)
        return View(
            replace(shown, blocks=[*doubts, *shown.blocks]),
            above=_above(servers, number, spans, asked_for),
            scripts=(*TIMELINE_SCRIPTS, "snapshots.js"),
            styles=("lab.css", *TIMELINE_STYLES, "time.css"),
            data={"time-chart": chart, "time-state": {"span": spans[0], "against": spans[1]}},
            place=PLACE,
            status=status,
        )

    return [Page(PLACE, view, lab)]


class _Loads:
    """The loads over time that were drawn last, by the newest snapshot and their number."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store, self._known = store, OrderedDict[tuple[str, int], list[Any]]()

    def of(self, infos: Sequence[SnapshotInfo]) -> list[Any]:
        key = infos[-1].id, len(infos)
        if key not in self._known:
            self._known[key] = conduct.load_over_time(self._store, infos)
            while len(self._known) > 4:
                self._known.popitem(last=False)
        return self._known[key]


_Spans = tuple[list[float] | None, list[float] | None]


def _shown(
    lab: Lab, store: SnapshotStore, infos: Sequence[SnapshotInfo], parameters: Mapping[str, str]
) -> tuple[Document, _Spans, int]:
    """Returns the document of the span, both spans in seconds since 1970, and the status of the answer."""
    try:
        span = _pair(infos, asked(parameters))
        before = baseline(parameters, *_seconds(span))
        against = None if before is None else _pair(infos, before)
        if against is None:
            shown = conduct.interval_page(lab.store.root, store, *span)
        else:
            names = [f"{a.id}..{b.id}" for a, b in (against, span)]
            shown = present.intervals(conduct.compared_intervals(store, names[0], names[1]))
    except (UsageError, StoreError) as error:
        status = 400 if isinstance(error, UsageError) else 409
        return Document("Snapshots", [], lead=refusal(error)), (None, None), status
    chosen = any(asked(parameters))
    return shown, (_seconds(span) if chosen else None, None if against is None else _seconds(against)), 200


def _seconds(pair: _Pair) -> list[float]:
    return [info.server_time.timestamp() for info in pair]


def _pair(infos: Sequence[SnapshotInfo], span: Asked) -> _Pair:
    """Returns the snapshots nearest to both ends."""
    times = [info.server_time.timestamp() for info in infos]
    start = times[0] if span.start_s is None else span.start_s
    end = times[-1] if span.end_s is None else span.end_s
    if end <= start:
        raise UsageError("the span ends before it begins", "from an earlier time to a later one")
    first, last = (min(range(len(times)), key=lambda n: abs(times[n] - t)) for t in (start, end))
    outside = end < times[0] or start > times[-1]
    if outside or first == last:
        known = " to ".join(
            f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%SZ}" for t in (times[0], times[-1])
        )
        raise UsageError(
            "no two snapshots are near that span", f"choose a longer time, or one between snapshots: {known}"
        )
    return infos[first], infos[last]


def _number(parameters: Mapping[str, str], count: int) -> int:
    text = parameters.get(SERVER, "0")
    if not text.isdecimal() or int(text) >= count:
        raise UsageError(f"no such server: server={text[:20]}", f"0 to {count - 1}")
    return int(text)


def _chart(points: Sequence[Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    name = parameters.get(FIGURE, "db-time")
    if name not in _FIGURES:
        raise UsageError(f"no such figure: figure={name[:20]}", " or ".join(_FIGURES))
    figure = _FIGURES[name]
    return present.load_over_time(points, figure.name, figure.colour, name == "transactions") | {
        "unit": figure.unit
    }


def _above(
    servers: Sequence[Sequence[SnapshotInfo]], number: int, spans: _Spans, parameters: Mapping[str, str]
) -> Html:
    ends = [None if s is None else (s[0], s[1]) for s in spans]
    other = "db-time" if parameters.get(FIGURE) == "transactions" else "transactions"
    kept = {k: v for k, v in parameters.items() if k not in (FIGURE, SAVE)}
    link = f"?{urlencode({**kept, FIGURE: other})}", _FIGURES[other].name
    tools = [("time-in", "Zoom to the span"), ("time-out", "Whole time"), ("time-all", "All snapshots"),
             ("time-other", "Drag A, the span to compare with")]  # fmt: skip
    buttons = [el("button", text, type="button", id=id) for id, text in tools]
    fields = form(parameters, (ends[0], ends[1]), _clock, (SERVER, FIGURE), link)
    return el(
        "section",
        el("h2", "Load between snapshots", id="over-time-title"),
        el("div", el("div", id="time-plot"), el("div", *buttons, class_="tools", hidden=True), class_="card"),
        el(
            "p",
            "A span goes from the snapshot nearest to its begin to the one nearest to its end.",
            class_="foot",
        ),
        None if SAVE in parameters else fields,
        _servers(servers, number),
        id="over-time",
        aria_labelledby="over-time-title",
    )


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(whole_second(seconds)).astimezone():%Y-%m-%dT%H:%M:%S}"


def _servers(servers: Sequence[Sequence[SnapshotInfo]], number: int) -> Html | None:
    """Returns links to the other servers of the store, or other sets of databases of one."""
    if len(servers) < 2:
        return None
    links = [
        el(
            "li",
            el(
                "a",
                _named(s[-1], len(s)),
                href=f"?{SERVER}={n}",
                aria_current="page" if n == number else None,
            ),
        )
        for n, s in enumerate(servers)
    ]
    return el("nav", el("ul", *links, class_="answers"), aria_label="Servers")


def _named(info: SnapshotInfo, count: int) -> str:
    names = ", ".join(info.databases[:3]) + (", ..." if len(info.databases) > 3 else "")
    return f"{one_line(info.address)}, {one_line(names)}: {count} snapshots"
