"""``dbdyno observe`` of several servers at once: a line for each window of each, then all side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from dbdyno import conduct, drive, present
from dbdyno.cli import browser, screen
from dbdyno.cli.config import is_quiet
from dbdyno.cli.observe_listeners import HEAD_EVERY, ObservationLines, line_parts, unseen
from dbdyno.cli.options import open_store, print_json
from dbdyno.model.engine.environment import Environment
from dbdyno.model.engine.machine import Machine
from dbdyno.model.errors import EXIT_CUT_SHORT, EXIT_INTERRUPTED, UsageError
from dbdyno.model.plan.plan import Experiment, Observation, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.units import format_percent

if TYPE_CHECKING:
    from dbdyno.conduct.metrics.exporter import Exporter

_NAME_WIDTH = 20


class _Page:
    """State that the lines of all servers share: their number, and the width of the names."""

    def __init__(self) -> None:
        self.lines, self.wide = 0, len("server")


class ServerLines(ObservationLines):
    """The lines of one of several servers. See :class:`dbdyno.conduct.ObservationListener`."""

    def __init__(self, console: Console, notices: Console, name: str, page: _Page) -> None:
        super().__init__(console, notices, "")
        self._name, self._page, self._run = name, page, ""

    def planned(self, plan: Plan, run_id: str) -> None:  # noqa: ARG002
        self._run = run_id

    def opened(self, environment: Environment) -> None:
        server = environment.server
        self._name = present.server_place(server)
        self._page.wide = max(self._page.wide, min(_NAME_WIDTH, len(self._name)))
        role = "" if server.standby is None else ", standby" if server.standby else ", primary"
        host = "" if server.reached is None else f"; host {server.reached.words}"
        self._print(f"{self._name}: {server.engine} {server.version}{role}{host}; run {self._run}")
        for text in unseen(environment):
            self.notice(text)

    def on_signal(self, count: int) -> None:
        """Reports the first signal."""
        if count == 1:
            super().notice("ending: the windows under way are saved; Ctrl-C again ends at once")

    def notice(self, text: str) -> None:
        super().notice(f"{self._name}: {text}")

    def saved(self, window: RawCell) -> None:
        if self._console.quiet:
            return
        if self._page.lines % HEAD_EVERY == 0:
            self._print(_head(self._page.wide))
        self._page.lines += 1
        self._print(_line(self._name, self._page.wide, window, datetime.now()))


def _head(wide: int) -> str:
    named = f"{'ended':8} {'server':{wide}} {'sess':>5}"
    return f"{named} {'DB time':>7} {'DB CPU':>7} {'CPU WAIT':>8} {'asleep':>7}  top wait, I/O"


def _line(name: str, wide: int, window: RawCell, ended: datetime) -> str:
    """Returns one window of one server: seconds per second of all its sessions; ``?`` for unknown."""
    sessions, figures, remarks = line_parts(window, {"db_time": 7, "run": 7, "runq": 8, "sleep": 7})
    short = name[-wide:] if name.startswith("/") else name[:wide]  # paths of sockets differ at their ends
    return f"{ended:%H:%M:%S} {short:{wide}} {sessions:>5} {figures}  {remarks}".rstrip()


def observe(
    options: dict[str, Any],
    experiment: Experiment,
    dsns: Sequence[str | None],
    machines: Sequence[Machine],
    exporter: Exporter | None = None,
) -> None:
    """Observes all servers, prints them side by side, and writes the page."""
    _check(dsns)
    silent, out, page = options["as_json"] or is_quiet(), screen.out(), _Page()
    out.quiet = silent
    names = [f"--dsn {n}" for n in range(1, len(dsns) + 1)]
    lines = [ServerLines(out, screen.err(), name, page) for name in names]
    interrupt = drive.Interrupt(lines[0].on_signal)
    if (experiment.observation or Observation()).duration is None and not silent:
        for each in lines:
            each.on_unread(interrupt.request_once)
    requests = [
        conduct.ServerRequest(name, dsn, machine, _of_host(experiment, number, options), listener)
        for number, (name, dsn, machine, listener) in enumerate(
            zip(names, dsns, machines, lines, strict=True)
        )
    ]
    with interrupt.caught():
        try:
            observed = conduct.observe_servers(
                requests, open_store(options["store"]), interrupt, conduct.labels_of(options), exporter
            )
        except drive.Interrupted as e:
            screen.report_stop(e, "the first second was over")
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    _end(observed, options, interrupt)


def _check(dsns: Sequence[str | None]) -> None:
    if len(set(dsns)) < len(dsns):
        raise UsageError("--dsn names the same server twice", "each server once")


def _of_host(experiment: Experiment, number: int, options: dict[str, Any]) -> Experiment:
    """Returns the experiment for the plan of one server: with the way to its own host."""
    changes: dict[str, Any] = {}
    if options["server_ssh"]:
        changes["server_ssh"] = options["server_ssh"][number]
    if options["server_node"] and experiment.cluster is not None:
        node = options["server_node"][number]
        changes["cluster"] = experiment.cluster.model_copy(update={"server_node": node})
    return experiment.model_copy(update=changes)


def _end(observed: conduct.ObservedServers, options: dict[str, Any], interrupt: drive.Interrupt) -> None:
    runs = [(o.record, conduct.results_of(o.record)) for o in observed.stored.values()]
    several = [results for _, results in runs]
    for record, results in runs:
        conduct.reported(record, results)
    page = path = conduct.report_group(runs)
    if options["output"] is not None:
        path = conduct.report_group(runs, options["output"])
    if options["as_json"]:
        print_json(present.servers_record(several))
    else:
        screen.out().print(present.printed(present.servers_brief(several)))
        screen.say(_cost(observed))
        screen.report_path(path)
        if options["open_page"]:
            browser.show_page(path if path.suffix == page.suffix else page)
    _exit(observed, several, interrupt)


def _exit(observed: conduct.ObservedServers, several: Sequence[Any], interrupt: drive.Interrupt) -> None:
    for name, error in observed.failed.items():
        screen.error(f"{name}: {getattr(error, 'message', error)}", getattr(error, "cure", None))
    short = [r.info for r in several if r.info.status != "complete"]
    for info in short:
        screen.error(f"run {info.id} was cut short: {info.reason}")
    if short or observed.failed:
        raise click.exceptions.Exit(EXIT_INTERRUPTED if interrupt.stopping else EXIT_CUT_SHORT)


def _cost(observed: conduct.ObservedServers) -> str:
    """Returns ``observing cost 3.1 % of one CPU here, 0.4 % and 0.3 % at the servers``."""
    costs = [o.cost for o in observed.stored.values()]
    at = ["?" if c.server is None else format_percent(c.server) for c in costs]
    here = format_percent(max(c.here for c in costs))
    return f"observing cost {here} of one CPU here, at the servers {', '.join(at)}"
