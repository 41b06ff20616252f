"""``dbdyno analyze``: how a system scales, from a file of sessions and throughput or a stored run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.browser import opens
from dbdyno.cli.completion import RUNS_OR_FILES
from dbdyno.cli.flags import Grouped, Option
from dbdyno.cli.options import checked_output, json_option, open_store, print_json, store_option
from dbdyno.conclude.scaling import NAMES
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import OUTPUT
from dbdyno.model.units import parse_duration_ns

if TYPE_CHECKING:
    from dbdyno.model.results.analyses import Machine, Scaling
    from dbdyno.model.results.results import Results
    from dbdyno.store.ladder_csv import Columns


_F = TypeVar("_F", bound=Callable[..., Any])

_COLUMNS = {
    "load": "sessions, clients, threads, N",
    "throughput": "tps, rate, X",
    "response": "response time, mean",
    "response_p95": "response time, 95th percentile",
    "cpu": "CPU seconds per second",
    "cpu_user": "its user part",
    "cpu_system": "its system part",
    "cpu_wait": "seconds in the run queue per second",
    "repeat": "number of the repeat",
}
_UNITS = {
    "load": ("UNIT", "Unit of load: threads."),
    "throughput": ("UNIT", "Unit of throughput in the file: orders/s, k tx/h."),
    "response": ("s|ms|us|ns", "Unit of response times, whatever the headings say."),
    "duration": ("s|ms|us|ns", "Unit of a column of durations."),
    "cpu": ("%|s|ms|us|ns", "Unit of CPU columns; times are over the duration."),
}


def column_options(f: _F) -> _F:
    """Adds options that say which column is which, and how numbers are written."""
    f = click.option(
        "--where", metavar="COL=VALUE", multiple=True, help="Only lines with this value in this column."
    )(f)
    f = click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign.  [default: detected]")(f)
    for name, (metavar, what) in reversed(_UNITS.items()):
        f = click.option(f"--{name}-unit", metavar=metavar, help=what)(f)
    f = click.option(
        "--duration",
        metavar="COL|TIME",
        help="Length of each measurement, for columns of counts and CPU seconds: a column, or 60s.",
    )(f)
    for name, what in reversed(_COLUMNS.items()):
        option = f"--{name.replace('_', '-')}"
        f = click.option(option, name, metavar="COL", help=f"Column of a file: {what}.")(f)
    return f


def machine_options(f: _F) -> _F:
    """Adds options for facts that a file of sessions and throughput lacks."""
    f = click.option("--think", metavar="TIME", help="Think time between calls: 10ms.")(f)
    f = click.option(
        "--threads-per-core",
        cls=Option,
        metavar="N",
        type=click.IntRange(1, 16),
        help="Hardware threads of a core.",
    )(f)
    f = click.option("--cores", type=float, metavar="N", help="Cores of the measured machine.")(f)
    return click.option(
        "--cpus", type=float, metavar="N", help="CPUs (hardware threads) available to the system."
    )(f)


def columns_of(options: Mapping[str, Any]) -> Columns:
    """Raises UsageError for a --where without a value."""
    from dbdyno.store.ladder_csv import Columns

    where = {}
    for text in options["where"]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--where {text!r}: not a condition", "write COLUMN=VALUE")
        where[name.strip()] = value
    units = (f"{name}_unit" for name in _UNITS)
    names = {name: options[name] for name in (*_COLUMNS, *units, "duration", "decimal")}
    return Columns(**names, where=where)


def machine_of(options: Mapping[str, Any]) -> Machine:
    """Derives CPUs, cores or threads per core from the other two. Raises UsageError if they contradict each
    other."""
    from dbdyno.model.results.analyses import Machine

    cpus, cores, threads = options["cpus"], options["cores"], options["threads_per_core"]
    for name, value in (("--cpus", cpus), ("--cores", cores)):
        if value is not None and not 0 < value < 1e6:
            raise UsageError(f"{name} {value:g}: not a possible number", "more than 0")
    if cpus and cores and cpus < cores:
        raise UsageError(
            f"{cpus:g} CPUs of {cores:g} cores", "CPUs are hardware threads: --cpus is the larger"
        )
    if cpus and cores and threads and cpus != cores * threads:
        raise UsageError(
            f"{cores:g} cores with {threads} threads each are {cores * threads:g} CPUs, not {cpus:g}",
            "leave out one of --cpus, --cores, --threads-per-core: it follows from the others",
        )
    if cpus is None and cores and threads:
        cpus = cores * threads
    if cores is None and cpus and threads:
        cores = cpus / threads
        if cpus == int(cpus) and cores != int(cores):  # a quota's CPUs need not be a whole number
            raise UsageError(
                f"{cpus:g} CPUs are not a whole number of cores with {threads} threads each", "--cores N"
            )
    if threads is None and cpus and cores and (cpus / cores).is_integer():
        threads = int(cpus / cores)
    return Machine(cpus=cpus, cores=cores, threads_per_core=threads)


def think_s(options: Mapping[str, Any]) -> float | None:
    return None if options["think"] is None else parse_duration_ns(options["think"], "--think") / 1e9


def _file_options(options: Mapping[str, Any]) -> list[str]:
    """Returns the given options that only apply to files."""
    return [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, ())]


_GROUPS = {
    "Model and predictions": (
        *("model", "predict", "response_target", "throughput_target", "think", "smt_yield", "seed"),
    ),
    "Columns of a file": (
        *("load", "throughput", "response", "response_p95", "cpu", "cpu_user", "cpu_system", "cpu_wait"),
        *("repeat", "duration", "where"),
    ),
    "Units of a file": (
        *("load_unit", "throughput_unit", "response_unit", "duration_unit", "cpu_unit", "decimal"),
    ),
    "Machine": ("cpus", "cores", "threads_per_core"),
    OUTPUT: ("output", "open_page"),
}
"""Heading of the help -> parameters."""


@click.command(cls=Grouped, groups=_GROUPS)
@click.argument("target", metavar="[FILE|RUN]", default="last", shell_complete=RUNS_OR_FILES)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=checked_output,
    help="Write an HTML report; Markdown or Excel if FILE ends in .md or .xlsx.",
)
@click.option(
    "--model", metavar="MODEL", type=click.Choice(NAMES), help=f"Fit only this model: {', '.join(NAMES)}."
)
@click.option(
    "--predict", type=float, multiple=True, metavar="N", help="Predict throughput at this load; repeatable."
)
@click.option(
    "--response-target",
    multiple=True,
    metavar="TIME",
    help="Predict the load at this response time; repeatable.",
)
@click.option(
    "--throughput-target",
    type=float,
    multiple=True,
    metavar="X",
    help="Predict the load at this throughput; repeatable.",
)
@click.option(
    "--smt-yield",
    metavar="Y|X1:X2",
    help="Without a file: CPU inflation by an SMT yield, or by the rates with one thread a core and all.",
)
@click.option("--seed", metavar="N", type=int, default=1, show_default=True, help="Random seed.")
@column_options
@machine_options
@store_option
@json_option
@opens("analyze")
def analyze(
    target: str,
    output: Path | None,
    model: str | None,
    predict: tuple[float, ...],
    response_target: tuple[str, ...],
    throughput_target: tuple[float, ...],
    smt_yield: str | None,
    seed: int,
    store: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show how a system scales: model, knee, peak, prediction.

    FILE has lines of sessions and throughput, optionally response time, CPU, repeat; "-" is standard input.
    Columns are recognized by their headings: sessions, clients, threads, N; throughput, tps, qps, rate;
    response_ms, latency (us); cpu_user; repeat. RUN is a stored run. See dbdyno help analyze.

    \b
    Examples:
      dbdyno analyze ladder.csv
      dbdyno analyze ladder.csv --cores 8 --threads-per-core 2 -o scaling.html
      dbdyno analyze bench.tsv --load clients --throughput tps --response-unit ms
      dbdyno analyze ladder.csv --predict 200 --response-target 20ms
      dbdyno analyze all.csv --where machine=db1 --model usl --json \\
          | jq .scalings[0].fits[0]
      psql -AXF, -c 'select clients, tps from tests' | dbdyno analyze -
      dbdyno analyze --smt-yield 1.31
      dbdyno analyze last
    """
    if smt_yield is not None:
        _show_smt_yield(smt_yield, target, given, output, as_json)
        return
    seconds = [_seconds(text) for text in response_target]
    _positive(predict, throughput_target)
    results: Results | None = None
    if _is_file(target):
        scalings = _scalings_of_file(target, model, seed, given)
    else:
        scalings, results = _scalings_of_run(target, model, seed, store, given)
    if predict or seconds or throughput_target:
        from dbdyno.conclude.scaling.asked import asked

        scalings = tuple(asked(m, predict, seconds, throughput_target) for m in scalings)
    if output is not None:
        present.write(present.scaling(scalings, results), output)
    if as_json:
        print_json(present.scaling_json(scalings))
        return
    screen.out().print(present.printed(present.scaling(scalings, results)), crop=False)
    if output is not None:
        screen.report_path(output)


def _show_smt_yield(
    text: str, target: str, given: dict[str, Any], output: Path | None, as_json: bool
) -> None:
    from dbdyno.conclude.scaling import smt

    if target != "last":
        raise UsageError(f"--smt-yield needs no ladder: {target}", "leave one of the two out")
    claims = smt.given(text, machine_of(given).threads_per_core)
    document = present.claims("SMT yield", claims)
    if output is not None:
        present.write(document, output)
    if as_json:
        print_json({"answers": [c.model_dump(mode="json") for c in claims]})
        return
    screen.out().print(present.printed(document), crop=False)


def _scalings_of_file(
    target: str, model: str | None, seed: int, given: dict[str, Any]
) -> tuple[Scaling, ...]:
    from dbdyno.conclude.scaled import scaled
    from dbdyno.conclude.scaling import smt
    from dbdyno.store.ladder_csv import read_ladder

    ladder = read_ladder(target, columns_of(given), machine=machine_of(given), think_s=think_s(given))
    smt.agree(ladder)
    return (scaled(ladder, model=model, seed=seed),)


def _scalings_of_run(
    target: str, model: str | None, seed: int, store: Path | None, given: dict[str, Any]
) -> tuple[tuple[Scaling, ...], Results]:
    extra = _file_options(given)
    if extra:
        raise UsageError(
            f"{', '.join(extra)} apply to files only",
            "leave them out: columns, units and machine of a run are stored with it",
        )
    record = open_store(store).open(target)
    if model is None and seed == 1:  # the stored scalings have these
        results = conduct.results_of(record)
        scalings = results.scaling
    else:
        from dbdyno.conclude.scaled import scalings_of

        results = conduct.derived_of(record)
        scalings = scalings_of(results, model=model, seed=seed)
    if not scalings:
        raise UsageError(
            f"{record.id} was measured at one load, and analyze needs several",
            f"dbdyno show {record.id} shows it",
        )
    return scalings, results


def _seconds(text: str) -> float:
    seconds = parse_duration_ns(text) / 1e9
    if seconds <= 0:
        raise UsageError("--response-target 0: not a time above 0", "write a time: 20ms")
    return seconds


def _positive(loads: tuple[float, ...], rates: tuple[float, ...]) -> None:
    for option, values in (("--predict", loads), ("--throughput-target", rates)):
        wrong = next((v for v in values if not 0 < v < math.inf), None)
        if wrong is not None:
            raise UsageError(f"{option} {wrong:g}: not a number above 0", "for example 100")


def _is_file(word: str) -> bool:
    """Returns whether ``word`` is a file, or looks like one: the id of a run has no dot and no slash."""
    path = Path(word)
    return word == "-" or (path.exists() and not path.is_dir()) or "/" in word or "." in word
