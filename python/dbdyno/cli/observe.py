"""``dbdyno observe``: shows an existing workload live, and stores it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, drive, present
from dbdyno.cli import browser, completion, screen
from dbdyno.cli.cluster_options import server_cluster_options
from dbdyno.cli.config import is_quiet
from dbdyno.cli.flags import Command, Option, fields_given, flag_options
from dbdyno.cli.metrics_options import exporting, metrics_options
from dbdyno.cli.options import (
    engine_option,
    json_option,
    label_options,
    open_store,
    print_json,
    report_option,
    running_dsns_option,
    server_ssh_options,
    store_option,
)
from dbdyno.cli.source_options import source_options
from dbdyno.cli.trigger_options import trigger_options, triggers_given
from dbdyno.model.errors import EXIT_CUT_SHORT, EXIT_INTERRUPTED
from dbdyno.model.plan.flags import OBSERVE, OBSERVED, OUTPUT
from dbdyno.model.units import counted, format_percent

if TYPE_CHECKING:
    from dbdyno.cli.observe_listeners import LiveObservation, ObservationLines
    from dbdyno.conduct.metrics.exporter import Exporter
    from dbdyno.model.engine.machine import Machine
    from dbdyno.model.plan.plan import Experiment, Observation, Plan


class _OneThread(Command):
    """A command whose tables are small, so that a second thread of polars costs more than it saves."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before options import polars, which reads it once
        return super().make_context(*args, **kwargs)


@click.command("observe", cls=_OneThread)
@running_dsns_option
@partial(server_ssh_options, several=True)
@server_cluster_options(several=True)
@click.option(
    "--recipe",
    cls=Option,
    group=OBSERVED,
    metavar="NAME|FILE",
    shell_complete=completion.RECIPES_OR_FILES,
    help="Recipe with a table [observation]; options override it.",
)
@flag_options(OBSERVE)
@source_options
@trigger_options
@click.option(
    "--refresh",
    cls=Option,
    group=OUTPUT,
    type=click.FloatRange(0.2, 60),
    default=2.0,
    show_default=True,
    metavar="N",
    help="Refresh interval of the live view in seconds. From 0.2 to 60.",
)
@click.option(
    "--lines",
    cls=Option,
    group=OUTPUT,
    common=True,
    is_flag=True,
    help="Print one line per window instead of the live view.",
)
@report_option("--report")
@browser.open_option
@metrics_options
@label_options
@engine_option("System to observe.")
@store_option
@json_option
def observe_command(**options: Any) -> None:
    """Show where the time of an existing workload goes.

    Nothing is changed on the server; dbdyno uses two connections. On a terminal it shows a live view (press h
    for the keys), elsewhere it prints one line per window; without --for it ends when the reader of the pipe
    does (`| head`). Every window is saved at once, so Ctrl-C (or q) loses nothing. The run can be shown,
    reported and exported like any other.

    Several --dsn observe as many servers at once, a run for each, and put them side by side in one page. With
    --cluster each is observed by an agent on its own node.

    Complete figures require the right to see other users' sessions, and running on the server's host.
    Missing figures are listed with what would provide them.

    --when and --do gather detail at a moment, such as when the number of connections reaches 10, 20 or 30
    (dbdyno help triggers).

    \b
    Examples:
      dbdyno observe
      dbdyno observe --dsn "host=/run/postgresql user=monitor" --for 60s
      dbdyno observe --only-user app --only-database prod --window 30s
      dbdyno observe --dsn service=prod --for 10min --quiet --report prod.html
      dbdyno observe --dsn "host=db1 user=monitor" --server-ssh dba@db1
      dbdyno observe --cluster ray://head:10001 --dsn "host=db1 user=monitor" \\
          --dsn "host=db2 user=monitor"
      dbdyno observe --for 20s --json | jq .findings
      dbdyno observe --only-user app --when 'sessions in (10,20,30)' \\
          --do 'trace 10s'
      dbdyno observe --when 'cpu_wait > 30% for 3s' --do 'profile 10s' \\
          --do snapshot
      dbdyno observe --dsn service=prod --metrics 127.0.0.1:9187
    """
    experiment = _experiment(options)
    dsns = options["dsn"] or (None,)
    with (
        exporting(options) as exporter,
        conduct.server_machines(
            experiment.engine, dsns, _hosts(options, experiment), screen.note
        ) as machines,
    ):
        if len(dsns) == 1:
            _observe(options | {"dsn": dsns[0]}, experiment, machines[0], exporter)
            return
        from dbdyno.cli import observe_servers  # here, since one server does not need it

        observe_servers.observe(options, experiment, dsns, machines, exporter)


def dry_run(options: dict[str, Any]) -> tuple[Plan, Sequence[str]]:
    """Returns the plan of the current command's options, and remarks. Raises as the observation would."""
    from dbdyno.kernel.machine import HERE
    from dbdyno.model.plan.plan import Observation

    experiment = _experiment(options)
    conduct.labels_of(options)
    plan = conduct.observation_plan(experiment, conduct.host_of(HERE))
    whom = conduct.whom_in_words(experiment.observation or Observation())
    return plan, (f"Observed: {f'sessions of {whom}' if whom else 'all sessions'}.",)


def _experiment(options: dict[str, Any]) -> Experiment:
    fields = fields_given(options)
    chosen = fields.pop("observation", {})
    if triggers := triggers_given(options):
        fields["triggers"] = triggers
    return conduct.observation_of(fields | _where(options), options["recipe"], **chosen)


def _where(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that say how the server's host is reached. Several servers have them in their own
    plans."""
    ssh, nodes = options["server_ssh"], options["server_node"]
    fields: dict[str, Any] = {"server_ssh": ssh[0]} if len(ssh) == 1 else {}
    if options["cluster"] is not None:
        node = {"server_node": nodes[0]} if len(nodes) == 1 else {}
        fields["cluster"] = {"address": options["cluster"], **node}
    return fields


def _hosts(options: dict[str, Any], experiment: Experiment) -> conduct.ServerHosts:
    """Returns how the servers' hosts are reached: by options, else by the recipe."""
    of_recipe, cluster = experiment.server_ssh, experiment.cluster
    ssh = options["server_ssh"] or (() if of_recipe is None else (of_recipe,))
    nodes = options["server_node"] or (
        () if cluster is None or cluster.server_node is None else (cluster.server_node,)
    )
    return conduct.ServerHosts(
        None if cluster is None else cluster.address, nodes, ssh, options["ssh_command"]
    )


def _observe(
    options: dict[str, Any], experiment: Experiment, machine: Machine, exporter: Exporter | None
) -> None:
    from dbdyno.cli.observe_listeners import LiveObservation
    from dbdyno.model.plan.plan import Observation

    labels, host = conduct.labels_of(options), conduct.host_of(machine)
    plan = conduct.observation_plan(experiment, host)
    target = conduct.observed_target(experiment.engine, options["dsn"], machine)
    listener = _listener(options, experiment.observation or Observation())
    interrupt = drive.Interrupt(listener.on_signal)
    if isinstance(listener, LiveObservation):
        listener.on_quit(interrupt.request_once)
    elif not plan.expected_ns and not is_quiet():
        listener.on_unread(interrupt.request_once)
    shown = options["as_json"] or options["output"] is not None or options["metrics_file"] is not None
    context = conduct.RunContext[conduct.ObservationListener](
        host, target, open_store(options["store"]), listener, interrupt, labels, metrics=exporter
    )
    try:
        with interrupt.caught(), listener:
            observed = conduct.observe_server(plan, context, patience_s=math.inf if shown else _PATIENCE_S)
    except drive.Interrupted as e:
        screen.report_stop(e, "the first second was over")
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    _end(observed, options, interrupt)


def _listener(options: dict[str, Any], chosen: Observation) -> LiveObservation | ObservationLines:
    from dbdyno.cli.observe_listeners import LiveObservation, ObservationLines

    out, whom = screen.out(), conduct.whom_in_words(chosen)
    silent = options["as_json"] or is_quiet()
    if out.is_terminal and not (out.is_dumb_terminal or silent or options["lines"]):
        return LiveObservation(out, whom, options["refresh"])
    out.quiet = silent
    return ObservationLines(out, screen.err(), whom)


_PATIENCE_S = 10.0
"""Limit of deriving after the last window, unless a document or a file of metrics is requested."""


def _end(observed: conduct.Observed, options: dict[str, Any], interrupt: drive.Interrupt) -> None:
    if observed.derived:
        results = conduct.results_of(observed.record)
        if options["as_json"]:
            print_json(present.document(results))
        else:
            screen.summary(results)
            screen.out().print(f"cost: {cost_in_words(observed.cost)}")
        page = screen.places(observed.record, results, options["output"], quiet=options["as_json"])
        if options["open_page"] and not options["as_json"]:
            browser.show_page(page)
    else:
        stored = counted(len(observed.record.cells()), "window")
        screen.out().print(
            f"{stored} stored. Not all are derived yet; "
            f"the rest is derived at the first look: dbdyno show {observed.record.id}"
        )
        screen.out().print(f"cost: {cost_in_words(observed.cost)}")
    if observed.record.info.status != "complete":
        screen.error(f"the observation was cut short: {observed.record.info.reason}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED if interrupt.stopping else EXIT_CUT_SHORT)


def cost_in_words(cost: conduct.Cost) -> str:
    """Returns ``observing cost 1.3 % of one CPU here (samplers 0.9 %) and 0.4 % at the server``."""
    samplers = "" if cost.samplers is None else f" (samplers {format_percent(cost.samplers)})"
    server = (
        "an unknown share at the server: its processes are not visible from here"
        if cost.server is None
        else f"{format_percent(cost.server)} at the server"
    )
    return f"observing cost {format_percent(cost.here)} of one CPU here{samplers} and {server}"
