"""``dbdyno selftest``: compares the ledger with loads of known truth, on the user's own machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno import conduct, drive, observe
from dbdyno.cli import screen
from dbdyno.cli.config import is_quiet
from dbdyno.cli.options import bin_dir_option, dsn_option, engine_option, json_option, print_json
from dbdyno.cli.wait_options import wait_options
from dbdyno.engines import DEFAULT
from dbdyno.model.errors import EXIT_INTERRUPTED, EXIT_OFF, DbdynoError
from dbdyno.model.units import NS_PER_S, counted, format_average

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

    from dbdyno.conduct.before import Quiet
    from dbdyno.conduct.selftest import Planned
    from dbdyno.model.engine.truth import Truth

WIDTH = 120  # columns in a pipe or a file
WITH_INTERVAL = 96  # least columns of a table with intervals
MOST_PER_CPU = 4  # sessions of the largest case
SHORT, LONG = "3s", "10s"
_BAR = 20
_STYLES = {"ok": "green", "off": "red bold", "inconclusive": "yellow", "unknown": "yellow"}


@click.command()
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option(
    "--measure",
    metavar="TIME",
    default=None,
    help=f"Duration of a measurement.  [default: {SHORT}; with --long {LONG}]",
)
@click.option("--long", "long_", is_flag=True, help=f"Measure {LONG} each: narrower intervals.")
@click.option("--strict", is_flag=True, help="Exit code 6 also if an account is inconclusive.")
@wait_options
@engine_option("System under test.")
@dsn_option
@bin_dir_option
@json_option
def selftest(
    cases: tuple[str, ...],
    measure: str | None,
    long_: bool,
    strict: bool,
    wait: bool,
    wait_quiet: Quiet | None,
    engine: str | None,
    dsn: str | None,
    bin_dir: Path | None,
    as_json: bool,
) -> None:
    """Run loads with known results and compare the ledger with them.

    Cases: all asleep, one, two and four CPU loops per CPU, a quota, a lock convoy, blocking, think time, a
    mixture, commits, sessions that connect for one call. Each is measured once, with samples and, where
    permitted, with the scheduler trace; all of them take less than a minute on an idle machine. An account
    is ok within 2 % of the sessions' time, or within what chance gives its samples; the remainder within 1
    %, CPU time of sessions that connect for one call within 15 %. An account that differs by more is off,
    or inconclusive if its interval is very wide, or if other processes and the hypervisor took enough of
    the CPUs to explain it: see dbdyno explain selftest-account. Exit code 6 if an account is off. After
    Ctrl-C, completed cases are shown.

    \b
    Examples:
      dbdyno selftest
      dbdyno selftest convoy think --measure 5s
      dbdyno selftest --json | jq '.[] | select(.verdict == "off")'
    """
    measure = measure or (LONG if long_ else SHORT)
    from dbdyno.model.engine.protocols import Target
    from dbdyno.plan.observing import parse_window_ns

    measure_ns = parse_window_ns("--measure", measure)
    conduct.check_cases(engine or DEFAULT, cases)

    host = observe.host()
    sessions = round(MOST_PER_CPU * host.limits.usable_cpus) + conduct.EXTRA_CONNECTIONS
    target = Target(dsn=dsn, bin_dir=bin_dir, sessions=sessions)
    console = screen.err() if as_json else screen.out()
    if not console.is_terminal:
        console.width = WIDTH
    interrupt, shown = drive.Interrupt(), _Shown(console)
    waiting = conduct.Waiting(interrupt, shown)
    stopped, failed = False, None
    with interrupt.caught(), shown:
        try:
            with conduct.alone("selftest", waiting, wait=wait, quiet=wait_quiet):
                conduct.selftest(engine or DEFAULT, target, host, cases, measure_ns, interrupt, shown)
        except drive.Interrupted as e:
            if not shown.is_planned:
                screen.report_stop(e, "anything was measured")
                raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
            stopped = True
        except DbdynoError as e:
            if not shown.truths:
                raise
            failed = e
    if as_json:
        print_json([t.model_dump() | {"off": t.off} for t in shown.truths])
    shown.headline()
    if failed is not None:
        raise failed
    if stopped:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    verdicts = {t.verdict for t in shown.truths}
    if "off" in verdicts or (strict and "inconclusive" in verdicts):
        raise click.exceptions.Exit(EXIT_OFF)


class _Shown:
    """Prints the plan and a table for each finished case; on a terminal also the case in progress with the
    time left."""

    def __init__(self, console: Console) -> None:
        from dbdyno.cli.console import live

        self.truths: list[Truth] = []
        self._console, self._plan, self._begun = console, list["Planned"](), 0
        self._quiet = is_quiet()
        shown = console.is_terminal and not self._quiet
        self._live = live(console, refresh_per_second=4, transient=True) if shown else None

    def __enter__(self) -> _Shown:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    @property
    def is_planned(self) -> bool:
        return bool(self._plan)

    def preparing(self, what: str) -> None:
        from rich.text import Text

        if self._live:
            self._live.update(Text(f"{what} ...", style="dim", no_wrap=True))

    def noted(self, words: str) -> None:
        if not self._quiet:
            self._say(words)

    def planned(self, cases: Sequence[Planned]) -> None:
        self._plan = list(cases)
        if self._quiet:
            return
        whole = screen.in_minutes(sum(p.expected_ns for p in cases))
        self._say(f"{counted(len(cases), 'case')}, about {whole} in total", "bold")
        wide = max((len(p.case.name) for p in cases), default=0)
        for p in cases:
            self._say(f"  {p.case.name:{wide}}  sessions {p.sessions:2}  {', '.join(p.accounts)}", "dim")

    def tick(self, number: int, phase: str, share: float, left_s: float) -> None:
        from rich.text import Text

        case, begins = self._plan[number].case, number == self._begun
        left = f"{screen.in_minutes(left_s * NS_PER_S)} left"
        head = f"[{number + 1}/{len(self._plan)}] {case.name}"
        if self._live:
            filled = round(_BAR * share)
            bar = "#" * filled + "." * (_BAR - filled)
            self._live.update(Text(f"{head} {phase:10} {bar}  {left}", style="cyan", no_wrap=True))
        elif begins and not self._quiet:
            self._begun += 1
            self._say(f"{head}: {case.title}; {left}")

    def measured(self, planned: Planned, truths: Sequence[Truth]) -> None:
        self.truths += truths
        if self._quiet:
            return
        if self._live:
            self._say(f"{planned.case.name}: {planned.case.title}", "bold")
        self._console.print(_table(truths, intervals=self._console.width >= WITH_INTERVAL))

    def headline(self) -> None:
        """Prints the conclusion over all cases."""
        from dbdyno.conclude.ground_truth import headline

        claim = headline(self.truths, len(self._plan))
        self._say(claim.text, {"good": "green bold", "warning": "red bold"}.get(claim.severity, "bold"))
        if claim.advice:
            self._say(f"  {claim.advice}")

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, soft_wrap=self._live is None)


def _table(truths: Sequence[Truth], *, intervals: bool) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    for head in ("  waits", "account"):
        table.add_column(head, no_wrap=True)
    for head in ("truth s/s", "ledger s/s", *(["interval"] if intervals else []), "off", ""):
        table.add_column(head, justify="right", no_wrap=True)
    for t in truths:
        interval = (
            "" if t.low is None or t.high is None else f"{format_average(t.low)}..{format_average(t.high)}"
        )
        table.add_row(
            f"  {t.tier.removeprefix('scheduler ')}",
            t.account,
            _figure(t.truth),
            _figure(t.ledger),
            *([interval] if intervals else []),
            "" if t.off is None else f"{100 * t.off:+.2f} %",
            Text(t.verdict, style=_STYLES[t.verdict]),
        )
    return Group(table, *_reasons(truths))


def _reasons(truths: Sequence[Truth]) -> list[Text]:
    """Returns, for each account that is not ok, the source of its truth; each reason once."""
    from rich.text import Text

    lines: dict[str, None] = {}
    for t in truths:
        if t.verdict != "ok":
            what = t.account if t.truth is None else f"truth of {t.account}"
            lines[f"  {what}: {t.why}"] = None
    lines |= {f"  {t.reason}": None for t in truths if t.reason}
    return [Text(line, style="dim") for line in lines]


def _figure(value: float | None) -> str:
    return "-" if value is None else format_average(value)
