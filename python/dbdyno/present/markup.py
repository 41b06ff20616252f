"""HTML elements from Python values: every text is escaped unless it is :class:`Html` already."""

from __future__ import annotations

import html
from collections.abc import Iterable

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


def _text(child: Content) -> str:
    if child is None:
        return ""
    return str(child) if isinstance(child, Html) else html.escape(child)


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = "data-style" if name == "style" else name.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'
