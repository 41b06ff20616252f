"""What the gateway unpickles: plain data and exceptions, nothing that could run code.

Ray hands over results and errors as pickles. One that a node has forged calls what it likes in the process
that reads it, unless that process refuses all that a pickle names.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any


def refuse_code() -> None:
    """From now on each unpickling in this process fails that names more than an exception of Python's or
    Ray's. It cannot be taken back."""
    sys.addaudithook(_check)  # sees all ways to load a pickle: C's, Python's, and subclasses of either


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and not _is_exception(*arguments):
        module, name = arguments
        raise pickle.UnpicklingError(f"refused: an answer names {module}.{name}, which is no plain data")


def _is_exception(module: object, name: object) -> bool:
    if module not in ("builtins", "ray.exceptions") or module not in sys.modules:
        return False
    named = vars(sys.modules[str(module)]).get(str(name))  # a name with dots leads further, and is not in it
    return isinstance(named, type) and issubclass(named, Exception)
