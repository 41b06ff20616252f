"""Markup of the forms, and of what was started."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TypedDict
from urllib.parse import urlencode

from dbdyno.model.errors import DbdynoError
from dbdyno.model.text.visible import with_stop
from dbdyno.present.document.document import Document
from dbdyno.present.document.page import Html, el, join
from dbdyno.present.media import html
from dbdyno.store.listing import Listed
from dbdyno.web.forms import VALUE, Field, Form, Given, Group, Offer, WrongField
from dbdyno.web.shell import SAVE
from dbdyno.web.started import PRESSES, Start

PATH = "/start"
ACTIONS = ("plan", "run", "stop")
MOST_LISTED = 20
_MOST_ADDRESS = 6_000  # longer ones are refused on the way
_FORM = "options"  # id of the form
Wrong = Mapping[str, DbdynoError]
"""Errors by the name of their field."""
_STOPS = (
    ("Stop", "ends it after the calls in progress, as Ctrl-C does; what was measured is kept"),
    ("Stop at once", "does not wait for calls, as a second Ctrl-C; the measurement in progress is lost"),
)


class Link(TypedDict):
    text: str
    path: str


class State(TypedDict):
    """The state of a start. ``stops``: presses of Stop; ``links``: to its runs."""

    alive: bool
    words: str
    stops: int
    links: list[Link]


def live_path(run: str) -> str:
    return f"/live/{run}"


def state_of(start: Start, runs: Sequence[Listed]) -> State:
    alive = start.is_alive
    links = [_link(run, alive=alive) for run in runs]
    return {
        "alive": alive,
        "words": _state_words(start, runs, alive=alive),
        "stops": start.stops,
        "links": links,
    }


def _link(run: Listed, *, alive: bool) -> Link:
    name = str(run.document["name"]) or run.id
    if alive and run.status == "running":
        return {"text": f"Watch {name}", "path": live_path(run.id)}
    return {"text": f"Results of {name}", "path": f"/run/{run.id}"}


def _state_words(start: Start, runs: Sequence[Listed], *, alive: bool) -> str:
    if alive and start.stops:
        return stop_words(start.stops)
    if alive:
        return "It measures." if runs else "It has started, and does not measure yet."
    if not runs:
        return "It ended before it measured anything. The reason is in what it printed."
    if all(r.status == "complete" for r in runs):
        return "It is complete."
    reason = next(r.reason for r in runs if r.status != "complete") or "no reason was recorded"
    return f"It was cut short: {with_stop(reason)}"


def stop_words(stops: int) -> str:
    """Returns what happens after so many presses."""
    return (
        "It measures.",
        "It stops after the calls in progress; what was measured is kept.",
        "It stops at once.",
    )[min(stops, PRESSES)]


# What was started.


def started(start: Start, state: State, output: str, *, saved: bool) -> Html:
    """Returns the part of the page that start.js keeps up to date; in a saved page without links and
    buttons."""
    links = el("ul", *(el("li", el("a", k["text"], href=k["path"])) for k in state["links"]), id="links")
    stop = stop_form(start.stops, hidden=not state["alive"], start=start.id)
    shown = el("pre", output, id="output", tabindex=0, aria_label="what it printed last")
    return el(
        "section",
        None if saved else el("div", links, stop, class_="doing"),
        el("h2", "What it printed"),
        shown,
        None if saved else el("p", el("a", "Start another", href=PATH)),
        aria_label="Progress",
    )


def stop_texts(stops: int) -> tuple[str, str]:
    """Returns the name of the button after so many presses, and the note beside it."""
    name, does = _STOPS[min(stops, PRESSES - 1)]
    return name, stop_words(stops) if stops >= PRESSES else f"{name} {does}."


def stop_form(stops: int, *, hidden: bool = False, **whom: str) -> Html:
    """Returns the button that stops a start or a run: ``start=ID`` or ``run=ID``."""
    name, text = stop_texts(stops)
    kept = [_hidden(name, value) for name, value in {**whom, "press": str(stops + 1)}.items()]
    button = el("button", name, type="submit", disabled=stops >= PRESSES)
    note = el("span", text, class_="foot")
    return el(
        "form",
        *kept,
        button,
        note,
        method="post",
        action=f"{PATH}/stop",
        id="stop",
        class_="stop",
        hidden=hidden,
    )


def listed(starts: Sequence[tuple[Start, State]], *, saved: bool = False) -> Html | None:
    """Returns the table of what was started; in a saved page without links."""
    if not starts:
        return None
    heads = ("started (UTC)", "command", "state", *([] if saved else ["page"]))
    rows = [
        el(
            "tr",
            el("th", f"{s.began:%Y-%m-%d %H:%M:%S}", scope="row", class_="num"),
            el(
                "td",
                s.command if saved else el("a", s.command, href=f"{PATH}/run/{s.id}"),
                class_="mono long",
            ),
            el("td", state["words"]),
            None if saved else el("td", *(el("a", k["text"], href=k["path"]) for k in state["links"])),
        )
        for s, state in starts
    ]
    table = el(
        "table",
        el("caption", el("span", "Started from the browser")),
        el("thead", el("tr", *(el("th", head, scope="col") for head in heads))),
        el("tbody", *rows),
    )
    return el("div", table, class_="scroll", tabindex=0, role="region", aria_label="Started from the browser")


# The form.


def form(
    shown: Form,
    names: Sequence[str],
    given: Given,
    planned: Document | None,
    error: DbdynoError | None,
    starts: Sequence[tuple[Start, State]],
) -> Html:
    """Returns all of the page above the tables of workloads and recipes."""
    wrong = wrong_fields(error)
    hidden = [_hidden("command", shown.name), _hidden("key", secrets.token_hex(8))]
    boxes = [_group(group, given, wrong) for group in shown.groups]
    common, rest = [b for b, _ in boxes if b], [r for _, r in boxes if r]
    answer = planned is not None or error is not None
    return join(
        None if answer else listed(starts),
        _tabs(names, shown.name),
        _error(shown, error),
        _plan(planned, hidden, given),
        el(
            "form",
            *(*hidden, *common, _buttons(planned is not None), *rest, _left_out(shown)),
            method="post",
            id=_FORM,
            data_address=_address(shown, given) if answer else None,
        ),
        listed(starts) if answer else None,
    )


def _tabs(names: Sequence[str], chosen: str) -> Html:
    links = [
        el(
            "li",
            el("a", name, href=f"{PATH}?command={name}", aria_current="page" if name == chosen else None),
        )
        for name in names
    ]
    return el("nav", el("ul", *links, class_="tabs"), aria_label="Commands")


def _buttons(beside_plan: bool) -> Html:
    """Returns the buttons of the fields. Beside a plan the second one is not its Start, so it is named
    otherwise."""
    start = "Start what is filled in" if beside_plan else "Start"
    return el(
        "p",
        el("button", "Show the plan", type="submit", formaction=f"{PATH}/plan"),
        el("button", start, type="submit", formaction=f"{PATH}/run"),
        class_="buttons",
    )


def in_address(shown: Form, given: Given) -> Given:
    """Returns the values that an address of the form may have."""
    fields = {f.name for f in shown.fields() if f.in_address}
    return {k: v for k, v in given.items() if v and k.removesuffix(VALUE) in fields}


def _address(shown: Form, given: Given) -> str:
    """Returns the address of the form with these values."""
    whole = f"{PATH}?{urlencode({'command': shown.name, **in_address(shown, given)})}"
    return whole if len(whole) <= _MOST_ADDRESS else f"{PATH}?command={shown.name}"


def wrong_fields(error: DbdynoError | None) -> Wrong:
    """Returns all errors that belong to a field, by its name."""
    return {e.field: e for e in (error, *error.others)} if isinstance(error, WrongField) else {}


def _error(shown: Form, error: DbdynoError | None) -> Html | None:
    if error is None:
        return None
    wrong = wrong_fields(error) or {"": error}
    places = [f.name for f in shown.fields() if f.name in wrong]
    elsewhere = [name for name in wrong if name not in places]
    lines = [
        el("p", el("a", message, href=f"#{_id(name)}") if name in places else message, cure)
        for name in (*elsewhere, *places)
        for e in [wrong[name]]
        for message, cure in [(with_stop(e.message), f" What to do: {with_stop(e.cure)}" if e.cure else None)]
    ]
    return el("div", *lines, class_="warning", role="alert", id="error", tabindex=-1)


def _plan(planned: Document | None, sent: Sequence[Html], given: Given) -> Html | None:
    """Returns the plan with a form of its own, whose buttons mean what was planned, whatever has been changed
    below meanwhile."""
    if planned is None:
        return None
    values = [_hidden(name, value) for name, value in given.items()]
    keep = el("button", "Save the plan", type="submit", formaction=f"{PATH}/plan?{SAVE}=1")
    start = el("button", "Start this plan", type="submit", formaction=f"{PATH}/run")
    changed = "Fields below have changed since. Show the plan again to start it."
    return el(
        "section",
        el("h2", planned.title, id="plan-title", tabindex=-1),
        html.parts([*planned.lead, *planned.blocks], 3),
        el("p", changed, id="outdated", class_="warning", role="status", hidden=True),
        el("form", *sent, *values, keep, start, class_="buttons", method="post"),
        id="plan",
        aria_labelledby="plan-title",
        class_="card",
    )


def _hidden(name: str, value: str) -> Html:
    return el("input", type="hidden", name=name, value=value)


def _left_out(shown: Form) -> Html:
    """Returns the list of the options that are not here, and why."""
    reasons: dict[str, list[str]] = {}
    for flag, reason in shown.left_out.items():
        reasons.setdefault(reason, []).append(flag)
    lines = [el("li", el("code", ", ".join(flags)), f": {reason}") for reason, flags in reasons.items()]
    further = None
    if shown.further:
        why = ": commands, files, SQL and hosts of your own need a server with --allow-commands"
        further = el("li", el("code", ", ".join(shown.further)), why)
    return el(
        "details", el("summary", "Options that are on the command line alone"), el("ul", further, *lines)
    )


def _group(group: Group, given: Given, wrong: Wrong) -> tuple[Html | None, Html | None]:
    """Returns the common fields of a group, and the others, folded unless one of them is filled in."""
    common = [f for f in group.fields if f.common]
    rest = [f for f in group.fields if not f.common]
    open_ = any(f.name in given or f"{f.name}{VALUE}" in given or f.name in wrong for f in rest)
    boxes = [[_row(f, given, wrong.get(f.name)) for f in some] for some in (common, rest)]
    first = el("fieldset", el("legend", group.title), *boxes[0]) if common else None
    title = f"{group.title}: {len(rest)} more" if common else f"{group.title}: {len(rest)}"
    folded = el("details", el("summary", title), *boxes[1], open=open_, class_="more") if rest else None
    return first, folded


def _id(name: str) -> str:
    return f"field-{name}"


def _row(field: Field, given: Given, error: DbdynoError | None) -> Html:
    ids = [f"{_id(field.name)}-help", *([f"{_id(field.name)}-error"] if error else [])]
    named = {
        "id": _id(field.name),
        "name": field.name,
        "aria_describedby": " ".join(ids),
        "aria_invalid": "true" if error else None,
    }
    default = f" Default: {field.default}." if field.default else ""
    cure = f" What to do: {with_stop(error.cure)}" if error is not None and error.cure else ""
    return el(
        "div",
        el("label", field.flag, for_=_id(field.name)),
        el("div", _control(field, given, named)),
        el("p", f"{field.help}{default}", id=ids[0], class_="foot"),
        el("p", f"{with_stop(error.message)}{cure}", id=ids[1], class_="wrong") if error else None,
        class_="field",
    )


def _control(field: Field, given: Given, named: dict[str, str | None]) -> Html:
    value, hint = given.get(field.name, ""), field.metavar
    match field.kind:
        case "switch":
            on = bool(value) or field.fixed
            return el("input", type="checkbox", value="on", checked=on, disabled=field.fixed, **named)
        case "optional":
            box = el("input", type="checkbox", value="on", checked=bool(value), **named)
            return join(box, _number(field, given))
        case "choice":
            first = el("option", f"({field.default or 'none'})", value="")
            offers = [
                el("option", _words(o), value=o.value, selected=o.value == value) for o in field.choices
            ]
            return el("select", first, *offers, **named)
        case "lines":
            hint = f"{hint}, one a line" if hint else "one a line"
            rows = min(6, 1 + value.count("\n"))
            return el("textarea", value, rows=rows, placeholder=hint, spellcheck="false", **named)
        case _:
            mode = "decimal" if field.kind == "number" else None
            typed = {"type": "text", "inputmode": mode, "autocomplete": "off", "spellcheck": "false"}
            return el("input", value=value, placeholder=hint, **typed, **named)


def _number(field: Field, given: Given) -> Html:
    """Returns the control of the value that may be left out."""
    name = f"{field.name}{VALUE}"
    label = f"{field.flag}: {field.metavar}"
    return el("input", type="text", size=6, value=given.get(name, ""), name=name, aria_label=label,
              placeholder=field.metavar)  # fmt: skip


def _words(offer: Offer) -> str:
    """Returns ``lio``, ``demo: a question``, or for a flag just the words."""
    if offer.value.startswith("--"):
        return offer.words
    return f"{offer.value}: {offer.words}" if offer.words else offer.value
