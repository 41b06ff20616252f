"""A whole HTML page of ours: styles and code inside, a policy that loads nothing from anywhere.

The policy permits exactly the scripts and the style sheet that are written here, by their hashes: markup that
got into a page could neither run code nor add styles (Content Security Policy Level 3).
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files as resources

from dbdyno.model.errors import DbdynoError
from dbdyno.model.text.visible import visible
from dbdyno.present.document import palette

# HTML elements from Python values: every text is made visible and escaped unless it is :class:`Html` already.

_VOID = frozenset({"meta", "link", "br", "hr", "col"})


class Html(str):
    """Text that is markup. Made by :func:`el` and :func:`join`; anything else is plain text."""

    __slots__ = ()


Content = str | Html | None


def el(name: str, /, *children: Content, **attributes: str | int | float | bool | None) -> Html:
    """``el("td", "a < b", class_="num")``. A trailing underscore goes, others become hyphens.

    ``style`` becomes ``data-style``: :mod:`~dbdyno.present.document.page` makes rules of them, for the page's
    policy forbids the attribute itself.
    """
    written = "".join(_attribute(k, v) for k, v in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Content) -> Html:
    return Html("".join(_text(c) for c in children))


def _text(child: Content) -> str:
    if child is None:
        return ""
    return str(child) if isinstance(child, Html) else escaped(child)


def escaped(text: str) -> str:
    """``text`` for markup, of HTML or SVG: nothing in it is markup, or steers the reader."""
    return html.escape(visible(text))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = "data-style" if name == "style" else name.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escaped(str(value))}"'


_POLICY = "default-src 'none'; {}style-src {}; img-src {}; base-uri 'none'; form-action 'none'"
_STYLED = re.compile(r'data-style="([^"<>{}@\\]+)"')


def page(title: str, body: Html, scripts: Sequence[str] = ()) -> str:
    """The document. ``scripts``: code to run at the end of ``body``."""
    sheet = f"{palette.css()}{asset('page.css')}{_rules(body)}"
    run = f"script-src {' '.join(map(_hash, scripts))}; " if scripts else ""
    policy = _POLICY.format(run, _hash(sheet), "data: blob:" if scripts else "data:")
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
    return f'<!doctype html>\n<html lang="en">{head}{el("body", body, code)}</html>\n'


def asset(name: str) -> str:
    """Text of a file of the folder assets."""
    return resources("dbdyno.present").joinpath("assets", name).read_text("utf-8")


def charts_code() -> str:
    """Vega, Vega-Lite and vega-embed, bundled when the package is built. Raises :class:`DbdynoError`."""
    try:
        return asset("vega.js")
    except FileNotFoundError as error:
        raise DbdynoError(
            "the charts' code is missing: dbdyno was installed from its source without being built",
            "in the source: make build, or pip install vl-convert-python and python tools/bundle_charts.py",
        ) from error


def _rules(body: str) -> str:
    """A rule for each ``data-style`` of the body, as strong as the attribute ``style`` would be."""
    found = dict.fromkeys(_STYLED.findall(body))
    return "".join(f'[data-style="{style}"]{{{_important(style)}}}' for style in found)


def _important(style: str) -> str:
    return ";".join(f"{part}!important" for part in style.split(";") if part)


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
