"""The parts of the page that show one rung (or window) at a time; a plain select chooses which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dbdyno.model.results import Results
from dbdyno.present import figures, processes, profile, sources_used, strips, waits
from dbdyno.present.markup import Content, Html, el, join, table
from dbdyno.present.palette import var
from dbdyno.present.selection import Pick, Picks

_UNKNOWN = el("span", figures.UNKNOWN, class_="unknown")


def chosen(results: Results, picks: Picks, show: Callable[[Results, Pick], Html]) -> Html:
    """The select, and what ``show`` makes of every pick; all but the first are hidden."""
    shown = [
        el("div", show(results, p), class_="of", data_pick=p.key, hidden=i > 0)
        for i, p in enumerate(picks.shown)
    ]
    return join(select(results, picks), *shown)


def select(results: Results, picks: Picks) -> Html:
    """The page keeps all selects on the same choice."""
    options = [el("option", p.label, value=p.key, selected=i == 0) for i, p in enumerate(picks.shown)]
    name = "Window" if figures.is_observation(results) else "Rung"
    label = el("label", f"{name} ", el("select", *options, class_="pick"), class_="choose", hidden=True)
    return join(label if len(options) > 1 else None)


def strip(results: Results, picks: Picks) -> Html:
    """Where page.js draws the heat strip, and its legend."""
    parts = strips.parts(results)
    if not parts:
        return el(
            "p", "No heat strip: sessions were not sampled, or not together with their tasks.", class_="muted"
        )
    paint = strips.colours(results, parts)
    keys = [_key(strips.label(results, p), paint[p]) for p in parts]
    head = el("div", el("h3", "Each session over time"), class_="head")
    words = (
        "A row is a session, its height is all its time: CPU at the bottom, CPU WAIT on it, then sleep by "
        f"wait class, the client on top. {sources_used.caption(results)}"
    )
    return el(
        "figure",
        head,
        select(results, picks),
        el("p", picks.note, class_="foot") if picks.note else None,
        el("div", id="strip", class_="strip"),
        el("ul", *keys, class_="legend"),
        el("figcaption", words),
        class_="card strips",
    )


def strip_data(results: Results, picks: Picks) -> dict[str, Any]:
    """What page.js draws: the parts, and each pick's strip."""
    parts = strips.parts(results)
    paint = strips.colours(results, parts)
    return {
        "parts": [{"name": strips.label(results, p), "colour": paint[p]} for p in parts],
        "of": {p.key: strips.strip(results, p.cell, parts) for p in picks.shown} if parts else {},
    }


def events(results: Results, pick: Pick) -> Html:
    """Every state and wait event with its CPU, sleep and run queue."""
    found = waits.waits(results, pick)
    if not found.rows:
        return el("p", "No session was sampled or traced here.", class_="muted")
    heads = ["state", "wait event", *(f"{h}, s/s" for h in waits.HEADS), "waits/s", "samples", "witness"]
    rows: list[list[Content]] = [
        [w.state, w.event, *(_figure(*f) for f in w.figures), w.waits, w.samples, w.source]
        for w in found.rows
    ]
    if found.total:
        rows.append(["all", "", *(_figure(t, "") for t in found.total), "", "", ""])
    caption = (
        f"Time {pick.at}{pick.which}: seconds per second under each label, asleep and in the run queue "
        f"apart. {sources_used.caption(results, pick.cell)}"
    )
    left = f"{found.left_out} smaller rows are left out; the export holds them." if found.left_out else ""
    numeric = [False, False, True, True, True, True, True, False]
    return join(table(caption, heads, rows, numeric, class_="named"), *_feet([*found.notes, left]))


def microstates(results: Results, pick: Pick) -> Html:
    """A table for sessions, one for the server's own processes, one for who is beside them."""
    found = processes.blocks(results, pick)
    if not found:
        return el(
            "p", "No process was seen: microstates need the server's tasks on this host.", class_="muted"
        )
    made = [t for block in found for t in _block(results, pick, block)]
    return join(*made, *_feet(processes.unknown(results, pick)))


def _block(results: Results, pick: Pick, block: processes.Block) -> Iterator[Html]:
    shared = any(p.share for p in block.processes)
    heads: list[Content] = ["process", "pid"]
    heads += [el("abbr", c.head, title=c.words) for c in processes.COLUMNS]
    heads += ["of session CPU"] if shared else []
    rows = [_process(p, shared) for p in block.processes]
    caption = (
        f"{block.title}, microstates {pick.at}{pick.which}: percent of each process's time, USR to UNAC add "
        f"up to 100; switches and calls a second. {sources_used.caption(results, pick.cell)}"
    )
    yield table(caption, heads, rows, [False] + [True] * (len(heads) - 1), class_="named")
    if block.left_out:
        yield el(
            "p", f"{block.left_out} less active ones are left out; the export holds them.", class_="foot"
        )


def _process(process: processes.Process, shared: bool) -> list[Content]:
    name = el("span", process.name, class_="worker") if process.worker else process.name
    cells: list[Content] = [el("span", text, title=told) if told else text for text, told in process.cells]
    return [name, process.pid, *cells, *([process.share] if shared else [])]


def load_profile(results: Results, pick: Pick) -> Html:
    """The profile, then the ten largest parts of DB time."""
    found = profile.profile(results, pick)
    if not found.lines:
        return el("p", "No load profile: the run has no counters.", class_="muted")
    rows: list[list[Content]] = [
        [line.name, *(_figure(v, line.status) for v in line.values), line.source] for line in found.lines
    ]
    rows += [[name, _figure(v, ""), *[""] * (len(found.heads) - 1), ""] for name, v in found.ratios]
    where = "" if pick.repeats == 1 else f"; all {pick.repeats} repeats together"
    caption = f"Load profile {pick.at}{where}"
    numeric = [False, *[True] * len(found.heads), False]
    made = table(caption, ["", *found.heads, "witness"], rows, numeric, class_="named")
    return join(made, *_feet(found.notes), _top(results, pick, found.events))


def _top(results: Results, pick: Pick, events: list[profile.Event]) -> Html:
    if not events:
        return el("p", "No foreground events: sessions were neither sampled nor traced.", class_="muted")
    heads = [
        "",
        "event",
        "seconds",
        "95 % interval",
        "% of DB time",
        "in the run queue, s",
        "waits",
        "mean",
        "witness",
    ]
    caption = (
        f"Top {len(events)} foreground events {pick.at} by total time. A wait's seconds are asleep; "
        "what its label hid in the run queue stands beside and is counted in CPU WAIT. "
        + sources_used.caption(results, pick.cell)
    )
    rows: list[list[Content]] = [
        [e.rank, e.name, e.seconds, e.interval, _share(e.share), e.runq, e.waits, e.mean, e.source]
        for e in events
    ]
    numeric = [True, False, True, True, True, True, True, True, False]
    return table(caption, heads, rows, numeric, class_="named")


def _share(percent: str) -> Content:
    """The number with a bar as long as it says."""
    if percent == figures.UNKNOWN:
        return _UNKNOWN
    width = min(100.0, max(0.0, float(percent)))
    bar = el("i", style=f"width:{width:.1f}%;background:{var('accent')}")
    return join(percent, el("span", bar, class_="bar", aria_hidden="true"))


def _figure(text: str, told: str) -> Content:
    if text == figures.UNKNOWN:
        return el("span", text, class_="unknown", title=told or "unknown: see below the table")
    return el("span", text, title=told) if told else text


def _feet(notes: list[str]) -> Iterator[Html]:
    for note in notes:
        if note:
            yield el("p", note, class_="foot")


def _key(label: str, colour: str | None) -> Html:
    paint = f"background:{var(colour)}" if colour else "border:1px dashed var(--muted)"
    return el("li", el("i", class_="fill", style=paint), label)
