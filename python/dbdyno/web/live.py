"""Shows a run or an observation in progress, and sends its events (docs/web.md)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from dbdyno.conduct import live as followed
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.present.document.page import Html, el, join
from dbdyno.store.listing import list_run
from dbdyno.store.overview import Overview
from dbdyno.web.app import Lab
from dbdyno.web.channel import Channel, Channels
from dbdyno.web.shell import SAVE, TIMELINE_SCRIPTS, TIMELINE_STYLES, View, answer
from dbdyno.web.start import stop_button, stopping
from dbdyno.web.time_travel import address as time_address

PLACE = "/live"
SPANS: Mapping[str, tuple[str, float | None]] = {
    "15min": ("last 15 minutes", 900.0),
    "1h": ("last hour", 3600.0),
    "all": ("all", None),
}
"""Times that the chart of an observation can show, by the parameter of the address."""


_STREAM = "text/event-stream"


def routes(lab: Lab) -> Sequence[BaseRoute]:
    channels = Channels()
    lab.closing.append(channels.close)

    def overview(request: Request) -> Response:
        running = followed.running(lab.store.root)
        if len(running) == 1:
            return RedirectResponse(f"{PLACE}/{running[0].run.id}", 303)
        return answer(
            request,
            View(
                _list(running),
                above=_links(running, startable=lab.starts is not None),
                styles=("lab.css", "live.css"),
                place=PLACE,
            ),
            lab.places,
        )

    def one(request: Request) -> Response:
        record = lab.store.open(request.path_params["run"])
        if followed.is_over(record):
            return RedirectResponse(f"/run/{record.id}", 303)
        channel = channels.of(record)
        channel.look()
        listed = list_run(record.path)
        view = _view(request, channel, stop_button(lab, listed), stopping(lab, listed))
        return answer(request, view, lab.places)

    async def events(request: Request) -> Response:
        if request.method == "HEAD":  # its answer would not end
            return Response(media_type=_STREAM)
        record = await to_thread.run_sync(lab.store.open, request.path_params["run"])
        channel = await to_thread.run_sync(channels.of, record)
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(channel.events(after), media_type=_STREAM, headers=headers)

    return [
        Route(PLACE, overview, methods=["GET"]),
        Route(f"{PLACE}/{{run}}", one, methods=["GET"]),
        Route(f"{PLACE}/{{run}}/events", events, methods=["GET"]),
    ]


_NONE = (
    "No run or observation is going on in this store.",
    "To start one, in a terminal: dbdyno observe --dsn ... for a server with its own load, or "
    "dbdyno run lio to measure one. It appears here at once, whoever started it.",
)


def _list(running: Sequence[Overview]) -> Document:
    if not running:
        return Document(
            "Live: nothing is running", [Paragraph(_NONE[1])], lead=[Paragraph(_NONE[0], lead=True)]
        )
    return Document(f"Live: {len(running)} runs", [])


def _links(running: Sequence[Overview], *, startable: bool) -> Html:
    if running:
        return el("ul", *map(_link, running), class_="live-runs")
    start = el("p", "Or ", el("a", "start one here", href="/start"), ".") if startable else None
    shown = el("a", "Snapshots", href="/snapshots")
    recorded = el("p", "What dbdyno snapshot --every records is no run: see ", shown, ".", class_="foot")
    return join(start, recorded)


def _link(one: Overview) -> Html:
    run, outline = one.run, one.outline
    what = ": ".join(filter(None, (str(run.document["name"]), outline.workload or "run")))
    where = " ".join(filter(None, (outline.server, f"({outline.target})" if outline.target else "")))
    since = f"since {run.started.astimezone():%Y-%m-%d %H:%M:%S}"
    about = el("span", ", ".join(filter(None, (where, since, run.id))), class_="foot")
    return el("li", el("a", what, href=f"{PLACE}/{run.id}"), " ", about)


def _view(request: Request, channel: Channel, stop: Html | None, stops: str) -> View:
    following = channel.following
    saved = SAVE in request.query_params
    span = request.query_params.get("last", "15min")
    span = span if span in SPANS else "15min"
    with channel.lock:
        shown, headline = following.shown(), following.headline()
        data: dict[str, Any] = {
            "kind": following.kind,
            "chart": following.chart(SPANS[span][1]),
            "last_s": SPANS[span][1],
        }
        at = channel.position
    run_id = following.record.id
    headline = stops or headline
    if not saved:
        data |= {"stopping": stops}
        data |= {"events": f"{PLACE}/{run_id}/events?after={at}", "time": time_address(run_id)}
    else:
        headline = f"As of {time.strftime('%Y-%m-%d %H:%M:%S %Z')}. {headline}"
    above = join(
        el("p", headline, id="live-headline", class_="lead"),
        el("p", id="live-status", class_="unseen", role="status"),
        el("p", id="live-state", class_="warning", hidden=True, role="alert"),
        None if saved else join(_tools(following.kind, span), stop),
        el("div", id="live-chart", class_="card"),
        el("p", el("a", "Open the selected span in time travel", href="#"), id="live-span", hidden=True),
        el("ul", id="live-notes", class_="foot", hidden=True),
    )
    scripts = (*TIMELINE_SCRIPTS, "blocks.js", "stop.js", "live.js")
    styles = ("lab.css", *TIMELINE_STYLES, "live.css", "start.css")
    return View(shown, above, scripts, styles, {"live": data}, PLACE)


def _tools(kind: str, span: str) -> Html:
    pause = el("button", "Pause", type="button", id="live-pause", hidden=True)
    if kind != "observation":
        return el("div", pause, class_="live-tools")
    spans = [
        el("li", el("a", name, href=f"?last={key}", aria_current="true" if key == span else None))
        for key, (name, _) in SPANS.items()
    ]
    return el("div", pause, el("nav", el("ul", *spans), aria_label="Time shown"), class_="live-tools")
