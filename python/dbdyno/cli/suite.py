"""``dbdyno run --suite``: measures the benchmarks of a suite and shows their matrix."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from dbdyno import conduct, drive, present
from dbdyno.cli import browser, screen
from dbdyno.cli.config import is_quiet, is_verbose
from dbdyno.cli.console import live
from dbdyno.cli.gate_options import Judged, check_suite_gate, judged_suite
from dbdyno.cli.metrics_options import exporting
from dbdyno.cli.options import open_store, print_json
from dbdyno.cli.run import request_of, target_of
from dbdyno.cli.suite_matrix import print_matrix
from dbdyno.conduct import NullProgressListener
from dbdyno.conduct.measure.progress import Tick
from dbdyno.model.errors import EXIT_CUT_SHORT, EXIT_INTERRUPTED, UsageError
from dbdyno.model.units import NS_PER_S, counted, format_rate

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from dbdyno.conduct import PlannedBenchmark
    from dbdyno.model.engine.machine import Machine
    from dbdyno.model.results.results import Results
    from dbdyno.model.results.suite import SuiteMatrix
    from dbdyno.store import Run, RunStore


def run(options: dict[str, Any]) -> None:
    """Runs or lists a suite. Raises :class:`click.exceptions.Exit` if it was stopped, or a benchmark has no
    figures."""
    if options["suite"] is None:
        for suite in conduct.suites(options["engine"] or "").values():
            screen.say(f"{suite.name}: {counted(len(suite.benchmarks), 'benchmark')}. {suite.doc}")
        return
    suite = conduct.suite_named(options["suite"], options["engine"] or "", options["only"])
    if options["list_suite"]:
        _list(suite.benchmarks, as_json=options["as_json"])
        return
    request, where = request_of(options)
    if "cluster" in request.patch.fields:
        raise UsageError("a suite is driven from this machine", "leave out --cluster")
    with conduct.server_machine(where, options["ssh_command"]) as machine:
        benchmarks = conduct.planned_suite(suite, request, conduct.host_of(machine))
        check_suite_gate(options["fail_on"], len(benchmarks[0].plan.variants))
        if options["dry_run"]:
            _show_plans(options, benchmarks)
            return
        _measure(options, suite, benchmarks, machine)


def _list(benchmarks: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        print_json([b._asdict() for b in benchmarks])
        return
    rows = [(b.name, b.doc) for b in benchmarks]
    for line in screen.aligned(("benchmark", "a call is"), rows, (False, False), screen.width()):
        screen.say(line)


def _show_plans(options: dict[str, Any], benchmarks: Sequence[PlannedBenchmark]) -> None:
    impossible = conduct.impossible_variants(benchmarks[0].plan, all_variants=options["all_variants"])
    if options["as_json"]:
        print_json(
            [{"benchmark": b.benchmark.name, "plan": b.plan.model_dump(mode="json")} for b in benchmarks]
        )
        return
    rows = [
        (b.benchmark.name, f"{len(b.plan.cells)}", screen.in_minutes(b.plan.expected_ns), b.benchmark.doc)
        for b in benchmarks
    ]
    heads = ("benchmark", "measurements", "about", "a call is")
    for line in screen.aligned(heads, rows, (False, True, True, False), screen.width()):
        screen.say(line)
    variants = ", ".join(v.name for v in benchmarks[0].plan.variants)
    total = screen.in_minutes(sum(b.plan.expected_ns for b in benchmarks))
    screen.say(f"variants: {variants}; about {total} in total, and a few seconds to load the tables")
    for words in impossible:
        screen.say(words)


def _measure(
    options: dict[str, Any], suite: Any, benchmarks: Sequence[PlannedBenchmark], machine: Machine
) -> None:
    labels, host = conduct.labels_of(options), conduct.host_of(machine)
    progress = SuiteProgress(benchmarks, as_json=options["as_json"])
    interrupt = drive.Interrupt(progress.on_signal)
    with exporting(options) as exporter, interrupt.caught(), progress:
        try:
            store = open_store(options["store"])
            waiting = conduct.Waiting(interrupt, progress)
            wait, quiet = options["wait"], options["wait_quiet"]
            with conduct.alone(
                f"suite {suite.name}", waiting, wait=wait, quiet=quiet, machine=machine
            ) as turn:

                def run_one(one: PlannedBenchmark, own: Mapping[str, Any]) -> Run:
                    tags = (*labels.get("tags", ()), *own["tags"])
                    context = conduct.RunContext[conduct.ProgressListener](
                        host,
                        target_of(options, one.plan, machine),
                        store,
                        progress,
                        interrupt,
                        {**labels, **own, "tags": tags},
                        None,
                        turn,
                        exporter,
                    )
                    return conduct.run(one.plan, one.workload, context, all_variants=options["all_variants"])

                id = conduct.run_suite(suite, benchmarks, run_one, store, interrupt, progress)
        except drive.Interrupted as e:
            screen.report_stop(e, "any benchmark was measured")
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    matrix = conduct.matrix_of(store, id)
    if interrupt.stopping:
        show(options, store, matrix, Judged())
        rules = "; --fail-on was not judged" if options["fail_on"] else ""
        screen.error(f"the suite was stopped; the benchmarks that were measured are kept{rules}")
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    judged = judged_suite(options["fail_on"], matrix)
    show(options, store, matrix, judged)
    judged.end(options["output"], as_json=options["as_json"])
    if failed := [r.benchmark for r in matrix.rows if not r.means]:
        screen.error(f"{counted(len(failed), 'benchmark')} without figures: {', '.join(failed)}")
        raise click.exceptions.Exit(EXIT_CUT_SHORT)


def show(options: Mapping[str, Any], store: RunStore, matrix: SuiteMatrix, judged: Judged) -> None:
    """Prints the matrix and writes its page."""
    page = None
    if any(r.run for r in matrix.rows):
        page = conduct.report_suite(store, matrix)
    if options["output"] is not None:
        page = judged.write(present.suite(matrix), options["output"])
    print_matrix(matrix, judged, as_json=options["as_json"])
    if options["as_json"]:
        return
    _open_page(page, opens=options["open_page"])


def _open_page(page: Path | None, *, opens: bool) -> None:
    if page is not None:
        screen.report_path(page)
        if opens:
            browser.show_page(page)


class SuiteProgress(NullProgressListener):
    """A line for each finished benchmark and, on a terminal, one for the measurement in progress, both with
    the time left. Implements :class:`dbdyno.conduct.suite.SuiteListener`, too."""

    def __init__(self, benchmarks: Sequence[PlannedBenchmark], *, as_json: bool) -> None:
        console: Console = screen.err()
        console.quiet = is_quiet() or not (console.is_terminal or is_verbose() or not as_json)
        self._console, self._benchmarks = console, benchmarks
        on_screen = console.is_terminal and not (console.is_dumb_terminal or console.quiet)
        self._live = live(console, refresh_per_second=4, transient=True) if on_screen else None
        self._number, self._took_s, self._begun_s = 0, 0.0, time.monotonic()
        self._rates: dict[str, list[float]] = {}
        self._noted: set[str] = set()

    def __enter__(self) -> SuiteProgress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.update(Text(""))
            self._live.stop()

    def on_signal(self, count: int) -> None:
        """Reports the first signal."""
        if count == 1:
            self._console.print(
                "stopping: calls in flight end, what was measured is kept; Ctrl-C again ends at once"
            )

    def begun(self, number: int, one: PlannedBenchmark) -> None:
        self._number, self._begun_s, self._rates = number, time.monotonic(), {}
        self._status(f"{self._place()} {one.benchmark.name}  {self._left(one.plan.expected_ns / NS_PER_S)}")

    def preparing(self, what: str) -> None:
        self._status(f"{self._place()} {what} ...")

    def tick(self, tick: Tick) -> None:
        one = self._benchmarks[self._number - 1]
        cells = f"measurement {tick.number} of {len(one.plan.cells)}, {tick.phase}"
        self._status(f"{self._place()} {one.benchmark.name}  {cells}  {self._left(tick.left_s)}")

    def measured(self, results: Results) -> None:
        for row in results.tables["rungs"].to_dicts():
            if row["calls_per_s"] is not None:
                self._rates.setdefault(row["variant"], []).append(row["calls_per_s"])

    def noted(self, words: str) -> None:
        """Prints a remark once for the whole suite, also one with another command for each benchmark."""
        remark = words.partition(": dbdyno ")[0]
        if remark not in self._noted:
            self._noted.add(remark)
            self._console.print(words, soft_wrap=True)

    def ended(self, one: PlannedBenchmark, record: Run | None, reason: str) -> None:  # noqa: ARG002
        self._took_s += time.monotonic() - self._begun_s
        means = {v: sum(rates) / len(rates) for v, rates in self._rates.items()}
        several = len(means) > 1
        rates = ", ".join(f"{f'{v} ' if several else ''}{format_rate(m)}" for v, m in means.items())
        figures = reason or (f"{rates} calls/s" if rates else "no figures")
        wide = max(len(b.benchmark.name) for b in self._benchmarks)
        line = f"{self._place()} {one.benchmark.name:{wide}}  {figures}  ({self._left(0.0)})"
        self._console.print(line, soft_wrap=True)

    def _place(self) -> str:
        total = len(self._benchmarks)
        return f"[{self._number:{len(str(total))}}/{total}]"

    def _left(self, of_this_s: float) -> str:
        """Returns the time left: what is planned, in the proportion of what was planned to what it took."""
        expected = [b.plan.expected_ns / NS_PER_S for b in self._benchmarks]
        done = sum(expected[: self._number - 1 if of_this_s else self._number])
        factor = self._took_s / done if self._took_s and done else 1.0
        left_s = of_this_s + factor * sum(expected[self._number :])
        return f"{screen.in_minutes(left_s * NS_PER_S)} left"

    def _status(self, text: str) -> None:
        if self._live:
            self._live.update(Text(text, no_wrap=True, overflow="crop"))
