"""Packages whose public names are loaded when they are first used, so that each command starts quickly.

Such a package calls :func:`lazy` with a table of them, and imports them for type checkers (PEP 562)::

    if TYPE_CHECKING:
        from package.module import name

    lazy(__name__, {"name": "package.module"})

A signal that comes meanwhile is heard when the module is there: in the middle of an import its exception may
come out as any other.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

EXIT_INTERRUPTED = 130  # that of dbdyno.model.errors, which may not be loaded yet
INTERRUPTED = b"interrupted\n"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def lazy(package: str, table: Mapping[str, str]) -> None:
    """``table``: name -> module that has it, or ``module:name there``. Each is loaded at its first use."""
    module = sys.modules[package]
    module.__dict__["_lazy"] = table
    module.__class__ = Lazy


@contextmanager
def uncollected() -> Iterator[None]:
    """Within it no garbage is looked for: modules leave little, and each look goes through all of them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def quick_end() -> None:
    """The process does not look for garbage once more when it ends: all that it has loaded is gone then. Of
    what is left DuckDB would say that it leaks."""
    atexit.register(lambda: None if "duckdb" in sys.modules else gc.freeze())


@uncollected()
def ready() -> None:
    """Loads all names of all such packages: nothing is to be loaded while something is measured."""
    done: set[str] = set()
    while todo := [m for m in list(sys.modules.values()) if isinstance(m, Lazy) and m.__name__ not in done]:
        for module in todo:
            done.add(module.__name__)
            for name in module.__dict__["_lazy"]:
                getattr(module, name)


@contextmanager
def at_once() -> Iterator[None]:
    """Within it Ctrl-C, SIGTERM and SIGHUP end the program at once, without a traceback: nothing was begun
    that would have to be put back, and an exception in the middle of an import may come out as any other."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in _SIGNALS}
    ours = {s: handler for s, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for sign in ours:
        signal.signal(sign, _end)
    try:
        with uncollected():
            yield
    finally:
        for sign, handler in ours.items():
            signal.signal(sign, handler)


def _end(*_: object) -> None:
    os.write(2, INTERRUPTED)
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within it modules are loaded; the handlers of signals run at its end."""
    heard: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    before = {s: handler for s in _SIGNALS if in_main and callable(handler := signal.getsignal(s))}
    for sign in before:
        signal.signal(sign, lambda number, _: heard.append(number))
    try:
        with uncollected():
            yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        for number in dict.fromkeys(heard):
            signal.raise_signal(number)


class Lazy(ModuleType):
    """A package after :func:`lazy`."""

    def __getattr__(self, name: str) -> Any:
        try:
            module, _, attribute = self.__dict__["_lazy"][name].partition(":")
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
        with undisturbed():
            value = self.__dict__[name] = getattr(import_module(module), attribute or name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """A submodule that was loaded does not hide a public name that is spelt like it."""
        taken = name in self.__dict__ or name in self.__dict__["_lazy"]
        if not (taken and isinstance(value, ModuleType)):
            super().__setattr__(name, value)
