"""Checks the built site in build/site: ``make docs`` runs it.

No page loads anything from another host. Each link within the site leads to a file, and to the place in the
file that the link names. The search has every page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).resolve().parent.parent / "build" / "site"
NOT_SEARCHED = ("404.html", "gallery/")
"""Pages that the generator does not make of Markdown, or that nobody looks for."""
_LOADED = {
    "audio": ("src",), "embed": ("src",), "iframe": ("src", "srcdoc"), "image": ("href", "xlink:href"),
    "img": ("src", "srcset"), "input": ("src",), "object": ("data",), "script": ("src",),
    "source": ("src", "srcset"), "track": ("src",), "use": ("href", "xlink:href"), "video": ("src", "poster"),
}  # fmt: skip
"""Attributes whose address a browser loads by itself, by tag."""
_REFERRED = ("alternate", "author", "canonical", "help", "license", "next", "prev", "search")
"""Relations of a ``link`` that load nothing; others load, or connect."""
_CSS_ADDRESS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


class Link(NamedTuple):
    """An address in a page."""

    address: str
    loaded: bool
    """Whether the browser fetches it without being asked."""


class Page(HTMLParser):
    """Addresses and names of places in an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[Link] = []
        self.places: set[str] = set()
        self._in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.places |= {values[name] for name in ("id", "name") if values.get(name)}
        for name in _LOADED.get(tag, ()):
            if address := values.get(name):
                parts = (p.split()[0] for p in address.split(",")) if name == "srcset" else (address,)
                self.links += [Link(part, True) for part in parts]
        if tag in ("a", "area") and "href" in values:
            self.links.append(Link(values["href"], False))
        if tag == "link" and "href" in values:
            self.links.append(Link(values["href"], values.get("rel") not in _REFERRED))
        self.links += [Link(address, True) for address in css_addresses(values.get("style", ""))]

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.links += [Link(address, True) for address in css_addresses(data)]

    def handle_endtag(self, tag: str) -> None:
        self._in_style = self._in_style and tag != "style"


def css_addresses(css: str) -> Iterator[str]:
    """Yields addresses that a style sheet loads."""
    for found in _CSS_ADDRESS.finditer(css):
        yield found[1] or found[2]


def faults(site: Path) -> list[str]:
    """Returns what is wrong with a site, one line each."""
    pages = {p.relative_to(site).as_posix(): Page(p.read_text("utf-8")) for p in sorted(site.rglob("*.html"))}
    lines = [f"{name}: {fault}" for name in pages for fault in _faults_of_page(name, pages, site)]
    for sheet in sorted(site.rglob("*.css")):
        addresses = css_addresses(sheet.read_text("utf-8"))
        name = sheet.relative_to(site).as_posix()
        lines += [f"{name}: loads {address}" for address in addresses if _is_foreign(address)]
    searched = searched_pages(site)
    lines += [
        f"{name}: not in the search"
        for name in pages
        if name not in searched and not name.startswith(NOT_SEARCHED)
    ]
    return lines


def _faults_of_page(name: str, pages: dict[str, Page], site: Path) -> Iterator[str]:
    for address, loaded in dict.fromkeys(pages[name].links):
        if _is_foreign(address):
            if loaded:
                yield f"loads {address}"
            continue
        parts = urlsplit(address)
        if parts.scheme:  # data:, mailto:
            continue
        target = _target(name, unquote(parts.path), site)
        if target is None:
            yield f"{address} leads nowhere"
        elif parts.fragment and target in pages and not _has_place(pages[target], unquote(parts.fragment)):
            yield f"{address}: no such place in {target}"


def _is_foreign(address: str) -> bool:
    return bool(re.match(r"(https?:|wss?:)?//", address.strip(), re.IGNORECASE))


def _target(name: str, path: str, site: Path) -> str | None:
    """Returns the file of the site that a relative address of the page ``name`` leads to; None if none."""
    base = site if path.startswith("/") else (site / name).parent
    file = (base / path.lstrip("/")).resolve() if path else site / name
    file = file / "index.html" if file.is_dir() else file
    return file.relative_to(site).as_posix() if file.is_file() and file.is_relative_to(site) else None


def _has_place(page: Page, place: str) -> bool:
    return place in page.places or place.startswith(":~:")


def searched_pages(site: Path) -> set[str]:
    """Returns the pages that the search's index has."""
    (index,) = (p for name in ("search.json", "search/search_index.json") if (p := site / name).is_file())
    document = json.loads(index.read_text("utf-8"))
    entries = document.get("items", document.get("docs"))
    places = {entry["location"].partition("#")[0] for entry in entries}
    return {f"{place}index.html" if place.endswith("/") or not place else place for place in places}


def main() -> None:
    if lines := faults(SITE):
        sys.exit("\n".join([*lines, f"{len(lines)} faults"]))
    print(f"{SITE}: {sum(1 for _ in SITE.rglob('*.html'))} pages, no fault")


if __name__ == "__main__":
    main()
