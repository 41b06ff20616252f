"""Packages whose names are loaded at their first use."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import dbdyno

PACKAGES = ("conclude.compare", "conduct", "drive", "limits", "observe", "plan", "present", "store")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_s_table_has_what_type_checkers_see(package: str) -> None:
    module = import_module(f"dbdyno.{package}")
    path = Path(dbdyno.__file__).parent.joinpath(*package.split("."), "__init__.py")
    (block,) = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.If))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name, place in module.__dict__["_lazy"].items():
        found, _, attribute = place.partition(":")
        assert seen[name] == (found, attribute or name)
        assert getattr(module, name) is getattr(import_module(found), attribute or name)
