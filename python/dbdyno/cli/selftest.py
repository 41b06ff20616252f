"""``dbdyno selftest``: loads whose truth is known, truth against ledger, on the user's own machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, drive, observe
from dbdyno.cli import screen
from dbdyno.cli.options import bin_dir_option, dsn_option, engine_option, json_option, print_json
from dbdyno.engines import DEFAULT
from dbdyno.model.errors import EXIT_INTERRUPTED, EXIT_OFF, UsageError
from dbdyno.model.units import NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from rich.console import Group

    from dbdyno.model.truth import Truth, TruthCase

WIDTH = 120  # columns in a pipe or a file
MOST_PER_CPU = 4  # sessions of the largest case


@click.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option(
    "--measure", metavar="TIME", default="10s", show_default=True, help="Duration of a measurement."
)
@engine_option("System under test.")
@dsn_option
@bin_dir_option
@json_option
def selftest(
    cases: tuple[str, ...],
    measure: str,
    engine: str | None,
    dsn: str | None,
    bin_dir: Path | None,
    as_json: bool,
) -> None:
    """Run loads with known results and compare the ledger with them.

    Cases: all asleep, one, two and four CPU loops per CPU, a quota, a lock convoy, think time, a mixture,
    commits, sessions that connect for one call. Each is measured once, with samples and, where permitted,
    with the scheduler trace. An account is ok within 2 % of the sessions' time, the remainder within 1 %,
    CPU time of sessions that connect for one call within 25 %. The machine should be otherwise idle. Exit
    code 6 if an account is off. After Ctrl-C, completed cases are shown.

    \b
    Examples:
      dbdyno selftest
      dbdyno selftest convoy think --measure 5s
      dbdyno selftest --json | jq '.[] | select(.verdict == "off")'
    """
    measure_ns = parse_duration_ns(measure, "--measure")
    if measure_ns < NS_PER_S:
        raise UsageError(f"--measure {measure}: a window must last at least 1s")
    from dbdyno.model.protocols import Target

    host = observe.host()
    sessions = round(MOST_PER_CPU * host.limits.usable_cpus) + conduct.EXTRA_CONNECTIONS
    target = Target(dsn=dsn, bin_dir=bin_dir, sessions=sessions)
    console = screen.err() if as_json else screen.out()
    if not console.is_terminal:
        console.width = WIDTH
    interrupt, found = drive.Interrupt(), list["Truth"]()

    def measured(_case: TruthCase, truths: Sequence[Truth]) -> None:
        found.extend(truths)
        if not as_json:
            console.print(_table(truths))

    def say(text: str) -> None:
        console.print(text, style="bold")

    stopped = False
    with interrupt.caught():
        try:
            conduct.selftest(engine or DEFAULT, target, host, cases, measure_ns, interrupt, say, measured)
        except drive.Interrupted:
            stopped = True
    if as_json:
        print_json([_document(t) for t in found])
    else:
        console.print(_verdict(found))
    if stopped:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if any(t.verdict == "off" for t in found):
        raise click.exceptions.Exit(EXIT_OFF)


def _document(truth: Truth) -> dict[str, Any]:
    return truth.model_dump() | {"off": truth.off, "verdict": truth.verdict}


def _table(truths: Sequence[Truth]) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    for head in ("  waits", "account"):
        table.add_column(head, no_wrap=True)
    for head in ("truth s/s", "ledger s/s", "interval", "off", ""):
        table.add_column(head, justify="right", no_wrap=True)
    for t in truths:
        interval = "" if t.low is None or t.high is None else f"{t.low:.3f}..{t.high:.3f}"
        off = "" if t.off is None else f"{100 * t.off:+.2f} %"
        style = {"ok": "green", "off": "red bold", "unknown": "yellow"}[t.verdict]
        table.add_row(
            f"  {t.tier}",
            t.account,
            _figure(t.truth),
            _figure(t.ledger),
            interval,
            off,
            Text(t.verdict, style=style),
        )
    told = [f"  truth of {t.account} ({t.tier}): {t.why}" for t in truths if t.verdict != "ok"]
    why = [Text(words, style="dim") for words in told]
    return Group(table, *why)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _verdict(found: Sequence[Truth]) -> str:
    counts = {v: sum(t.verdict == v for t in found) for v in ("ok", "off", "unknown")}
    return f"{counts['ok']} accounts ok, {counts['off']} off, {counts['unknown']} unknown"
