"""Lets the gateway unpickle plain data and exceptions only, nothing that could run code.

Ray sends results and errors as pickles. A forged one runs any code in the process that reads it, unless that
process refuses the names in the pickle.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any


def refuse_code() -> None:
    """Makes each unpickling in this process fail that names anything but an exception of Python or Ray.
    Cannot be undone."""
    sys.addaudithook(_check)  # an audit hook sees all unpicklers: C's, Python's, and their subclasses


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and not _is_exception(*arguments):
        module, name = arguments
        raise pickle.UnpicklingError(f"refused: an answer names {module}.{name}, which is no plain data")


def _is_exception(module: object, name: object) -> bool:
    if module not in ("builtins", "ray.exceptions") or module not in sys.modules:
        return False
    # a dotted name, which could reach other modules, is not a key
    named = vars(sys.modules[str(module)]).get(str(name))
    return isinstance(named, type) and issubclass(named, Exception)
