"""HTML elements from Python values: every text is escaped unless it is :class:`Html` already."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_VOID = frozenset({"meta", "link", "br", "hr", "col"})


class Html(str):
    """Text that is markup. Made by :func:`el` and :func:`join`; anything else is plain text."""

    __slots__ = ()


Content = str | Html | None


def el(name: str, /, *children: Content, **attributes: str | int | float | bool | None) -> Html:
    """``el("td", "a < b", class_="num")``. A trailing underscore goes, others become hyphens.

    ``style`` becomes ``data-style``: :mod:`~dbdyno.present.page` makes rules of them, for the page's policy
    forbids the attribute itself.
    """
    written = "".join(_attribute(k, v) for k, v in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Content) -> Html:
    return Html("".join(_text(c) for c in children))


def joined(children: Iterable[Content]) -> Html:
    return join(*children)


def table(
    caption: str,
    heads: Sequence[Content],
    rows: Iterable[Sequence[Content]],
    numeric: Sequence[bool] | None = None,
    class_: str | None = None,
) -> Html:
    """A table that scrolls sideways in its own box, which takes the focus so that keys scroll it."""
    numbers = numeric or [False] * len(heads)
    head = el("tr", *(el("th", h, scope="col", class_=_num(n)) for h, n in zip(heads, numbers, strict=True)))
    body = [
        el("tr", *(_cell(i, c, n) for i, (c, n) in enumerate(zip(r, numbers, strict=True)))) for r in rows
    ]
    told = el("caption", el("span", caption)) if caption else None
    made = el("table", told, el("thead", head), el("tbody", *body), class_=class_)
    return el("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption or "table")


def definitions(pairs: Iterable[tuple[str, Content]]) -> Html:
    """A list of terms; pairs without a value are left out."""
    return el("dl", *(el("div", el("dt", k), el("dd", v)) for k, v in pairs if v))


def details(summary: str, *children: Content) -> Html:
    return el("details", el("summary", summary), *children)


def _cell(index: int, content: Content, number: bool) -> Html:
    if index == 0:
        return el("th", content, scope="row", class_=_num(number))
    return el("td", content, class_=_num(number))


def _num(number: bool) -> str | None:
    return "num" if number else None


def _text(child: Content) -> str:
    if child is None:
        return ""
    return str(child) if isinstance(child, Html) else html.escape(child)


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = "data-style" if name == "style" else name.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
