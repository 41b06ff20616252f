"""Starts runs and observations from forms, shows what became of them, and stops them.

Only if the server was started with ``--allow-start``. Showing a page changes nothing: a plan, a start and a
stop are each a POST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from dbdyno.model.errors import DbdynoError, NoSuchRun
from dbdyno.present.document.document import Document, Paragraph
from dbdyno.present.document.page import Html
from dbdyno.store.listing import RUN_ID, Listed, list_run
from dbdyno.store.overview import find_run
from dbdyno.web import start_markup as markup
from dbdyno.web.answers import body_of, json_answer, wants_json
from dbdyno.web.app import Lab, Page, Viewing
from dbdyno.web.forms import CommandLine, Form, Given, NotAllowed, WrongField
from dbdyno.web.shell import SAVE, View, answer
from dbdyno.web.start_markup import PATH as PATH
from dbdyno.web.started import PRESSES, Ended, Start, Starts

_CLOSED = "Nothing can be started here: the server was started without --allow-start."
_OPEN = "dbdyno web --allow-start; with --allow-commands also commands, scripts and settings"
_MOST_FIELDS = 500
_STYLES = ("lab.css", "start.css")
_WITHOUT = "without"
_OWN = ("command", "key", _WITHOUT)
"""Names of what a form sends beside its fields, and of what an address lost that may have been a secret."""
_NOT_SHOWN = (
    "The connection string of that address is not shown: it may hold a password. What to do: type it here "
    "without the password, and keep that in a file that only you can read."
)
Doing = Callable[[Request, Given], Response]


class FormAction(Route):
    """A route for a POST, whose fields are read first; a GET leads to the form."""

    def __init__(self, path: str, doing: Doing) -> None:
        async def endpoint(request: Request) -> Response:
            if request.method != "POST":
                return RedirectResponse(f"{PATH}?{request.url.query}", 303)
            return await run_in_threadpool(doing, request, _given(await body_of(request)))

        super().__init__(path, endpoint, methods=["GET", "POST"])


def _given(body: bytes) -> Given:
    """Returns the fields of a form that were filled in, the last of several with one name. Raises
    :class:`WrongField`."""
    try:
        pairs = parse_qsl(body.decode(errors="replace"), max_num_fields=_MOST_FIELDS, errors="replace")
    except ValueError:
        raise WrongField("", "too many fields", "send the form of the page") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs if value}


class _Room:
    """The pages, for a server that may start."""

    def __init__(self, lab: Lab, commands: CommandLine, starts: Starts) -> None:
        self._lab, self._commands, self._starts = lab, commands, starts

    def form(self, request: Request) -> View:
        asked = dict(request.query_params)
        if asked.pop(SAVE, None) is not None:
            return self._saved(self._named(asked))
        form = self._named(asked)
        return self._form(form, markup.in_address(form, asked))

    def plan(self, request: Request, given: Given) -> Response:
        """Shows the plan above the form, or the error at its field."""
        form, values = self._named(given), _values(given)
        try:
            planned = self._commands.plan(form.name, values)
            if SAVE in request.query_params:
                return answer(request, View(planned), ())
            view = self._form(form, values, planned=planned)
        except DbdynoError as e:
            view = self._form(form, values, error=e)
        return answer(request, view, self._lab.places)

    def run(self, request: Request, given: Given) -> Response:
        """Starts a process once its plan is sound, and leads to its page."""
        form, values = self._named(given), _values(given)
        try:
            self._commands.plan(form.name, values)
            start = self._starts.begin(self._commands.words(form.name, values), given.get("key", ""))
        except DbdynoError as e:
            return answer(request, self._form(form, values, error=e), self._lab.places)
        return RedirectResponse(f"{PATH}/run/{start.id}?follow=1", 303)

    def stop(self, request: Request, given: Given) -> Response:
        """Sends Ctrl-C to a start, or to a run of this store. One that has ended meanwhile is no error: its
        page says so."""
        press = int(given["press"]) if given.get("press", "") in ("1", "2") else 1
        send: Callable[[], int]
        if "start" in given:
            start = self._starts.find(given["start"])
            page, send = f"{PATH}/run/{start.id}", lambda: self._starts.stop(start, press).stops
        else:
            if RUN_ID.fullmatch(run := given.get("run", "")) is None:  # not a part of an id, nor a name
                raise NoSuchRun(f"no run {run[:60]!r}", "/ lists the runs")
            listed = list_run(find_run(self._lab.store.root, run))
            page, send = markup.live_path(listed.id), lambda: self._starts.stop_run(listed, press)
        try:
            stops = send()
        except Ended:
            stops = None
        if not wants_json(request):
            return RedirectResponse(page, 303)
        if stops is None:
            return json_answer({"stops": None, "words": "It has ended already."})
        name, note = markup.stop_texts(stops)
        return json_answer(
            {"stops": stops, "words": markup.stop_words(stops), "name": name, "note": note}
            | {"more": stops < PRESSES}
        )

    def started(self, request: Request) -> View:
        start = self._starts.find(request.path_params["start"])
        state = self._state(start)
        data = {"start": {"id": start.id, "follow": "follow" in request.query_params}}
        shown = Document(start.command[:120], [], lead=[Paragraph(state["words"], lead=True)])
        saved = SAVE in request.query_params
        above = markup.started(start, state, self._starts.output(start), saved=saved)
        return View(shown, above, ("stop.js", "start.js"), _STYLES, data, PATH)

    def state(self, request: Request) -> Response:
        start = self._starts.find(request.query_params.get("start", ""))
        return json_answer(self._state(start) | {"output": self._starts.output(start)})

    def _state(self, start: Start) -> markup.State:
        return markup.state_of(start, self._starts.runs_of(start))

    def _named(self, given: Given) -> Form:
        name = given.get("command", self._commands.names[0])
        if name not in self._commands.names:
            raise WrongField("command", f"no form {name[:40]!r}", f"one of {', '.join(self._commands.names)}")
        return self._commands.form(name)

    def _saved(self, form: Form) -> View:
        """Returns what can be read without the server: what was started, and what there is to choose."""
        lead = [Paragraph(form.help), Paragraph("The form itself is a page of the server: dbdyno web.")]
        shown = Document(f"Start: {form.name}", form.about, lead=lead)
        return View(shown, markup.listed(self._listed(), saved=True), (), _STYLES)

    def _listed(self) -> Sequence[tuple[Start, markup.State]]:
        return [(s, self._state(s)) for s in self._starts.newest()[: markup.MOST_LISTED]]

    def _form(
        self, form: Form, given: Given, *, planned: Document | None = None, error: DbdynoError | None = None
    ) -> View:
        if "dsn" in markup.wrong_fields(error):
            given = {k: v for k, v in given.items() if k != "dsn"}  # it may hold a password
        above = markup.form(form, self._commands.names, given, planned, error, self._listed())
        lead = [Paragraph(form.help)]
        return View(
            Document(f"Start: {form.name}", form.about, lead=lead),
            above,
            ("form.js",),
            _STYLES,
            place=PATH,
            status=400 if error else 200,
        )


def _values(given: Given) -> Given:
    return {name: value for name, value in given.items() if name not in _OWN}


def routes(lab: Lab) -> Sequence[BaseRoute]:
    if lab.commands is None or lab.starts is None:
        return [
            Page(PATH, _closed, lab),
            *(FormAction(f"{PATH}/{does}", _refused) for does in markup.ACTIONS),
        ]
    room = _Room(lab, lab.commands, lab.starts)
    return [
        Route(PATH, _form_page(lab, lab.commands, room.form), methods=["GET"]),
        FormAction(f"{PATH}/plan", room.plan),
        FormAction(f"{PATH}/run", room.run),
        FormAction(f"{PATH}/stop", room.stop),
        Route(f"{PATH}/state", room.state),
        Page(f"{PATH}/run/{{start}}", room.started, lab),
    ]


def _form_page(lab: Lab, commands: CommandLine, form: Viewing) -> Callable[[Request], Response]:
    """Returns the endpoint of the form. An address loses a connection string that must not be on a page."""

    def endpoint(request: Request) -> Response:
        asked = request.query_params
        if not all(_may_show(commands, dsn, asked.get("engine", "")) for dsn in asked.getlist("dsn")):
            kept = {k: v for k, v in asked.items() if k != "dsn"} | {_WITHOUT: "dsn"}
            return RedirectResponse(f"{PATH}?{urlencode(kept)}", 303)
        view = form(request)
        if _WITHOUT in asked:
            lead = [*view.shown.lead, Paragraph(_NOT_SHOWN, "warning")]
            view = view._replace(shown=replace(view.shown, lead=lead))
        return answer(request, view, lab.places)

    return endpoint


def _may_show(commands: CommandLine, dsn: str, engine: str) -> bool:
    try:
        commands.words(commands.names[0], {k: v for k, v in (("dsn", dsn), ("engine", engine)) if v})
    except DbdynoError:
        return False
    return True


def stop_button(lab: Lab, run: Listed) -> Html | None:
    """Returns the button that stops a run, for its live page; None if it has ended, or nothing may be stopped
    from the browser. It needs the style ``start.css``."""
    if lab.starts is None or run.status != "running":
        return None
    return markup.stop_form(lab.starts.stops_of(run), run=run.id)


def stopping(lab: Lab, run: Listed) -> str:
    """Returns what happens to a run since Stop was pressed; empty if it was not."""
    stops = 0 if lab.starts is None or run.status != "running" else lab.starts.stops_of(run)
    return markup.stop_words(stops) if stops else ""


def _closed(_request: Request) -> View:
    lead = [Paragraph(_CLOSED), Paragraph(f"What to do: {_OPEN}.")]
    return View(Document("Start", [], lead=lead), place=PATH)


def _refused(_request: Request, _given: Given) -> Response:
    raise NotAllowed(_CLOSED.removesuffix("."), _OPEN)
