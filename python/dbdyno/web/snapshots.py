"""Time travel through the snapshots of days: the report of a span, or of it against another."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.routing import BaseRoute

from dbdyno import conduct, present
from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import StoreError, UsageError
from dbdyno.model.text.visible import one_line, with_stop
from dbdyno.model.units import whole_second
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.present.document.page import Html, el
from dbdyno.store import SnapshotStore
from dbdyno.web.app import Lab, Page
from dbdyno.web.shell import SAVE, TIMELINE_SCRIPTS, TIMELINE_STYLES, View
from dbdyno.web.spans import Asked, Ends, asked, baseline, fields, form, overlap, refusal, section

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
        doubts = [Paragraph(f"Left out: {with_stop(why)}", "warning") for why in store.damaged.values()]
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
        shown = _Shown.of(lab, store, infos, asked_for)
        state = shown.state(asked_for)
        chart: dict[str, Any] = {}
        try:
            chart = _chart(loads.of(infos), asked_for)
        except StoreError as error:
            doubts += refusal(error)
        return View(
            replace(shown.document, blocks=[*doubts, *shown.document.blocks]),
            above=_above(servers, number, shown, state, asked_for),
            scripts=(*TIMELINE_SCRIPTS, "time.js"),
            styles=("lab.css", *TIMELINE_STYLES, "time.css"),
            data={"time-chart": chart, "time-state": state},
            place=PLACE,
            status=shown.status,
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


class _Shown(NamedTuple):
    """The span that an address asks for, its baseline, their report, and ``notes`` of what is wrong."""

    document: Document
    notes: list[Paragraph]
    span: Ends | None = None
    baseline: Ends | None = None
    status: int = 200

    @classmethod
    def of(
        cls, lab: Lab, store: SnapshotStore, infos: Sequence[SnapshotInfo], parameters: Mapping[str, str]
    ) -> _Shown:
        nothing = Document("Snapshots", [])
        try:
            chosen = _pair(infos, asked(parameters))
        except UsageError as error:
            return cls(nothing, refusal(error), status=400)
        shown = cls(nothing, [], _ends(chosen) if any(asked(parameters)) else None)
        try:
            before = baseline(parameters, *_ends(chosen))
            if before is not None:
                return shown._compared(store, _pair(infos, before), chosen)
        except (UsageError, StoreError) as error:
            shown = shown._replace(notes=refusal(error), status=_status(error))
        try:
            return shown._replace(document=conduct.interval_page(lab.store.root, store, *chosen))
        except (UsageError, StoreError) as error:
            return shown._replace(notes=refusal(error), status=_status(error))

    def _compared(self, store: SnapshotStore, a: _Pair, b: _Pair) -> _Shown:
        first, second = (f"{begin.id}..{end.id}" for begin, end in (a, b))
        page = present.intervals(conduct.compared_intervals(store, first, second))
        return self._replace(document=page, notes=overlap(_ends(a), _ends(b)), baseline=_ends(a))

    def state(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Returns the ends of both spans in seconds since 1970, as scripts read them, and what the fields
        have."""
        values = fields(parameters, (self.span, self.baseline), _clock)
        return {"span": self.span, "against": self.baseline, "fields": values}


def _status(error: UsageError | StoreError) -> int:
    return 400 if isinstance(error, UsageError) else 409


def _ends(pair: _Pair) -> Ends:
    first, last = (info.server_time.timestamp() for info in pair)
    return first, last


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
        raise UsageError(
            f"no two snapshots are near {_words(start, end)}",
            f"choose a longer time, or one between snapshots: {_words(times[0], times[-1])}",
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
    servers: Sequence[Sequence[SnapshotInfo]],
    number: int,
    shown: _Shown,
    state: Mapping[str, Any],
    parameters: Mapping[str, str],
) -> Html:
    other = "db-time" if parameters.get(FIGURE) == "transactions" else "transactions"
    kept = {k: v for k, v in parameters.items() if k not in (FIGURE, SAVE)}
    link = f"?{urlencode({**kept, FIGURE: other})}", _FIGURES[other].name
    own = None if SAVE in parameters else form(parameters, state["fields"], (SERVER, FIGURE), link)
    foot = "A span goes from the snapshot nearest to its begin to the one nearest to its end."
    title = "Load between snapshots"
    return section(title, "snapshots", foot, own, shown.notes, _servers(servers, number))


def _clock(seconds: float) -> str:
    return f"{_local(seconds):%Y-%m-%dT%H:%M:%S}"


def _words(start_s: float, end_s: float) -> str:
    return f"{_local(start_s):%Y-%m-%d %H:%M:%S} to {_local(end_s):%Y-%m-%d %H:%M:%S %Z}"


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(whole_second(seconds)).astimezone()


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
