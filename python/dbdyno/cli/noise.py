"""``dbdyno noise``: how much equal measurements differ, and which differences a comparison can see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct
from dbdyno.cli import browser, completion, screen
from dbdyno.cli.connection_words import connection_words, dsn_of
from dbdyno.cli.flags import Command, Option
from dbdyno.cli.options import (
    bin_dir_option,
    dry_run_option,
    dsn_option,
    engine_option,
    json_option,
    label_options,
    report_option,
    server_ssh_options,
    store_option,
)
from dbdyno.cli.run import check_reach, run, run_planned
from dbdyno.cli.wait_options import wait_options
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import LOAD, MEASUREMENT, SERVER, WHAT
from dbdyno.model.units import NS_PER_S, format_ns, in_minutes, parse_duration_ns

if TYPE_CHECKING:
    from dbdyno.model.engine.environment import Host
    from dbdyno.model.plan.plan import Plan

QUESTION = "How small a difference can a comparison see here?"
RESTARTS = 5
"""Restarts of a server that dbdyno started, unless the user gives a number: of six starts the upper
bound of the variance is about twice the estimate."""


@click.command(cls=Command)
@click.argument("workload", required=False, shell_complete=completion.WORKLOADS_OR_FILES)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "-f",
    "--script",
    "files",
    cls=Option,
    group=WHAT,
    multiple=True,
    metavar="FILE",
    help="SQL file in pgbench's language; repeatable.",
)
@click.option(
    "--sessions",
    cls=Option,
    group=LOAD,
    common=True,
    type=click.IntRange(1),
    metavar="N",
    help="Number of sessions.  [default: as many as CPUs]",
)
@click.option(
    "--measure",
    cls=Option,
    group=MEASUREMENT,
    common=True,
    metavar="TIME",
    default="5s",
    show_default=True,
    help="Length of a window; a measurement has several: --windows.",
)
@click.option(
    "--windows",
    cls=Option,
    group=MEASUREMENT,
    common=True,
    type=click.IntRange(1, 1000),
    metavar="N",
    default=2,
    show_default=True,
    help="Windows in a row before the sessions connect anew.",
)
@click.option(
    "--restarts",
    cls=Option,
    group=MEASUREMENT,
    common=True,
    type=click.IntRange(0, 1000),
    metavar="N",
    help=f"Restarts of the embedded server in between; no other is restarted.  [default: {RESTARTS}]",
)
@click.option(
    "--time",
    cls=Option,
    group=MEASUREMENT,
    common=True,
    metavar="TIME",
    default="5min",
    show_default=True,
    help="Duration of the whole measurement.",
)
@click.option(
    "--see",
    cls=Option,
    group=MEASUREMENT,
    common=True,
    metavar="SHARE",
    default="2%",
    show_default=True,
    help="The difference to plan for.",
)
@click.option(
    "--settle",
    cls=Option,
    group=MEASUREMENT,
    metavar="TIME",
    help="Warm-up before each measurement.  [default: as dbdyno run]",
)
@click.option(
    "--setting",
    "settings",
    cls=Option,
    group=SERVER,
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the embedded server; repeatable.",
)
@dsn_option
@engine_option("System under load.")
@connection_words
@server_ssh_options
@bin_dir_option
@wait_options
@report_option()
@browser.open_option
@label_options
@dry_run_option
@store_option
@json_option
def noise(**options: Any) -> None:
    """Measure how small a difference a comparison can see here.

    Repeats one load: windows in a row, with new sessions, after restarts of the embedded server. Tells how
    many repeats a difference takes, and where noise comes from. Later comparisons say before they start
    what they can see. WORKLOAD as in dbdyno run. Ctrl-C keeps what was measured.

    \b
    Examples:
      dbdyno noise lio
      dbdyno noise lio --sessions 8 --time 15min --see 1%
      dbdyno noise random-read blocks=64 update=20 --measure 10s
      dbdyno noise -f queries.sql --dsn service=test

    \b
    Exit codes: 0 measured; 2 usage error, also if --time is too short;
    3 server error; 5 cut short; 130 Ctrl-C.
    """
    words = [w for w in (options["workload"], *options["more"]) if w is not None]
    named = [w for w in words if "=" not in w]
    if len(named) > 1 or bool(named) == bool(options["files"]):
        cure = "dbdyno noise lio, or -f FILE; its parameters are NAME=VALUE; dbdyno workload list"
        raise UsageError(f"{', '.join(named)}: one workload at a time" if named else "no workload", cure)
    options["workload"] = named[0] if named else None
    # Options that dbdyno run alone has are as if nobody gave them there.
    options = run.make_context("run", [], resilient_parsing=True).params | options
    options["dsn"] = dsn_of(options)
    check_reach(options["server_ssh"], options)
    if options["restarts"] and options["dsn"] is not None and options["engine"] is None:
        raise UsageError(
            f"--restarts {options['restarts']}: dbdyno restarts only servers that it started itself",
            "leave out --dsn or --restarts",
        )
    with conduct.server_machine(options["server_ssh"], options["ssh_command"]) as machine:
        request = _fitted(options, [w for w in words if "=" in w], conduct.host_of(machine))
        if not options["dry_run"] and (others := conduct.others_now(machine)):
            screen.err().print(f"{others}; noise is measured with them", style="yellow")
        run_planned(options, request, machine, None)


def _fitted(options: dict[str, Any], params: list[str], host: Host) -> conduct.Request:
    """Returns the request with as many measurements as the time allows. Raises :class:`UsageError` if they
    are too few."""
    from dbdyno.stats.noise_budget import LEAST_CELLS, LEAST_STARTS  # here, since it imports numpy

    time_ns = parse_duration_ns(options["time"], "--time")
    given = options["restarts"]
    starts = (RESTARTS if given is None else given) + 1
    if options["dsn"] is not None and given is None and options["engine"] is None:
        starts = 1

    unlimited = {**options, "time": None}
    plans = [conduct.planned(_request(unlimited, params, host, n, 1), host)[0] for n in (1, 2)]
    if what := _not_one_load(plans[0]):
        raise UsageError(
            f"dbdyno noise repeats one load, and {options['workload']} has {what}",
            "name a workload or -f FILE; or a recipe of one variant with a fixed number of sessions",
        )
    one_ns, two_ns = (plan.expected_ns for plan in plans)
    each_ns = two_ns - one_ns
    least_ns = one_ns + (LEAST_CELLS - 1) * each_ns
    if least_ns > time_ns:
        raise UsageError(
            f"--time {options['time']}: {LEAST_CELLS} measurements take {in_minutes(least_ns)}",
            "a longer --time, or a shorter --measure",
        )
    room = 1 + int((time_ns - one_ns - (starts - 1) * NS_PER_S) / each_ns)
    if room // starts < 2 and given:
        needed_ns = one_ns + (2 * starts - 1) * each_ns + (starts - 1) * NS_PER_S
        raise UsageError(
            f"--time {options['time']}: two measurements on each of {starts} starts of the server take "
            + in_minutes(needed_ns),
            "a longer --time, fewer --restarts, or a shorter --measure",
        )
    if room // starts < 2:
        starts = room // 2 if room // 2 >= LEAST_STARTS else 1
    return _request(options, params, host, room // starts, starts)


def _not_one_load(plan: Plan) -> str:
    """Returns what a recipe has beyond one load that is repeated; empty if nothing."""
    experiment = plan.experiment
    if plan.jobs:
        return "commands"
    if experiment.phases:
        return "phases"
    if plan.adaptive is not None or experiment.until is not None:
        return "no fixed loads or repeats"
    if any(c.rate_per_s is not None for c in plan.cells):
        return "a rate"
    return "" if len(plan.variants) == 1 else f"{len(plan.variants)} variants"


def _request(
    options: dict[str, Any], params: list[str], host: Host, per_start: int, starts: int
) -> conduct.Request:
    from dbdyno.plan import parse_params

    window_ns = parse_duration_ns(options["measure"], "--measure")
    fields: dict[str, Any] = {
        "name": "noise",
        "doc": QUESTION,
        "answer": ("noise", "noise-restarts"),
        "sessions": str(options["sessions"] or max(1, int(host.limits.usable_cpus))),
        "measure": format_ns(window_ns * options["windows"]).replace(" ", ""),
        "repeats": per_start * starts,
        "budget": options["time"],
        "noise": {
            "window": options["measure"],
            "windows": options["windows"],
            "restarts": starts - 1,
            "per_start": per_start,
            "see": _share(options["see"]),
        },
    }
    for name in ("settle", "engine", "server_ssh"):
        if options[name] is not None:
            fields[name] = options[name]
    if options["files"]:
        fields["scripts"] = tuple({"file": file} for file in options["files"])
    if params:
        fields["variables" if options["files"] else "params"] = parse_params(params)
    if options["dsn"] is not None and options["settings"]:
        raise UsageError("--setting is for the embedded server", "leave out --dsn, or set it there yourself")
    return conduct.Request(options["workload"], None, conduct.Patch(fields))


def _share(text: str) -> float:
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d+)?)\s*%\s*", text)
    share = float(match[1]) / 100 if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--see {text}: not a difference", "write 2%: more than 0%, less than 100%")
    return share
