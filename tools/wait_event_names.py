"""Writes the names of PostgreSQL's wait events by code, from a source tree of PostgreSQL 14 to 19:

    python tools/wait_event_names.py postgresql-18.6 > python/dbdyno/engines/postgres/wait_events/18.toml

The word that a backend shows is class (top byte) and id (low 16 bits): src/include/utils/wait_event.h.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

_ACTIVITY = "src/backend/utils/activity"
_ELSEWHERE = ("LWLock", "Lock")  # wait_event_names.txt has them for the documentation only


def main(tree: Path) -> str:
    """Returns the text of the data file. Raises :class:`OSError` if ``tree`` is no source tree of
    PostgreSQL."""
    version = _one(r"AC_INIT\(\[PostgreSQL\], \[([\w.]+)\]", _text(tree, "configure.ac"))
    codes = classes(tree)
    names = (listed(tree) if (tree / _ACTIVITY / "wait_event_names.txt").exists() else enumerated(tree)) | {
        "LWLock": lwlocks(tree),
        "Lock": re.findall(
            r'"(\w+)"', _body(_text(tree, "src/backend/utils/adt/lockfuncs.c"), "LockTagTypeNames")
        ),
        "Extension": ["Extension"],
    }
    names.setdefault("BufferPin", ["BufferPin"])  # 14 to 16; from 19 on the class is Buffer
    lines = [
        f"# PostgreSQL {version}: wait events by class; an event's place in the list, from 0, is its id.",
        '# "": no such id. Made by tools/wait_event_names.py from the sources.',
        "",
        "[classes]  # top byte of the word",
        *(f"{name} = {code}" for name, code in codes.items()),
        "",
        "[names]",
    ]
    for name in codes:
        quoted = ", ".join(f'"{event}"' for event in names.get(name, ()))
        filled = textwrap.fill(quoted, 106, initial_indent="    ", subsequent_indent="    ")
        lines.append(f"{name} = [\n{filled},\n]" if quoted else f"{name} = []")
    return "\n".join(lines) + "\n"


def classes(tree: Path) -> dict[str, int]:
    """Returns the top byte of each class, by its name in the activity view."""
    include = tree / "src/include/utils"
    header = "".join(
        p.read_text() for p in (include / "wait_classes.h", include / "wait_event.h") if p.exists()
    )
    bytes_ = {
        name: int(code, 16) for name, code in re.findall(r"#define (PG_WAIT_\w+)\s+0x(\w\w)000000U", header)
    }
    shown = re.findall(
        r'case (PG_WAIT_\w+):\s+event_type = "(\w+)"', _text(tree, f"{_ACTIVITY}/wait_event.c")
    )
    return {name: bytes_[macro] for macro, name in sorted(shown, key=lambda pair: bytes_[pair[0]])}


def enumerated(tree: Path) -> dict[str, list[str]]:
    """Returns the events by class of versions 14 to 16: an enum per class, and a switch with the names."""
    switch = re.findall(
        r'case (WAIT_EVENT_\w+):\s+event_name = "(\w+)"', _text(tree, f"{_ACTIVITY}/wait_event.c")
    )
    shown = dict(switch)
    enums = re.findall(
        r"typedef enum\s*{([^}]*)}\s*WaitEvent(\w+);", _text(tree, "src/include/utils/wait_event.h")
    )
    return {name: [shown[event] for event in re.findall(r"(WAIT_EVENT_\w+)", body)] for body, name in enums}


def listed(tree: Path) -> dict[str, list[str]]:
    """Returns the events by class of versions from 17 on: a list, sorted as in
    generate-wait_event_types.pl, with additions of minor versions last."""
    events: dict[str, list[str]] = defaultdict(list)
    later: dict[str, list[str]] = defaultdict(list)
    section, into = "", events
    for line in (tree / _ACTIVITY / "wait_event_names.txt").read_text().splitlines():
        if line.startswith("Section: ClassName - WaitEvent"):
            section, into = line.removeprefix("Section: ClassName - WaitEvent"), events
        elif line.startswith("ABI_compatibility:"):
            into = later
        elif line and not line.startswith("#"):
            into[section].append(line.split("\t")[0])
    return {
        name: [_camel(event) for event in (*sorted(events[name], key=str.upper), *later[name])]
        for name in events
        if name not in _ELSEWHERE
    }


def lwlocks(tree: Path) -> list[str]:
    """Returns the individual locks by number, then the builtin tranches in the order of their enum: from 19
    on they are in the list of the locks."""
    old = tree / "src/backend/storage/lmgr/lwlocknames.txt"
    text = (old if old.exists() else tree / "src/include/storage/lwlocklist.h").read_text()
    single = re.findall(r"^(\w+)Lock\s+(\d+)$", text, re.MULTILINE)
    pairs = re.findall(r"^PG_LWLOCK\((\d+), (\w+)\)", text, re.MULTILINE)
    single += [(name, number) for number, name in pairs]
    numbers = {int(number): name for name, number in single}
    tranches = re.findall(r"^PG_LWLOCKTRANCHE\(\w+, (\w+)\)", text, re.MULTILINE) or _tranches(tree)
    return [numbers.get(n, "") for n in range(max(numbers) + 1)] + tranches


def _tranches(tree: Path) -> list[str]:
    """Returns the builtin tranches of versions up to 18: their enum, and an array with the names."""
    enum = _one(r"typedef enum BuiltinTrancheIds\s*{([^}]*)}", _text(tree, "src/include/storage/lwlock.h"))
    tranches = [t for t in re.findall(r"LWTRANCHE_\w+", enum) if t != "LWTRANCHE_FIRST_USER_DEFINED"]
    body = _body(_text(tree, "src/backend/storage/lmgr/lwlock.c"), "BuiltinTrancheNames")
    named = dict(re.findall(r'\[(LWTRANCHE_\w+)\] = "(\w+)"', body))
    shown = [named[t] for t in tranches] if named else re.findall(r'"(\w+)"', body)
    if len(shown) != len(tranches):
        raise ValueError(f"{len(shown)} names for {len(tranches)} tranches")
    return shown


def _camel(event: str) -> str:
    return "".join(part[:1] + part[1:].lower() for part in event.split("_"))


def _body(source: str, array: str) -> str:
    return _one(array + r"\[\] = {(.*?)};", source)


def _one(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        raise ValueError(f"not found: {pattern}")
    return match[1]


def _text(tree: Path, path: str) -> str:
    """Returns a source file without its comments."""
    return re.sub(r"/\*.*?\*/", "", (tree / path).read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1])))
