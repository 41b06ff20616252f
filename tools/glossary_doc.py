"""Writes the glossary of docs/concepts.md from conclude/words.toml. Run it after changing a word."""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path

from dbdyno.conclude.words import Word, words

PAGE = Path(__file__).parents[1] / "docs" / "concepts.md"
BEGIN, END = "<!-- glossary: written by tools/glossary_doc.py -->\n", "<!-- end of glossary -->\n"
_WRAP = textwrap.TextWrapper(120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def glossary() -> str:
    groups = groupby(words(), key=lambda word: word.group)
    return "\n".join(f"### {group}\n\n" + "".join(map(_entry, members)) for group, members in groups)


def _entry(word: Word) -> str:
    title, _, meaning = word.text.partition(": ")
    others = ", ".join(f"`{name}`" for name in word.names if name.casefold() != title.casefold())
    see = f" See [{word.page}]({word.page})." if word.page != PAGE.name else ""
    head = f"- **{title}**" + (f" ({others})" if others else "")
    advice = f" *What to do:* {word.advice}." if word.advice else ""
    lines = (f"{head}: {meaning}.", f"  *Example:* {word.example}.{advice}{see}")
    return "".join(f"{_WRAP.fill(line)}\n" for line in lines)


def render(text: str) -> str:
    """Returns the page with the present glossary between the marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{glossary()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
