"""Explanations of claims and words, the text that ``dbdyno explain`` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute

from dbdyno import conduct
from dbdyno.present.document.document import Document, Paragraph, Section
from dbdyno.web.app import Lab, Page
from dbdyno.web.evidence import explain_address
from dbdyno.web.shell import SAVE, View

_LISTED = re.compile(r"  ([a-z0-9][a-zA-Z0-9-]+)  ")
"""A claim in the list of those about a word."""


def routes(lab: Lab) -> Sequence[BaseRoute]:
    def explain(request: Request) -> View:
        text = conduct.explanation(request.path_params["word"])
        return View(_document(request.path_params["word"], text, linked=SAVE not in request.query_params))

    return [Page("/explain/{word:path}", explain, lab)]


def _document(word: str, text: str, *, linked: bool) -> Document:
    """Returns the text with its headings: lines that end in a colon, before indented ones."""
    lines = text.strip("\n").splitlines()
    heads = [n for n, line in enumerate(lines) if line.endswith(":") and not line.startswith(" ")]
    first = heads[0] if heads else len(lines)
    is_claim = len(lines) > 1 and lines[0].endswith(")") and bool(lines[1])
    lead = lines[1:first] if is_claim else lines[:first]
    ends = [*heads[1:], *([len(lines)] if heads else [])]
    sections = [
        Section(lines[a].removesuffix(":"), list(_lines(lines[a + 1 : b], linked)), f"part-{n}")
        for n, (a, b) in enumerate(zip(heads, ends, strict=True))
    ]
    return Document(lines[0] if is_claim else word, sections, lead=list(_lines(lead, linked)))


def _lines(lines: Sequence[str], linked: bool) -> Iterator[Paragraph]:
    for line in lines:
        if line.strip():
            listed = _LISTED.match(line) if linked else None
            links = [(listed[1], explain_address(listed[1]))] if listed else []
            yield Paragraph(line.strip(), links=links)
