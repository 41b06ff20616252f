"""Runs work that consists of thousands of small queries on a thread of polars

From any other thread each query is handed to those and waited for: two switches each, and wake-ups of another
CPU, which cost as much as the queries where these are small. On such a thread a query is a call.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import ParamSpec, TypeVar

import polars as pl

_P = ParamSpec("_P")
_T = TypeVar("_T")


def on_polars_thread(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Returns ``work`` so that a call runs on a polars thread and waits for it; its exceptions are raised in
    the caller."""

    @wraps(work)
    def there(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        done: Future[_T] = Future()

        def call(frame: pl.DataFrame) -> pl.DataFrame:
            try:
                done.set_result(work(*args, **kwargs))
            except BaseException as error:  # Ctrl-C, too
                done.set_exception(error)
            return frame

        pl.LazyFrame({"one": [1]}).map_batches(call).collect()
        return done.result()

    return there
