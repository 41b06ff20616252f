"""Modules of a Rust crate use each other in one direction, as the rooms of the package do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACYCLIC = (
    "crates/dyno-drive",
    "python/dbdyno/engines/command/driver",
    "python/dbdyno/engines/postgres/driver",
)
"""Crates whose modules form no circle."""

Module = tuple[str, ...]
"""Names from the crate's root down; the root has none."""

_NOISE = re.compile(r"//[^\n]*|\br(#*)\".*?\"\1|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
"""Comments, texts and characters."""
_TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*mod \w+ *{")
_USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))? +)?use +([^;]+);", re.MULTILINE)
_PATH = re.compile(r"(?<![\w:])[a-z_]\w*(?:::\w+)+")


class Crate:
    """Sources of a crate by module, without tests, and the paths that each module re-exports by name."""

    def __init__(self, folder: Path) -> None:
        files = [p for p in (folder / "src").rglob("*.rs") if not p.stem.endswith("_tests")]
        texts = {_module(p.relative_to(folder / "src")): p.read_text(encoding="utf-8") for p in files}
        self.sources = {module: _without_tests(_NOISE.sub("", text)) for module, text in texts.items()}
        self.exports = {
            module: {path[-1]: path for public, path in _uses(source) if public}
            for module, source in self.sources.items()
        }

    def used(self, module: Module) -> set[Module]:
        """Returns the modules that define what `module` uses; what it merely re-exports does not count."""
        source = self.sources[module]
        paths = [path for public, path in _uses(source) if not public]
        paths += [tuple(path.split("::")) for path in _PATH.findall(_USE.sub("", source))]
        return {m for path in paths if (m := self.resolve(module, path)) is not None} - {module}

    def resolve(self, module: Module, path: Module) -> Module | None:
        """Returns the module where a path of `module` ends. None if the path leaves the crate."""
        if path[0] == "crate":
            place, path = (), path[1:]
        elif path[0] in ("self", "super"):
            place = module
            while path and path[0] in ("self", "super"):
                place, path = place[:-1] if path[0] == "super" else place, path[1:]
        elif (*module, path[0]) in self.sources:
            place = module
        else:
            return None
        while path and (*place, path[0]) in self.sources:
            place, path = (*place, path[0]), path[1:]
        exported = self.exports[place].get(path[0]) if path else None
        return (exported and self.resolve(place, exported)) or place

    def circle(self, depth: int | None = None) -> list[str]:
        """Returns a circle of modules, those below `depth` taken together. Empty if there is none."""
        graph: dict[Module, set[Module]] = {}
        for module in self.sources:
            key = module[:depth]
            graph.setdefault(key, set()).update({m[:depth] for m in self.used(module)} - {key})
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            return ["::".join(("crate", *module)) for module in error.args[1]]
        return []


def _module(file: Path) -> Module:
    names = file.with_suffix("").parts
    return names[:-1] if names[-1] in ("lib", "main", "mod") else names


def _without_tests(source: str) -> str:
    while match := _TESTS.search(source):
        end, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        source = source[: match.start()] + source[end:]
    return source


def _uses(source: str) -> Iterator[tuple[bool, Module]]:
    """Yields the paths of `use`, and whether each is re-exported."""
    for public, tree in _USE.findall(source):
        for path in _paths(re.sub(r"\s+as\s+\w+|\s+", "", tree)):
            yield bool(public), path


def _paths(tree: str) -> Iterator[Module]:
    """Yields each path of `a::{b, c::{self, d}}`."""
    head, brace, inside = tree.partition("{")
    names = tuple(name for name in head.split("::") if name)
    if not brace:
        yield names
        return
    part, depth = "", 0
    for char in inside[:-1] + ",":
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char != "," or depth:
            part += char
        elif part:
            yield from ((*names, *path) if path != ("self",) else names for path in _paths(part))
            part = ""


@pytest.mark.parametrize("crate", ACYCLIC)
def test_no_circle_of_modules(crate: str) -> None:
    assert Crate(ROOT / crate).circle() == []


@pytest.mark.parametrize("crate", ACYCLIC)
def test_no_circle_of_folders(crate: str) -> None:
    assert Crate(ROOT / crate).circle(depth=1) == []


SOURCES = {
    "lib.rs": "mod a;\nmod b;\npub use b::Shown;\n",
    "a.rs": 'use crate::Shown;\nconst TEXT: &str = "crate::c::X"; // crate::c\n',
    "b/mod.rs": "mod inner;\npub use inner::{Shown, Other};\n",
    "b/inner.rs": "#[cfg(test)]\nmod tests {\n    use crate::a::{Back, b::{self}};\n}\n",
    "c.rs": "",
}


@pytest.mark.parametrize(
    ("more", "circle"),
    [
        ({}, set()),
        ({"b/inner.rs": "use std::{io, crate::x};\nuse crate::a::Back;\n"}, {"crate::a", "crate::b::inner"}),
        ({"b/inner.rs": "fn f() { super::super::a::back() }\n"}, {"crate::a", "crate::b::inner"}),
        (
            {"a.rs": "use crate::{b::{self, Other}, c};\n", "c.rs": "use super::a;\n"},
            {"crate::a", "crate::c"},
        ),
    ],
)
def test_a_circle_is_seen_through_re_exports_and_not_in_tests(
    tmp_path: Path, more: dict[str, str], circle: set[str]
) -> None:
    for name, text in (SOURCES | more).items():
        file = tmp_path / "src" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert set(Crate(tmp_path).circle()) == circle
