"""Runs work that consists of thousands of small queries on a thread of polars.

From any other thread each query is passed to polars' threads and waited for. That takes two context switches
and wakes another CPU, which costs as much as a small query itself. On a thread of polars, a query is a plain
call.
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
    def passed_on(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: Future[_T] = Future()

        def call(frame: pl.DataFrame) -> pl.DataFrame:
            try:
                result.set_result(work(*args, **kwargs))
            except BaseException as error:  # including Ctrl-C
                result.set_exception(error)
            return frame

        pl.LazyFrame({"one": [1]}).map_batches(call).collect()
        return result.result()

    return passed_on
