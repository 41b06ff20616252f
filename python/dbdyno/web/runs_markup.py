"""The fixed markup of the list of runs; assets/runs.js fills it."""

from __future__ import annotations

from pathlib import Path

from dbdyno.present.document.page import Content, Html, el, join

_HEADS = (
    ("run", "Run"),
    ("started", "Started"),
    ("workload", "Workload"),
    ("server", "System"),
    ("target", "Target"),
    ("sessions", "Sessions"),
    ("peak", "Peak"),
    ("curve", "By load"),
    ("status", "Status"),
    ("tags", "Tags"),
    ("lasted", "Lasted"),
)
"""Key and heading of each column; all but the curve can be sorted by."""
_NUMBERS = ("sessions", "peak", "lasted")


def runs_markup(missing: Path | None) -> Html:
    """Returns the filters, the actions, the empty table and the dialogs. ``missing``: the store, if it is not
    there."""
    without = el("p", "This list needs JavaScript; dbdyno runs prints it in a terminal.", class_="warning")
    notice = el("p", id="notice", class_="warning", role="status", tabindex=-1, hidden=True)
    return join(
        el("noscript", without),
        _empty(missing),
        el("div", _filters(), _actions(), notice, _table(), _more(), id="some", hidden=True),
        _label_dialog(),
        _removal_dialog(),
    )  # fmt: skip


def _empty(missing: Path | None) -> Html:
    words = (
        f"The directory {missing} is not there: the first run makes it. If you expected runs, check --store."
    )
    return el(
        "section",
        el("h2", "There are no runs yet"),
        None if missing is None else el("p", words, class_="warning"),
        el("p", "Make the first one in a terminal; it appears here by itself:"),
        el("pre", "dbdyno demo       # a first report in less than a minute; needs no database\n"
           "dbdyno run lio    # logical I/O with one session, then more and more"),
        id="none",
        hidden=True,
    )  # fmt: skip


def _filters() -> Html:
    def choice(key: str, text: str) -> Html:
        return el("label", f"{text} ", el("select", el("option", "all", value=""), id=key), class_="choice")

    search = el("input", type="search", id="words", autocomplete="off", spellcheck="false")
    sort = el("select", *(el("option", text, value=key) for key, text in _HEADS if key != "curve"), id="sort")
    return el(
        "form",
        el("label", "Find ", search, class_="choice"),
        choice("workload", "Workload"),
        choice("status", "Status"),
        choice("tag", "Tag"),
        el("label", "Sort by ", sort, class_="choice narrow"),
        el("button", "Reverse", type="button", id="reverse", class_="narrow"),
        el("button", "Show all", type="button", id="clear", hidden=True),
        role="search",
        aria_label="Which runs",
        class_="filters",
    )


def _actions() -> Html:
    return el(
        "div",
        el("span", id="count", role="status"),
        el("a", "Trend of these", id="over-time", href="/trend", class_="served"),
        el("span", id="chosen"),
        el("a", "Compare", id="compare", hidden=True),
        _button("Label", "label", hidden=True),
        _button("Remove", "remove", hidden=True),
        _button("Choose none", "unchoose", hidden=True),
        class_="acts",
    )


def _button(text: str, key: str, *, hidden: bool = False) -> Html:
    return el("button", text, type="button", id=key, hidden=hidden)


def _table() -> Html:
    def head(key: str, text: str) -> Html:
        numeric = "num" if key in _NUMBERS else None
        content: Content = text if key == "curve" else el("button", text, type="button", data_sort=key)
        return el("th", content, scope="col", class_=numeric, data_column=key)

    chosen = el("th", el("span", "Chosen", class_="unseen"), scope="col", class_="served")
    table = el(
        "table",
        el("caption", "Runs of this store", class_="unseen"),
        el("thead", el("tr", chosen, *(head(*pair) for pair in _HEADS))),
        el("tbody", id="rows"),
        class_="runs",
    )
    return el("div", table, class_="sideways", tabindex=0, role="region", aria_label="Runs")


def _more() -> Html:
    none = el("p", "No run matches.", id="no-match", hidden=True)
    return join(none, _button("Show more", "more", hidden=True), el("p", id="rest", class_="paper"))


def _label_dialog() -> Html:
    name = el("input", id="label-name", autocomplete="off", maxlength=60)
    tags = el("input", id="label-tags", autocomplete="off", placeholder="nightly, before-upgrade")
    note = el("textarea", id="label-note", rows=4, maxlength=2000)
    return el(
        "dialog",
        el(
            "form",
            el("h2", "Label run ", el("span", id="label-run"), id="label-title"),
            el("label", "Name", name),
            el("fieldset", el("legend", "Tags"), el("div", id="label-present"), el("label", "Add", tags)),
            el("label", "Note", note),
            el("p", id="label-error", role="alert", class_="warning", hidden=True),
            el(
                "div", el("button", "Save", id="label-save"), _button("Cancel", "label-cancel"), class_="acts"
            ),
        ),
        id="label-dialog",
        aria_labelledby="label-title",
    )


def _removal_dialog() -> Html:
    heads = (el("th", text, scope="col") for text in ("Run", "Name", "Peak", "Status", "Size"))
    table = el("table", el("thead", el("tr", *heads)), el("tbody", id="remove-rows"))
    return el(
        "dialog",
        el("h2", id="remove-title"),
        el("div", table, class_="sideways"),
        el("p", "What is removed cannot be brought back.", class_="muted"),
        el("p", id="remove-error", role="alert", class_="warning", hidden=True),
        el("div", _button("Cancel", "remove-cancel"), _button("Remove", "remove-agreed"), class_="acts"),
        id="remove-dialog",
        aria_labelledby="remove-title",
    )
