"""Comparisons of stored runs, of the variants of one, or of two intervals between snapshots.

The address has everything: ``run`` (twice or more), or ``interval`` (twice), and the options of ``dbdyno
compare``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dbdyno import conduct, present
from dbdyno.conduct.comparisons import Options, metrics
from dbdyno.model.errors import UsageError
from dbdyno.model.text.visible import one_line
from dbdyno.present.document.document import Document
from dbdyno.present.document.page import Html, el, join
from dbdyno.store import Run, SnapshotStore
from dbdyno.store.overview import overviews
from dbdyno.web.app import Lab
from dbdyno.web.evidence import run_address
from dbdyno.web.kept import KeptPages
from dbdyno.web.run import quiet, state_of
from dbdyno.web.shell import SAVE, View, answer, noting_unknown

PATH = "/compare"
_MOST = 8
"""Most runs that are compared at a time."""
_OFFERED = 200
"""Most runs that the form offers, the newest."""


class Field(NamedTuple):
    """A field of the form: a parameter of the address."""

    name: str
    label: str
    hint: str


_OPTIONS = (
    Field("margin", "Equivalence margin", "2%"),
    Field("sessions", "Only at N sessions", "all"),
)
_BASELINE = Field("baseline", "Variant to compare with", "the first")
_PARAMETERS = ("run", "interval", "metric", *(f.name for f in _OPTIONS), _BASELINE.name)


def routes(lab: Lab) -> Sequence[BaseRoute]:
    kept = KeptPages()

    def compare(request: Request) -> Response:
        asked, saved = request.query_params, SAVE in request.query_params
        runs = [lab.store.open(r) for r in asked.getlist("run") if r.strip()][: _MOST + 1]
        intervals = [i for i in asked.getlist("interval") if i.strip()]

        def make() -> Response:
            shown = noting_unknown(_shown(lab, runs, intervals, _options(asked)), request, _PARAMETERS)
            form = None if saved else _form(lab, asked, runs)
            scripts = () if saved else ("compare.js",)
            return answer(request, View(shown, form, scripts, place=PATH), lab.places)

        if not runs:
            return make()
        noise = str(lab.store.noise())
        return kept.page(request, (noise, *(state_of(r) for r in runs)), make)

    return [Route(PATH, compare, methods=["GET"])]


def _options(asked: QueryParams) -> Options:
    """Returns the options in an address. Raises :class:`UsageError`."""
    sessions = asked.get("sessions", "").strip()
    if sessions and not (sessions.isascii() and sessions.isdigit() and 0 < int(sessions[:10]) < 1 << 31):
        raise UsageError(f"sessions={sessions}: no number of sessions", "a whole number above 0, or nothing")
    options = Options(
        baseline=asked.get("baseline", "").strip() or None,
        metric=asked.get("metric", "").strip() or None,
        rung=int(sessions) if sessions else None,
    )
    margin = asked.get("margin", "").strip()
    return replace(options, margin=conduct.parse_share(margin)) if margin else options


def _shown(lab: Lab, runs: Sequence[Run], intervals: Sequence[str], options: Options) -> Document:
    if intervals:
        if runs or len(intervals) != 2:
            raise UsageError("two intervals are compared, and no runs with them", "interval=A..B twice")
        return present.intervals(conduct.compared_intervals(SnapshotStore(lab.store.root), *intervals))
    if not runs:
        return Document("Compare runs", [])
    if len(runs) > _MOST:
        raise UsageError(f"more than {_MOST} runs are not compared at a time", "leave some out")
    if len(runs) == 1:
        return _variants(lab, runs[0], options)
    pairs = [_pair(lab, runs[0], other, options) for other in runs[1:]]
    title = f"{len(pairs)} runs against {runs[0].info.name or runs[0].id}"
    return pairs[0] if len(pairs) == 1 else present.comparisons(title, pairs)


def _variants(lab: Lab, run: Run, options: Options) -> Document:
    return present.comparison(*conduct.compared_variants(lab.store, run, options, say=quiet))


def _pair(lab: Lab, first: Run, second: Run, options: Options) -> Document:
    return present.comparison(*conduct.compared_runs(lab.store, first, second, options, say=quiet))


def _form(lab: Lab, asked: QueryParams, runs: Sequence[Run]) -> Html:
    """Returns the runs and options of the view as a form, whose address is that of another view."""
    intervals = el("form", *_intervals(asked), el("button", "Compare"), action=PATH, class_="asking")
    if asked.getlist("interval"):
        return intervals
    options = [*_OPTIONS, *([_BASELINE] if len(runs) == 1 or "baseline" in asked else [])]
    fields = [_input(f.name, f.label, f.hint, asked.get(f.name, "")) for f in options]
    newest = overviews(lab.store.root)[: -_OFFERED - 1 : -1]
    known = [
        el("option", one_line(f"{o.outline.workload} {o.run.document['name']}".strip()), value=o.run.id)
        for o in newest
        if o.run.status != "broken"
    ]
    links = [join(el("a", _called(r), href=run_address(r.id), class_="to"), " ") for r in runs]
    return join(
        el("p", *links, class_="ways") if links else None,
        el(
            "form",
            *_runs(runs),
            _metric(asked),
            *fields,
            el("button", "Compare"),
            action=PATH,
            class_="asking",
        ),
        el("datalist", *known, id="known-runs"),
        None if runs else join(el("h2", "Intervals between snapshots"), intervals),
    )


def _called(run: Run) -> str:
    return one_line(f"{run.info.name} ({run.id})") if run.info.name else run.id


def _runs(runs: Sequence[Run]) -> list[Html]:
    """Returns a field for each run and one more, which is left empty for a run's own variants."""
    ids = [*(r.id for r in runs), *[""] * max(1, 2 - len(runs))][:_MOST]
    labels = ["Baseline", *("Compared" if n == 1 else f"Compared, run {n}" for n in range(1, len(runs)))]
    labels += ["Compared"] if len(labels) == 1 else ["One more"]
    return [_input("run", label, "", id) for label, id in zip(labels, ids, strict=False)]


def _metric(asked: QueryParams) -> Html:
    """Returns the choice of a figure. One of the address that is not offered, as a cost, stays."""
    wanted = asked.get("metric", "").strip()
    known = [("", "all"), *metrics()]
    known += [(wanted, wanted)] if wanted not in dict(known) else []
    options = [el("option", title, value=name, selected=name == wanted) for name, title in known]
    return el("label", "Figure ", el("select", *options, name="metric"))


def _intervals(asked: QueryParams) -> list[Html]:
    texts = [*asked.getlist("interval"), "", ""][:2]
    return [
        _input("interval", label, "from..to", text)
        for label, text in zip(("Baseline interval", "Compared interval"), texts, strict=True)
    ]


def _input(name: str, label: str, hint: str, value: str) -> Html:
    known = "known-runs" if name == "run" else None
    box = el("input", name=name, value=value, placeholder=hint or None, list=known, autocomplete="off")
    return el("label", f"{label} ", box)
