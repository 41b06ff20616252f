"""``--metrics`` and its companions: where a run or an observation serves its figures to Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno.cli import screen
from dbdyno.cli.flags import Option
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import OUTPUT

if TYPE_CHECKING:
    from dbdyno.conduct.metrics.exporter import Exporter

_F = TypeVar("_F", bound=Callable[..., Any])


def metrics_options(f: _F) -> _F:
    """Adds ``--metrics``, ``--metrics-token-file``, ``--metrics-open`` and ``--metrics-file``, which
    :func:`exporting` reads."""
    option = partial(click.option, cls=Option, group=OUTPUT)
    path = click.Path(path_type=Path, dir_okay=False)
    f = option(
        "--metrics-file",
        metavar="FILE",
        type=path,
        help="Write the metrics to this file after each window, for the textfile collector of node_exporter. "
        "Its name ends in .prom.",
    )(f)
    f = option(
        "--metrics-open",
        is_flag=True,
        help="Ask scrapers for no token: whoever reaches the address can read.",
    )(f)
    f = option(
        "--metrics-token-file",
        metavar="FILE",
        type=path,
        help="File with the token that scrapers send; made if absent.  "
        "[default: $XDG_DATA_HOME/dbdyno/metrics-token]",
    )(f)
    return option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve OpenMetrics for Prometheus there: 127.0.0.1:9187, or a port alone (dbdyno help metrics).",
    )(f)


@contextlib.contextmanager
def exporting(options: dict[str, Any]) -> Iterator[Exporter | None]:
    """Yields the exporter that the options ask for, and says where it is. Raises :class:`UsageError`."""
    address, token_file, file = (options[n] for n in ("metrics", "metrics_token_file", "metrics_file"))
    if address is None and (token_file is not None or options["metrics_open"]):
        option = "--metrics-open" if token_file is None else "--metrics-token-file"
        raise UsageError(f"{option} is for an address to be scraped", "add --metrics 127.0.0.1:9187")
    if token_file is not None and options["metrics_open"]:
        raise UsageError("--metrics-token-file and --metrics-open exclude each other", "give one of them")
    if address is None and file is None:
        yield None
        return
    from dbdyno.conduct.metrics.exporter import Destination, Exporter  # here, since few ask for it

    exporter = Exporter(Destination(address, token_file, options["metrics_open"], file))
    if exporter.url is not None:
        token = f", with the token in {exporter.token_file}" if exporter.token_file else ", without a token"
        screen.note(f"metrics: {exporter.url}{token}")
        if not exporter.is_local:
            screen.note(
                "! metrics: other hosts reach this address; the token and the figures cross the network "
                "unencrypted"
                if exporter.token_file
                else "! metrics: whoever reaches this address, on other hosts too, can read the figures"
            )
    with exporter:
        yield exporter
