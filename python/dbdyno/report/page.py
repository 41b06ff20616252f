"""The head of every HTML page of ours: styles inside, a policy that loads nothing from anywhere."""

from __future__ import annotations

from importlib.resources import files as resources

from dbdyno.report import palette
from dbdyno.report.markup import Html, el

_POLICY = "default-src 'none'; {}style-src 'unsafe-inline'; img-src {}; base-uri 'none'; form-action 'none'"
_STILL = _POLICY.format("", "data:")
# a page that draws may also run its own code; Vega compiles expressions
_DRAWING = _POLICY.format("script-src 'unsafe-inline' 'unsafe-eval'; ", "data: blob:")


def head(title: str, style: str = "", scripts: bool = False) -> Html:
    """The element ``head``; ``style``: CSS beside the common one, ``scripts``: it has code of its own."""
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_DRAWING if scripts else _STILL),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("link", rel="icon", href="data:,"),
        el("title", f"dbdyno: {title}"),
        Html(f"<style>{palette.css()}{asset('page.css')}{style}</style>"),
    )


def asset(name: str) -> str:
    """Text of a file of the folder assets."""
    return resources("dbdyno.report").joinpath("assets", name).read_text("utf-8")
