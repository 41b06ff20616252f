"""Hostile arguments for the core's functions, and calls that raise documented errors alone."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dbdyno import _core

ALLOWED = (ValueError, OverflowError, TypeError, OSError, BufferError, _core.CoreError)
"""Exceptions that a call may raise (UnicodeEncodeError is a ValueError)."""
CALL_S = 60
"""A call that takes longer hangs. None takes a second on an idle machine."""
HUGE = 2**63 - 1

NUMBERS: list[Any] = [-1, 0, 1, -(2**63), 2**31, 2**32, HUGE, 2**63, 2**64, True]
FLOATS: list[Any] = [math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324]
TEXTS: list[Any] = [
    "",
    "\0",
    "a\0b",
    "\ud800",
    "\U0010ffff",
    "x" * 1_000_000,
    "../" * 5000,
    "/dev/zero",
    "[" * 100_000,
]
OTHERS: list[Any] = [None, b"", b"\xff", [], {}, (), object(), [None], {"": None}]
ANY: list[Any] = [*NUMBERS, *FLOATS, *TEXTS, *OTHERS]


def attempt(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call, or the exception that it may raise."""
    faulthandler.dump_traceback_later(CALL_S, exit=True)
    try:
        return call(*arguments)
    except ALLOWED as error:
        return error
    except BaseException as error:
        shown = ", ".join(repr(a)[:2000] for a in arguments)
        raise SystemExit(
            f"{getattr(call, '__name__', call)}({shown}): {type(error).__name__}: {error}"
        ) from error
    finally:
        faulthandler.cancel_dump_traceback_later()


def each_argument(call: Callable[..., Any], *good: Any) -> None:
    """``call`` with each of its arguments hostile in turn, with too few and too many."""
    for place in range(len(good)):
        for value in ANY:
            attempt(call, *good[:place], value, *good[place + 1 :])
    for count in range(len(good)):
        attempt(call, *good[:count])
    attempt(call, *good, None)


def each_order(make: Callable[[], Any], methods: Mapping[str, tuple[Any, ...]]) -> None:
    """Each pair of methods in either order, alone on an object, and all of them from four threads at once."""
    for first, arguments in methods.items():
        for second in methods:
            subject = make()
            attempt(getattr(subject, first), *arguments)
            attempt(getattr(subject, second), *methods[second])
            attempt(getattr(subject, first), *arguments)
    subject, failures = make(), []

    def all_of_them(turn: int) -> None:
        names = list(methods)
        try:
            for name in names[turn:] + names[:turn]:
                for _ in range(5):
                    with contextlib.suppress(*ALLOWED):
                        getattr(subject, name)(*methods[name])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=all_of_them, args=(turn,)) for turn in range(4)]
    faulthandler.dump_traceback_later(CALL_S, exit=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    faulthandler.cancel_dump_traceback_later()
    if failures:
        raise SystemExit(f"{type(subject).__name__} from several threads: {failures!r}")
