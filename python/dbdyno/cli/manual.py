"""The pages of the documentation, which the wheel has too, as text for a terminal."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar, NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from dbdyno.cli import topics

INDEX = "index"
"""The page that lists all pages."""
_WIDEST = 100  # columns: longer lines of prose are hard to read
_BETWEEN = 3  # columns between two columns of a table
_LONGEST_WORD = 30  # columns of a table's cell: a longer word is folded
_PLAIN = Theme(
    {
        "markdown.code": "bold",
        "markdown.code_block": "none",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "italic",
        "markdown.item.bullet": "none",
        "markdown.item.number": "none",
        "markdown.block_quote": "none",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)
"""Styles without colours, which are readable on light and dark terminals."""
_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_CODE = re.compile(r"(?<!`)(`{1,2})([^`]+)\1(?!`)")
_EQUATION = re.compile(r"^\$\$\s*(.+?)\s*\$\$$", re.MULTILINE | re.DOTALL)
_SYMBOLS = re.compile(r"(`+)[^`]+\1|(?<!\\)\$(?!\s)([^$`\n]+?)(?<!\s)\$(?![\w$])")
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"^- \[([\w/-]+)\.md\]\([\w/-]+\.md\): (.+)$", re.MULTILINE)
_PAGE = re.compile(r"([\w./-]+)\.md(?:#([\w-]+))?")


_Replacement = str | Callable[[re.Match[str]], str]


class Section(NamedTuple):
    """A heading of a page and the text from it to the next heading of its level."""

    level: int
    title: str
    text: str


@cache
def pages() -> dict[str, str]:
    """Returns the Markdown text of each page by topic, in alphabetical order. Links start from docs."""
    return {
        topic: _from_docs(file.read_text(encoding="utf-8"), topic.rpartition("/")[0])
        for topic, file in topics.files().items()
    }


def _from_docs(markdown: str, folder: str) -> str:
    """Returns a text of a folder in docs with its links to pages from docs."""

    def moved(link: re.Match[str]) -> str:
        page = _PAGE.match(link[2])
        target = posixpath.normpath(f"{folder}/{link[2]}") if page else link[2]
        return f"{link[0][: -len(link[2]) - 1]}{target})"

    return _outside_blocks(markdown, _LINK, moved) if folder else markdown


def title(topic: str) -> str:
    """Returns the first heading of a page without marks of Markdown."""
    found = _HEADING.search(pages()[topic])
    return topic if found is None else found[2].replace("`", "")


def index() -> dict[str, dict[str, str]]:
    """Returns heading -> topic -> description, of the list of pages in docs/index.md; pages that are not in
    it, with their titles, at the end."""
    groups: dict[str, dict[str, str]] = {}
    for level, heading, text in sections(INDEX):
        if level == 2 and (items := dict(_ITEM.findall(text))):
            groups[heading] = {topic: line.replace("`", "") for topic, line in items.items()}
    listed = {INDEX, *(topic for group in groups.values() for topic in group)}
    others = {topic: title(topic) for topic in pages() if topic not in listed}
    return {**groups, "Other": others} if others else groups


def sections(topic: str) -> list[Section]:
    """Returns the sections of a page, in its order; a section includes those below it."""
    text = pages()[topic]
    code = [range(*block.span()) for block in _BLOCK.finditer(text)]
    heads = [h for h in _HEADING.finditer(text) if not any(h.start() in block for block in code)]
    ends = [
        next((n.start() for n in heads[i + 1 :] if len(n[1]) <= len(h[1])), len(text))
        for i, h in enumerate(heads)
    ]
    return [
        Section(len(h[1]), h[2].replace("`", ""), text[h.start() : end])
        for h, end in zip(heads, ends, strict=True)
    ]


def section(topic: str, name: str) -> Section | None:
    """Returns the section whose title begins with ``name``, else one whose title contains it; None if there
    is none. ``name`` is words, or the anchor of a link."""
    wanted, all_sections = _words(name), sections(topic)
    for fits in (str.startswith, str.__contains__):
        for candidate in all_sections:
            if wanted and fits(_words(candidate.title), wanted):
                return candidate
    return None


def _words(title: str) -> str:
    """Returns the words of a title in lower case, without punctuation, as in the anchor of a link."""
    return " ".join(re.sub(r"[^\w\s-]", "", title).casefold().replace("-", " ").split())


def rendered(markdown: str, columns: int, *, styled: bool = False) -> str:
    """Returns a text in Markdown laid out in ``columns``. ``styled``: with escape sequences of a terminal;
    without them, code keeps its backquotes. Lines of a block of code keep their width."""
    out = io.StringIO()
    console = Console(
        file=out, width=min(columns, _WIDEST), theme=_PLAIN, force_terminal=styled, highlight=False
    )
    text = _outside_blocks(_COMMENT.sub("", markdown), _EQUATION, r"```\n\1\n```")
    text = _outside_blocks(_outside_blocks(text, _SYMBOLS, _as_code), _LINK, _linked)
    if not styled:
        text = _outside_blocks(text, _CODE, r"`` `\2` ``")
    console.print(_Page(text, hyperlinks=False), crop=False)
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n")) + "\n"


def _outside_blocks(markdown: str, pattern: re.Pattern[str], by: _Replacement) -> str:
    """Replaces what fits ``pattern`` outside of blocks of code."""
    parts, end = list[str](), 0
    for block in _BLOCK.finditer(markdown):
        parts += [pattern.sub(by, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, pattern.sub(by, markdown[end:])])


def _as_code(symbols: re.Match[str]) -> str:
    """Returns an equation within a line as it is; in plain Markdown, \\ and _ have another meaning."""
    return symbols[0] if symbols[2] is None else f"`{symbols[2]}`"


def _linked(link: re.Match[str]) -> str:
    """Returns a link to a page as the command that shows the page, another link as its text and address;
    nothing in place of an image."""
    text, target = link[1], link[2]
    if link[0].startswith("!"):
        return ""
    if re.match(r"[a-z]+:", target):
        return text if text == target else f"{text} ({target})"
    page = _PAGE.fullmatch(target)
    if page is None or page[1] not in pages():
        return text
    anchor = "" if page[2] is None else f" {page[2].replace('-', ' ')}"
    command = f"`dbdyno help {page[1]}{anchor}`"
    return command if text.strip("`").endswith(".md") else f"{text} ({command})"


class _Heading(Heading):
    """A heading at the left margin, underlined at the first three levels."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        if self.tag != "h1":
            yield Text()
        yield text
        if rule := {"h1": "=", "h2": "-", "h3": "."}.get(self.tag):
            longest = max((line.cell_len for line in text.wrap(console, options.max_width)), default=0)
            yield Text(rule * longest)


class _Code(CodeBlock):
    """Code as it is, indented: it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().splitlines():
            yield Segment(f"    {line}")
            yield Segment.line()


class _Table(TableElement):
    """A table whose columns are as wide as their longest words or wider; a block per row if they do not
    fit."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.header is None or self.header.row is None or self.body is None:
            return
        heads = [cell.content for cell in self.header.row.cells]
        rows = [[cell.content for cell in row.cells] for row in self.body.rows]
        columns = [*zip(heads, *rows, strict=True)]
        widths = [max(len(word) for cell in cells for word in ["", *cell.plain.split()]) for cells in columns]
        widths = [min(width, _LONGEST_WORD) for width in widths]
        more = [max(cell.cell_len for cell in cells) - w for cells, w in zip(columns, widths, strict=True)]
        room = options.max_width - _BETWEEN * (len(columns) - 1) - sum(widths)
        if room < 0:
            yield from _blocks(heads, rows, console, options)
            return
        for left, i in enumerate(sorted(range(len(more)), key=more.__getitem__)):  # narrow columns first
            share = min(more[i], room // (len(more) - left))
            widths[i], room = widths[i] + share, room - share
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, style="markdown.table.border")
        for head, width in zip(heads, widths, strict=True):
            table.add_column(head, width=width, overflow="fold", header_style="markdown.table.header")
        for row in rows:
            table.add_row(*row)
        yield table


def _blocks(
    heads: Sequence[Text], rows: Sequence[Sequence[Text]], console: Console, options: ConsoleOptions
) -> RenderResult:
    """Yields each row of a table as its first cell, then a line with the head for each further cell."""
    for first, *others in rows:
        yield Text()
        yield first
        for head, cell in zip(heads[1:], others, strict=True):
            if cell.plain.strip():
                yield from Padding(Text.assemble(head, ": ", cell), (0, 0, 0, 4)).__rich_console__(
                    console, options
                )


class _Page(Markdown):
    elements: ClassVar = {
        **Markdown.elements,
        "heading_open": _Heading,
        "table_open": _Table,
        "fence": _Code,
        "code_block": _Code,
    }
