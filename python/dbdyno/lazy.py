"""Packages whose public names are imported at their first use, so that each command starts quickly.

Such a package imports them for type checkers, and calls :func:`lazy`, which reads them there (PEP 562)::

    if TYPE_CHECKING:
        from package.module import name

    lazy(__name__)

Signals are handled after an import: within it, code could turn the handler's exception into another one.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

EXIT_INTERRUPTED = 130  # as in dbdyno.model.errors, which may not be imported yet
INTERRUPTED = b"interrupted\n"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def lazy(package: str) -> None:
    """Loads each name of the package's TYPE_CHECKING block at its first use."""
    module = sys.modules[package]
    # Not by ast, which takes longer to load than all of this.
    source = Path(str(module.__file__)).read_text("utf-8").partition("\nif TYPE_CHECKING:\n")[2]
    block = re.split(r"\n(?=\S)", source, maxsplit=1)[0]
    table = module.__dict__["_lazy"] = {}
    for place, listed, line in re.findall(r"(?m)^    from (\S+) import (?:\(([^)]*)\)|(.+))$", block):
        for name in filter(None, map(str.strip, (listed or line).split(","))):
            original, _, alias = name.partition(" as ")
            table[alias or original] = (place, original)
    module.__class__ = Lazy


@contextmanager
def uncollected() -> Iterator[None]:
    """Disables garbage collection: imports leave little garbage, but each collection would visit all of
    their objects."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def quick_end() -> None:
    """Skips the garbage collection at the end of the process, when everything is freed anyway.

    Not with DuckDB, which would report the objects as leaked.
    """
    atexit.register(lambda: None if "duckdb" in sys.modules else gc.freeze())


@uncollected()
def ready() -> None:
    """Imports all names of all lazy packages, so that nothing is imported during a measurement."""
    complete: set[str] = set()
    while todo := [
        m for m in list(sys.modules.values()) if isinstance(m, Lazy) and m.__name__ not in complete
    ]:
        for module in todo:
            complete.add(module.__name__)
            for name in module.__dict__["_lazy"]:
                getattr(module, name)
    gc.freeze()  # a full collection would visit some 100,000 objects of modules, 60 ms each time


@contextmanager
def at_once() -> Iterator[None]:
    """Lets Ctrl-C, SIGTERM and SIGHUP end the program at once, without a traceback.

    For imports before anything has begun: there is nothing to undo, and code within an import could turn
    KeyboardInterrupt into another exception.
    """
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
    """Delays the handlers of signals to the end of the context, for imports."""
    received: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    before = {s: handler for s in _SIGNALS if in_main and callable(handler := signal.getsignal(s))}
    for sign in before:
        signal.signal(sign, lambda number, _: received.append(number))
    try:
        with uncollected():
            yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        for number in dict.fromkeys(received):
            signal.raise_signal(number)


class Lazy(ModuleType):
    """A package that :func:`lazy` was called for."""

    def __getattr__(self, name: str) -> Any:
        try:
            module, original = self.__dict__["_lazy"][name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
        with undisturbed():
            value = self.__dict__[name] = getattr(import_module(module), original)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Ignores an imported submodule if a public name of the package is equal to its name."""
        is_public = name in self.__dict__ or name in self.__dict__["_lazy"]
        if not (is_public and isinstance(value, ModuleType)):
            super().__setattr__(name, value)
