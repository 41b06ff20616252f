"""Packages whose names are loaded when they are first used (PEP 562), so that each command starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``. ``places``: public name -> the module of the package that has it."""

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
