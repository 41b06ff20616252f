"""``dbdyno run``: plan first, then the climb, then the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, drive, present
from dbdyno.cli import command_options as commands
from dbdyno.cli import completion, screen
from dbdyno.cli.cluster_options import cluster_given, cluster_options
from dbdyno.cli.command_options import command_options
from dbdyno.cli.connection_words import connection_words, dsn_of
from dbdyno.cli.options import (
    SETTING,
    bin_dir_option,
    checked_output,
    dsn_option,
    engine_option,
    json_option,
    label_options,
    labels_of,
    memory_option,
    open_store,
    print_json,
    server_ssh_options,
    snapshots_option,
    store_option,
    waits_options,
)
from dbdyno.cli.rates import RATE_OPTIONS, rate_options
from dbdyno.cli.script_options import driver_of, script_options
from dbdyno.cli.script_options import overrides_of as script_options_given
from dbdyno.cli.trigger_options import trigger_options, triggers_given
from dbdyno.model.errors import EXIT_CUT_SHORT, EXIT_INTERRUPTED, UsageError
from dbdyno.model.schema.data_sources import options as optional_sources

if TYPE_CHECKING:
    from dbdyno.model.engine.machine import Machine
    from dbdyno.model.engine.protocols import Target
    from dbdyno.model.plan.plan import Plan


@click.command()
@click.argument("workload", required=False, shell_complete=completion.WORKLOADS_OR_FILES)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    shell_complete=completion.RECIPES_OR_FILES,
    help="Recipe to run; options override it.",
)
@script_options
@command_options
@click.option(
    "--sessions",
    "--ladder",
    "sessions",
    metavar="LADDER",
    help="Numbers of sessions: 1,2,4,8 | FROM:TO | FROM:TO:STEP | FROM:TO:x2 | auto | auto:TOP. auto "
    "searches around the knee, or around the target.  [default: 1, 2, 4 ... 4 x CPUs]",
)
@click.option(
    "--target",
    metavar="METRIC<LIMIT",
    help="Search for the highest number of sessions (with --rates auto: the highest rate) that meets "
    "'p95<20ms' (p50, p90, p95, p99, mean, max), or the fewest sessions that meet 'throughput>1000'.",
)
@click.option(
    "--rungs", type=click.IntRange(3, 200), help="Maximum number of load levels (auto).  [default: 16]"
)
@click.option("--measure", metavar="TIME", help="Duration of a measurement.  [default: 10s]")
@click.option("--settle", metavar="TIME", help="Warm-up before each measurement.  [default: 2s]")
@click.option(
    "--repeats", type=click.IntRange(1, 1000), help="Repeats; two or more give intervals.  [default: 1]"
)
@rate_options
@click.option(
    "--call-target",
    metavar="TIME",
    help="Duration of a call with one session.  [default: 300ms or less]",
)
@click.option(
    "--recalibrate",
    is_flag=True,
    default=None,
    help="Calibrate the size of a call anew; otherwise it is as in earlier runs on this machine.",
)
@click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    help="Workload parameter; repeatable.",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help="Limit for the server's processes: cpus=0-3, quota=1.5, bind=spread, pool=4 ...; repeatable.",
)
@click.option(
    "--driver",
    metavar="NAME=VALUE",
    multiple=True,
    help="Driver option: protocol=simple, pipeline=on, validation='SELECT 1', threads=2; repeatable.",
)
@click.option(
    "--order",
    type=click.Choice(["ladder", "interleaved", "shuffled"]),
    help="Order of the measurements.  [default: interleaved with several variants, else ladder]",
)
@click.option(
    "--reset",
    type=click.Choice(["each", "block", "never"]),
    help="Load the tables that dbdyno prepared again: before each measurement, or each repeat or round of "
    "variants (docs/resets.md).  [default: each where calls change rows]",
)
@click.option(
    "--expect",
    type=click.Choice(["disk", "cache", "memory"]),
    help="What is to be tested: disk (physical reads), cache (the server's), or memory (any cache; tables "
    "are read into it before each measurement); warns where it is not.",
)
@click.option("--cool-down", metavar="TIME", help="Pause before each measurement.  [default: none]")
@click.option(
    "--until",
    metavar="SHARE",
    help="Repeat until every 95 % interval is within this share: 2%.  [default: off]",
)
@click.option("--budget", metavar="TIME", help="Total time budget: 30min.")
@click.option("--baseline", metavar="VARIANT", help="Variant to compare with.  [default: the first]")
@click.option(
    "--all-variants",
    is_flag=True,
    help="Stop if a variant cannot be had here.  [default: it is left out if two or more remain]",
)
@click.option("--seed", type=int, help="Random seed for order and sampling times.  [default: 1]")
@click.option(
    "--sample-hz", type=click.FloatRange(0.1, 100), help="Activity samples per second.  [default: 10]"
)
@waits_options
@trigger_options
@click.option("--log-calls", is_flag=True, default=None, help="Store start, duration and CPU of every call.")
@click.option(
    "--no-observe",
    is_flag=True,
    help="Throughput and response times only; session time is not accounted for.",
)
@snapshots_option
@memory_option
@cluster_options
@engine_option("System under load.")
@dsn_option
@connection_words
@server_ssh_options
@bin_dir_option
@click.option(
    "--setting",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Server setting for the run, restored at the end; repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=checked_output,
    help="Also write a report: .html, .md or .xlsx.",
)
@label_options
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@store_option
@json_option
def run(**options: Any) -> None:
    """Measure throughput and session time as sessions increase.

    WORKLOAD is a name from `dbdyno workloads` or a recipe's .toml file; workload parameters may follow.
    Without --dsn, the embedded PostgreSQL is started, and stopped at the end. With --command no database is
    needed: a session runs the command again and again (docs/command.md).

    Ctrl-C stops the run after the calls in progress; completed measurements are kept and reported. A second
    Ctrl-C stops at once.

    \b
    Examples:
      dbdyno run lio
      dbdyno run lio --sessions 1:16 --param tables=own
      dbdyno run cpu --sessions 1,2,4,8 --measure 5s --repeats 3
      dbdyno run lio --ladder auto
      dbdyno run cpu --ladder auto:200 --repeats 3 --rungs 10
      dbdyno run lio --target 'p95<20ms'
      dbdyno run lio --rate 500
      dbdyno run lio --rates 100:2000:x1.5 --sessions 32
      dbdyno run lio --rates auto --target 'p99<20ms'
      dbdyno run -f queries.sql --dsn service=reporting --sessions 1:64:x2
      dbdyno run lio --dsn "host=db1 dbname=app" --server-ssh dba@db1
      dbdyno run -b tpcb-like -b select-only@9 -c 8 -j 2 -T 60
      dbdyno run tpcb-like --sessions 1,8 --reset each
      dbdyno run -f pay.sql -D warehouses=10 --max-tries 5 -r
      dbdyno run random-read blocks=64 scale=8192 update=20 --repeats 3
      dbdyno run lio --limit quota=1.5 --limit bind=spread
      dbdyno run recipes/limits.toml --until 2% --budget 30min
      dbdyno run --recipe demo --dry-run
      dbdyno run --command 'xz -T{threads} -kc {file}' threads=1,2,4 file=big.tar
      dbdyno run --command 'gzip -kc big.tar' --command 'zstd -kc big.tar' --runs 20
      dbdyno run --jobs builds.toml --orders serial,parallel,concurrent,both threads=1,8
      dbdyno run lio --dsn postgresql://app@db1/prod --cluster ray://head:10001 --sessions 300,1000,3000
      dbdyno run lio --sessions 10,20,30 --when 'sessions in (10,20,30)' --do 'profile 5s'
    """
    if "list" in options["builtins"]:
        for name in conduct.builtin_scripts(options["engine"] or ""):
            screen.say(name)
        return
    options["dsn"] = dsn_of(options)
    request = _request(options)
    where = conduct.server_ssh(request)
    _check_reach(where, options)
    cluster = None if options["dry_run"] else conduct.cluster_of(request)
    with (
        conduct.server_machine(where, options["ssh_command"]) as machine,
        conduct.crew_of(cluster, options["engine"] or "", options["dsn"]) as crew,
    ):
        _run(options, request, machine if crew is None or crew.machine is None else crew.machine, crew)


def _check_reach(where: str | None, options: dict[str, Any]) -> None:
    if where is not None and options["dsn"] is None:
        raise UsageError(
            "--server-ssh names the host of a server of yours, and no server was named",
            "--dsn says which; the embedded server runs on this host",
        )


def _run(
    options: dict[str, Any], request: conduct.Request, machine: Machine, crew: conduct.Crew | None
) -> None:
    labels = labels_of(options)
    host = conduct.host_of(machine)
    plan, workload = conduct.planned(request, host)
    if options["dry_run"]:
        from dbdyno.plan import supposed

        plan = supposed(plan, workload)
        print_json(plan.model_dump(mode="json")) if options["as_json"] else screen.plan_table(plan)
        return
    from dbdyno.cli import live

    progress = live.progress(plan, as_json=options["as_json"])
    interrupt = drive.Interrupt(progress.heard)
    with interrupt.caught(), progress:
        try:
            record = conduct.run(
                plan,
                workload,
                host,
                _target(options, plan, machine),
                open_store(options["store"]),
                progress,
                interrupt,
                labels,
                crew=crew,
                all_variants=options["all_variants"],
            )
        except drive.Interrupted as e:
            screen.interrupted(e, "anything was measured")
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    results = conduct.results_of(record)
    if options["as_json"]:
        print_json(present.document(results))
    else:
        screen.summary(results)
        if options["by_command"]:
            screen.out().print(present.details(results, "scripts"))
    screen.places(record, results, options["output"], quiet=options["as_json"])
    if record.info.status != "complete":
        screen.error(f"the run was cut short: {record.info.reason}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED if interrupt.stopping else EXIT_CUT_SHORT)


def _request(options: dict[str, Any]) -> conduct.Request:
    from dbdyno.plan import parse_params

    names = (
        "sessions",
        "target",
        "rungs",
        "measure",
        "settle",
        "repeats",
        *RATE_OPTIONS,
        "call_target",
        "recalibrate",
        "order",
        "reset",
        "cool_down",
        "expect",
        "until",
        "budget",
        "baseline",
        "seed",
        "sample_hz",
        "log_calls",
        "snapshots",
        "memory",
        "server_ssh",
        "waits",
        *(o.key for o in optional_sources()),
        "engine",
    )
    overrides = {n: options[n] for n in names}
    overrides |= script_options_given(options) | {"triggers": triggers_given(options)}
    overrides |= commands.overrides_of(options) | {"cluster": cluster_given(options)}
    workload, params = _words(options)
    if commands.runs_jobs(options, conduct.recipe_has_jobs(workload, options["recipe"])):
        overrides["axes"] = commands.parameters_of(params, options)
    elif params:
        overrides["params"] = parse_params(params)
    if options["settings"] and options["dsn"] is not None:
        overrides["settings"] = parse_params(options["settings"], *SETTING)
    for table, example in (("limits", "quota=2"), ("driver", "threads=4")):
        if options[table]:
            overrides[table] = parse_params(options[table], f"--{table.removesuffix('s')}", example)
    if driver := driver_of(options):
        overrides["driver"] = {**overrides.get("driver", {}), **driver}
    if options["no_observe"]:
        overrides["observe"] = False
    return conduct.Request(workload=workload, recipe=options["recipe"], overrides=overrides)


def _words(options: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The workload, and its parameters in whatever way they were given."""
    words = [w for w in (options["workload"], *options["more"]) if w is not None]
    named = [w for w in words if "=" not in w]
    if named and (options["commands"] or commands.jobs_file(options["jobs"])):
        raise UsageError(
            f"{named[0]!r} is neither a parameter nor part of a command",
            "a command is one word in quotes: --command 'sort --parallel={threads} FILE' threads=1,2,4",
        )
    if len(named) > 1:
        raise UsageError(
            f"one workload at a time: {', '.join(named)}", "its parameters are NAME=VALUE; dbdyno workloads"
        )
    return (named[0] if named else None), [*options["params"], *(w for w in words if "=" in w)]


def _target(options: dict[str, Any], plan: Plan, machine: Machine) -> Target:
    from dbdyno.model.engine.protocols import Target
    from dbdyno.plan import parse_params

    embedded = options["dsn"] is None
    settings = {k: str(v) for k, v in parse_params(options["settings"], *SETTING).items()} if embedded else {}
    return Target(
        dsn=options["dsn"],
        bin_dir=options["bin_dir"],
        sessions=plan.top + conduct.EXTRA_CONNECTIONS,
        settings=settings,
        machine=machine,
    )
