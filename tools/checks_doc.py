"""Writes the table of checks in docs/doctor.md from the registries. Run it after changing a check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dbdyno.conclude.machines import conditions as machine
from dbdyno.engines.postgres import conditions as postgres
from dbdyno.model.engine.condition import Entry

PAGE = Path(__file__).parents[1] / "docs" / "doctor.md"
BEGIN, END = "<!-- checks: written by tools/checks_doc.py -->\n", "<!-- end of checks -->\n"
_HEAD = "| check | looks at | why it matters | cure | claim of a run |\n|---|---|---|---|---|\n"
_TOUCHES = {"": "", "every run": "always", "writes": "where it writes"}


def table() -> str:
    return _HEAD + "".join(_row(id, e) for id, e in {**postgres.registry(), **machine.registry()}.items())


def _row(id: str, entry: Entry) -> str:
    cells = (f"`{id}`", entry.reads, entry.why, "; ".join(_cures(entry)), _TOUCHES[entry.touches])
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def _cures(entry: Entry) -> Iterator[str]:
    if entry.cure:
        yield entry.cure.replace("{", "").replace("}", "")
    yield from (f"`{c.replace('{', '').replace('}', '')}`" for c in entry.commands)
    if "good" in entry.rule and not entry.cure:
        yield f"`ALTER SYSTEM SET {entry.rule['setting']} = {entry.rule['good']};` and a reload"


def render(text: str) -> str:
    """Returns the page with the present table between the marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
