"""Writes a complete HTML page: styles and code inside, and a policy that loads nothing from anywhere.

The policy permits exactly the scripts and the style sheet that are written here, by their hashes. Markup
that slipped into a page could neither run code nor add styles (Content Security Policy Level 3).
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files as resources

from dbdyno.model.errors import DbdynoError
from dbdyno.model.text.visible import visible
from dbdyno.present.document import palette

# Builds HTML elements from Python values. Text is escaped, and its control characters are shown, unless it
# is :class:`Html`.

_VOID = frozenset({"meta", "link", "br", "wbr", "hr", "col", "input"})


class Html(str):
    """Markup, as :func:`el` and :func:`join` return it; any other string is plain text."""

    __slots__ = ()


Content = str | Html | None


def el(name: str, /, *children: Content, **attributes: str | int | float | bool | None) -> Html:
    """Returns an element: ``el("td", "a < b", class_="num")``.

    In names of attributes a trailing underscore is removed, other underscores become hyphens. ``style``
    becomes ``data-style``, which :func:`page` turns into rules, because the page's policy forbids the
    attribute itself.
    """
    written = "".join([_attribute(k, v) for k, v in attributes.items() if v is not None])
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{''.join(map(_text, children))}</{name}>")


def join(*children: Content) -> Html:
    """Joins markup and plain texts; None is left out."""
    return Html("".join(map(_text, children)))


def _text(child: Content) -> str:
    if child is None:
        return ""
    return str(child) if isinstance(child, Html) else escaped(child)


def escaped(text: str) -> str:
    """Returns ``text`` for HTML or SVG, without markup and without characters that change the direction of
    reading."""
    return _escaped_short(text) if len(text) <= _SHORT else html.escape(visible(text))


_SHORT = 40
"""Most characters of a text whose markup is remembered: a page repeats many words and figures."""


@lru_cache(maxsize=4096)
def _escaped_short(text: str) -> str:
    return html.escape(visible(text))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = "data-style" if name == "style" else name.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escaped(str(value))}"'


_POLICY = "default-src 'none'; {}style-src {}; img-src {}; base-uri 'none'; {}"
_ALONE, _SERVED = "form-action 'none'", "connect-src 'self'; form-action 'self'"
_STYLED = re.compile(r'data-style="([^"<>{}@\\]+)"')


def page(
    title: str, body: Html, scripts: Sequence[str] = (), styles: str = "", *, served: bool = False
) -> str:
    """Returns the HTML page. ``scripts`` run at the end of ``body``; ``styles`` follow those of all pages.

    ``served``: the page may speak to the server that it came from.
    """
    sheet = f"{palette.css()}{asset('page.css')}{styles}{_rules(body)}"
    run = f"script-src {' '.join(map(_hash, scripts))}; " if scripts else ""
    images = "data: blob:" if scripts else "data:"
    policy = _POLICY.format(run, _hash(sheet), images, _SERVED if served else _ALONE)
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("link", rel="icon", href="data:,"),
        el("title", f"dbdyno: {title}"),
        Html(f"<style>{sheet}</style>"),
    )
    code = join(*(Html(f"<script>{s}</script>") for s in scripts))
    return f"<!doctype html>\n{el('html', head, el('body', body, code), lang='en', data_served=served)}\n"


def asset(name: str) -> str:
    """Returns the text of a file in the folder assets."""
    return resources("dbdyno.present").joinpath("assets", name).read_text("utf-8")


def bundled(name: str) -> str:
    """Returns the text of a file that is bundled when the package is built; empty if it was not, for want of
    npm."""
    try:
        return asset(name)
    except FileNotFoundError:
        return ""


def charts_code() -> str:
    """Returns Vega, Vega-Lite and vega-embed, which are bundled when the package is built.

    Raises :class:`DbdynoError` if the bundle is missing.
    """
    try:
        return asset("vega.js")
    except FileNotFoundError as error:
        raise DbdynoError(
            "the charts' code is missing: dbdyno was installed from its source without being built",
            "in the source: make build, or pip install vl-convert-python and python tools/bundle_charts.py",
        ) from error


def _rules(body: str) -> str:
    """Returns a style rule per ``data-style`` of the body, as strong as the attribute ``style`` would be."""
    styles = dict.fromkeys(_STYLED.findall(body))
    return "".join(f'[data-style="{style}"]{{{_important(style)}}}' for style in styles)


def _important(style: str) -> str:
    return ";".join(f"{part}!important" for part in style.split(";") if part)


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
