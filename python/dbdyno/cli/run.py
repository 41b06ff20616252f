"""``dbdyno run``: plans, measures, reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, drive, present
from dbdyno.cli import browser, completion, screen
from dbdyno.cli import command_options as commands
from dbdyno.cli import script_options as scripts
from dbdyno.cli.command_options import command_options
from dbdyno.cli.connection_words import connection_words, dsn_of
from dbdyno.cli.flags import Command, Option, fields_given, flag_options
from dbdyno.cli.gate_options import Judged, check_gate, fail_on_option, judged_run
from dbdyno.cli.metrics_options import exporting, metrics_options
from dbdyno.cli.options import (
    SETTING,
    bin_dir_option,
    dry_run_option,
    dsn_option,
    engine_option,
    json_option,
    label_options,
    open_store,
    print_json,
    report_option,
    server_ssh_options,
    store_option,
)
from dbdyno.cli.script_options import script_options
from dbdyno.cli.source_options import source_options
from dbdyno.cli.suite_options import suite_options
from dbdyno.cli.trigger_options import trigger_options, triggers_given
from dbdyno.cli.wait_options import wait_options
from dbdyno.model.errors import EXIT_CUT_SHORT, EXIT_INTERRUPTED, UsageError
from dbdyno.model.plan.flags import MEASUREMENT, RUN, WHAT
from dbdyno.model.plan.kinds import every_one_failed

if TYPE_CHECKING:
    from dbdyno.model.engine.machine import Machine
    from dbdyno.model.engine.protocols import Target
    from dbdyno.model.plan.plan import Plan, Workload
    from dbdyno.store import Run


@click.command(cls=Command)
@click.argument("workload", required=False, shell_complete=completion.WORKLOADS_OR_FILES)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--recipe",
    cls=Option,
    group=WHAT,
    common=True,
    metavar="NAME|FILE",
    shell_complete=completion.RECIPES_OR_FILES,
    help="Recipe to run; options override it.",
)
@suite_options
@script_options
@command_options
@dsn_option
@engine_option("System under load.")
@connection_words
@server_ssh_options
@bin_dir_option
@flag_options(RUN)
@click.option(
    "--all-variants",
    cls=Option,
    group=MEASUREMENT,
    is_flag=True,
    help="Stop if a variant is not possible here.  [default: it is left out if two or more remain]",
)
@wait_options
@source_options
@trigger_options
@report_option()
@browser.open_option
@fail_on_option("comparison")
@metrics_options
@label_options
@dry_run_option
@store_option
@json_option
def run(**options: Any) -> None:
    """Measure throughput and session time as sessions increase.

    WORKLOAD is a name from `dbdyno workload list` or a recipe's .toml file; its parameters may follow.
    Without --dsn, the embedded PostgreSQL is started, and stopped at the end; --command needs no database
    (dbdyno help command). Options of pgbench (-b, -c, -j, -M, -S, -T and others) are understood (dbdyno help
    pgbench). Ctrl-C stops the run after the calls in progress; completed measurements are kept. A second
    one stops at once.

    \b
    Examples:
      dbdyno run lio
      dbdyno run cpu --sessions 1,2,4,8 --measure 5s --repeats 3
      dbdyno run -f queries.sql --dsn service=reporting --sessions 1:64:x2
      dbdyno run lio --target 'p95<20ms'
      dbdyno run lio --sessions 1:16 --param tables=own
      dbdyno run lio --ladder auto
      dbdyno run cpu --ladder auto:200 --repeats 3 --rungs 10
      dbdyno run lio --rate 500
      dbdyno run lio --rates 100:2000:x1.5 --sessions 32
      dbdyno run lio --rates auto --target 'p99<20ms'
      dbdyno run lio --dsn "host=db1 dbname=app" --server-ssh dba@db1
      dbdyno run -b tpcb-like -b select-only@9 -c 8 -j 2 -T 60
      dbdyno run tpcb-like --sessions 1,8 --reset each
      dbdyno run -f pay.sql -D warehouses=10 --max-tries 5 -r
      dbdyno run random-read blocks=64 scale=8192 update=20 --repeats 3
      dbdyno run lio --limit quota=1.5 --limit bind=spread
      dbdyno run lio --servers 17,18,/opt/pg/bin --repeats 5
      dbdyno run recipes/limits.toml --until 2% --budget 30min
      dbdyno run --recipe demo --dry-run
      dbdyno run --suite micro --recipe versions.toml
      dbdyno run --suite micro --only point-select,sort --profile
      dbdyno run --command 'xz -T{threads} -kc {file}' threads=1,2,4 file=big.tar
      dbdyno run --command 'gzip -kc big.tar' --command 'zstd -kc big.tar' \\
          --runs 20
      dbdyno run --jobs builds.toml --orders serial,parallel,concurrent,both \\
          threads=1,8
      dbdyno run lio --dsn postgresql://app@db1/prod --cluster ray://head:10001 \\
          --sessions 300,1000,3000
      dbdyno run lio --sessions 10,20,30 --when 'sessions in (10,20,30)' \\
          --do 'profile 5s'
    """
    if options["suite"] is not None or options["list_suite"]:
        from dbdyno.cli import suite

        suite.run(options)
        return
    if options["only"] is not None:
        raise UsageError("--only chooses benchmarks of a suite", "name the suite: --suite micro")
    if "list" in options["builtins"]:
        for name in conduct.builtin_scripts(options["engine"] or ""):
            screen.say(name)
        return
    request, where = request_of(options)
    cluster = None if options["dry_run"] else conduct.cluster_of(request)
    with (
        conduct.server_machine(where, options["ssh_command"]) as machine,
        conduct.crew_of(cluster, options["engine"] or "", options["dsn"]) as crew,
    ):
        run_planned(options, request, machine if crew is None or crew.machine is None else crew.machine, crew)


def request_of(options: dict[str, Any]) -> tuple[conduct.Request, str | None]:
    """Returns the request, and the server's host as ssh names it. Puts one connection string into
    ``options``."""
    options["dsn"] = dsn_of(options)
    request = _request(options)
    where = conduct.server_ssh(request)
    check_reach(where, options)
    return request, where


def check_reach(where: str | None, options: dict[str, Any]) -> None:
    """Raises :class:`UsageError` for a host of the server without a server to connect to."""
    if where is not None and options["dsn"] is None:
        raise UsageError(
            "--server-ssh is for a server on another host, and without --dsn the load goes to the embedded "
            "server on this one",
            "add --dsn with the address of the server there, or leave out --server-ssh",
        )


def run_planned(
    options: dict[str, Any], request: conduct.Request, machine: Machine, crew: conduct.Crew | None
) -> None:
    """Plans, measures and reports. Raises :class:`click.exceptions.Exit` with the exit code of a run that was
    cut short."""
    if options["wait_quiet"] is not None and crew is not None:
        crew.check_quiet_visible()
    labels = conduct.labels_of(options)
    host = conduct.host_of(machine)
    plan, workload = conduct.planned(request, host)
    conduct.check_alone(plan, options)
    check_gate(options["fail_on"], plan)
    if options["dry_run"]:
        _show_plan(options, plan, workload, machine)
        return
    from dbdyno.cli import live

    progress = live.progress(plan, as_json=options["as_json"])
    interrupt = drive.Interrupt(progress.on_signal)
    with exporting(options) as exporter, interrupt.caught(), progress:
        try:
            target, store = target_of(options, plan, machine), open_store(options["store"])
            waiting = conduct.Waiting(interrupt, progress)
            what, quiet = present.load_words(plan), options["wait_quiet"]
            with conduct.alone(what, waiting, wait=options["wait"], quiet=quiet, machine=machine) as turn:
                context = conduct.RunContext[conduct.ProgressListener](
                    host, target, store, progress, interrupt, labels, crew, turn, exporter
                )
                record = conduct.run(plan, workload, context, all_variants=options["all_variants"])
        except drive.Interrupted as e:
            screen.report_stop(e, "anything was measured")
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    _report(options, plan, record, interrupted=interrupt.stopping)


def _show_plan(options: dict[str, Any], plan: Plan, workload: Workload, machine: Machine) -> None:
    """Shows what would be measured, and what the comparison could see."""
    plan = _supposed(options, plan, workload, machine)
    remarks = tuple(_remarks(options, plan))
    if options["as_json"]:
        print_json(plan.model_dump(mode="json"))
        return
    screen.plan_table(plan)
    for words in remarks:
        screen.say(words)


def _supposed(options: dict[str, Any], plan: Plan, workload: Workload, machine: Machine) -> Plan:
    """Returns the plan as far as it is known without the server, which is asked for settings alone."""
    from dbdyno.plan import supposed

    if options["dsn"] is not None:
        _check_settings(plan, target_of(options, plan, machine))
    return supposed(plan, workload)


def _remarks(options: dict[str, Any], plan: Plan) -> Iterator[str]:
    """Yields what a comparison of the variants could see, and what the plan does not hold. Raises the error
    with which the run would end before it begins."""
    elsewhere = options["dsn"] is not None
    words = conduct.outlook(open_store(options["store"]), plan, elsewhere=elsewhere)
    if words is not None:
        yield words
    yield from conduct.impossible_variants(plan, all_variants=options["all_variants"])
    if elsewhere and not any(v.settings for v in plan.variants):
        yield "The server was not asked."


def dry_run(options: dict[str, Any]) -> tuple[Plan, Sequence[str]]:
    """Returns the plan of the current command's options, and remarks. Raises as the run would."""
    request, where = request_of(options)
    conduct.labels_of(options)
    with conduct.server_machine(where, options["ssh_command"]) as machine:
        plan, workload = conduct.planned(request, conduct.host_of(machine))
        conduct.check_alone(plan, options)
        check_gate(options["fail_on"], plan)
        plan = _supposed(options, plan, workload, machine)
    return plan, tuple(_remarks(options, plan))


def _report(options: dict[str, Any], plan: Plan, record: Run, *, interrupted: bool) -> None:
    """Shows the results. Raises :class:`click.exceptions.Exit` unless the run is complete and keeps its
    rules."""
    results = conduct.results_of(record)
    judged = Judged()
    if record.info.status == "complete":
        judged = judged_run(options["fail_on"], results)
    if options["as_json"]:
        print_json(judged.data(present.document(results)))
    elif not judged.alone:
        screen.summary(results)
        if options["by_command"]:
            screen.out().print(present.details(results, "scripts"))
    page = screen.places(record, results, options["output"], quiet=options["as_json"])
    if options["open_page"] and not options["as_json"]:
        browser.show_page(page)
    if record.info.status != "complete":
        rules = "; --fail-on was not judged" if options["fail_on"] else ""
        screen.error(f"the run was cut short: {record.info.reason}{rules}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED if interrupted else EXIT_CUT_SHORT)
    rungs = results.tables["rungs"]
    if rungs["errors"].sum() and not rungs["calls"].sum():
        screen.error(every_one_failed(plan))
        raise click.exceptions.Exit(EXIT_CUT_SHORT)
    judged.end(as_json=options["as_json"])


def _table(option: str, example: str) -> Callable[[Sequence[str]], dict[str, Any]]:
    def read(texts: Sequence[str]) -> dict[str, Any]:
        from dbdyno.plan import parse_params

        return {**parse_params(texts, option, example)}

    return read


_READ: dict[str, Callable[[Any], Any]] = {
    "driver": _table("--driver", "threads=4"),
    "limits": _table("--limit", "quota=2"),
    "settings": _table(*SETTING),
    "variables": scripts.variables,
    "orders": commands.orders,
    "jobs.env": commands.environment,
}
"""Key of a field -> function that reads the field from the option's values."""


def _request(options: dict[str, Any]) -> conduct.Request:
    from dbdyno.plan import parse_params

    fields = fields_given(options, _READ)
    job = fields.pop("jobs", {})
    if options["dsn"] is None:  # the embedded server is started with these settings
        fields.pop("settings", None)
    fields |= scripts.fields_of(options) | commands.fields_of(options)
    if (threads := scripts.threads_of(options["jobs"])) is not None:
        fields.setdefault("driver", {})["threads"] = threads
    if triggers := triggers_given(options):
        fields["triggers"] = triggers
    workload, params = _workload_and_params(options)
    fields.pop("params", None)  # _workload_and_params has them
    values = {}
    if commands.runs_jobs(options, conduct.recipe_has_jobs(workload, options["recipe"])):
        values = commands.parameters_of(params, options)
    elif params:
        fields["params"] = parse_params(params)
    patch = conduct.Patch(fields, job, commands.jobs_file(options["jobs"]), values)
    return conduct.Request(workload, options["recipe"], patch)


def _workload_and_params(options: dict[str, Any]) -> tuple[str | None, list[str]]:
    """Returns the workload, and all parameters whether they were given as arguments or by ``--param``."""
    words = [w for w in (options["workload"], *options["more"]) if w is not None]
    named = [w for w in words if "=" not in w]
    if named and (options["commands"] or commands.jobs_file(options["jobs"])):
        raise UsageError(
            f"{named[0]!r} is neither a parameter nor part of a command",
            "a command is one word in quotes: --command 'sort --parallel={threads} FILE' threads=1,2,4",
        )
    if len(named) > 1:
        raise UsageError(
            f"one workload at a time: {', '.join(named)}",
            "its parameters are NAME=VALUE; dbdyno workload list",
        )
    return (named[0] if named else None), [*options["params"], *(w for w in words if "=" in w)]


def _check_settings(plan: Plan, target: Target) -> None:
    """Raises :class:`UsageError` if the server does not have a setting of a variant."""
    from dbdyno.engines import open_server

    wanted = [v.settings for v in plan.variants if v.settings]
    if wanted:
        with open_server(plan.experiment.engine, target) as server:
            if server.settings is not None:
                for settings in wanted:
                    server.settings.check_settings(settings)


def target_of(options: dict[str, Any], plan: Plan, machine: Machine) -> Target:
    """Returns the server that the options name, with room for the plan's sessions."""
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
