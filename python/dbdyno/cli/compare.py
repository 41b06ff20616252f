"""``dbdyno compare``: variants of a run, two runs, two intervals between snapshots, two files of numbers, or
two machines by their ladders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.browser import opens
from dbdyno.cli.completion import RUNS_OR_FILES
from dbdyno.cli.flags import Grouped
from dbdyno.cli.gate_options import Judged, fail_on_option, judged_suite
from dbdyno.cli.options import NUMBER, checked_with, json_option, open_store, print_json, store_option
from dbdyno.cli.suite_matrix import print_matrix, suite_named
from dbdyno.conclude import compare as comparing
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import OUTPUT
from dbdyno.model.plan.kinds import COMMANDS, kind_of
from dbdyno.store.samples import Numbers, read_pair, read_sample

if TYPE_CHECKING:
    from dbdyno.conduct import MachineOptions
    from dbdyno.model.results.analyses import Machines
    from dbdyno.model.results.claim import Claim
    from dbdyno.model.results.comparison import Comparison, SampleComparison
    from dbdyno.model.results.gate import Rule
    from dbdyno.model.results.results import Results
    from dbdyno.model.results.suite import SuiteMatrix
    from dbdyno.present.document.document import Document


def machines_of_files(paths: Sequence[Path], chosen: MachineOptions) -> tuple[Machines, ...]:
    """Compares the ladders of two CSV files with columns for sessions and throughput. Raises UsageError with
    the line."""
    from dbdyno.store.ladder_csv import read_ladder

    a, b = (read_ladder(p) for p in paths)
    stems = paths[0].stem, paths[1].stem
    names = stems if stems[0] != stems[1] else (str(paths[0]), str(paths[1]))
    return conduct.machines_of((a,), (b,), names, chosen)


def are_ladders(paths: Sequence[Path]) -> bool:
    """Returns whether both files can be read as ladders, by their headings."""
    from dbdyno.store.ladder_csv import read_ladder

    try:
        return all(len(read_ladder(p).points) > 0 for p in paths)
    except UsageError:
        return False


class Share(click.ParamType[float]):
    """A share, written as ``2%`` or ``0.02``."""

    name = "SHARE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return conduct.parse_share(str(value))
        except UsageError as e:
            self.fail(f"{e.message}: {e.cure}", param, ctx)


_GROUPS = {
    "Runs": ("baseline", "margin", "metric", "sessions", "across_sizes"),
    "Files of numbers": ("column", "columns", "decimal", "better"),
    "Machines": ("machines", "cores", "threads"),
    OUTPUT: ("fail_on", "output", "open_page"),
}
"""Heading of the help -> parameters."""


@click.command(cls=Grouped, groups=_GROUPS)
@click.argument("first", metavar="[RUN|FILE|SNAP1..SNAP2]", default="last", shell_complete=RUNS_OR_FILES)
@click.argument("second", metavar="[RUN|FILE|SNAP3..SNAP4]", required=False, shell_complete=RUNS_OR_FILES)
@click.option("--baseline", metavar="NAME", help="Variant to compare with.")
@click.option("--margin", type=Share(), default="2%", show_default=True, help="Equivalence margin.")
@click.option(
    "--metric", metavar="NAME", help="Compare this metric only: p95, calls_per_s, wal_bytes_per_call, ..."
)
@click.option("--sessions", type=NUMBER, metavar="N", help="Only at N sessions.")
@click.option(
    "--across-sizes",
    is_flag=True,
    help="Compare although the data differ in size and calls do more work with more data.",
)
@click.option("--column", metavar="NAME", help="Column of the numbers in CSV files.")
@click.option(
    "--columns",
    metavar="A,B",
    help="In one CSV file: two columns of numbers, or two groups; A is the baseline.",
)
@click.option(
    "--decimal", type=click.Choice([".", ","]), help="Decimal sign in files where 1,234 may be either."
)
@click.option(
    "--better",
    type=click.Choice(["lower", "higher"]),
    default="lower",
    show_default=True,
    help="Which numbers in files are better.",
)
@click.option(
    "--machines",
    is_flag=True,
    help="Compare two machines: one session, equal load, crossover, peak per core.",
)
@click.option("--cores", type=float, nargs=2, metavar="N N", help="Physical cores of the two machines.")
@click.option("--threads", type=float, nargs=2, metavar="N N", help="Logical CPUs of the two machines.")
@fail_on_option("comparison")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=checked_with(".json", ".xml"),
    help="Write an HTML report; Markdown, Excel or JSON if FILE ends in .md, .xlsx or .json; the rules of "
    "--fail-on as JUnit if in .xml.",
)
@store_option
@json_option
@opens("compare")
def compare(
    first: str,
    second: str | None,
    baseline: str | None,
    margin: float,
    metric: str | None,
    sessions: int | None,
    across_sizes: bool,
    column: str | None,
    columns: str | None,
    decimal: str | None,
    better: str,
    machines: bool,
    cores: tuple[float, float] | None,
    threads: tuple[float, float] | None,
    fail_on: tuple[str, ...],
    output: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Compare the variants of a run, two runs, two intervals between snapshots, or two files.

    Shows ratio, 95 % interval and verdict. One run: its variants, in pairs by block. A suite: its matrix. Two
    runs: the second relative to the first. Two files of numbers (one per line, or CSV with --column), or one
    CSV file with two columns or two groups: by means, by medians, and as benchstat does. The verdict is
    better, worse, equal, no difference above the margin, or undecided, with the number of repeats that would
    decide. Runs of two machines, or two CSV files of sessions and throughput: also both ladders. Two
    intervals between snapshots: load profile, statements and tables side by side, by what changed most in
    time.

    \b
    Examples:
      dbdyno compare last
      dbdyno compare last --baseline none --margin 1% --sessions 8
      dbdyno compare 20261121-1045 20261121-1130 -o difference.html
      dbdyno compare last --metric response_p95_ns --json | jq .metrics[0].claims
      dbdyno compare old.txt new.txt
      dbdyno compare old.csv new.csv --column ms
      dbdyno compare table.csv --columns before,after
      dbdyno compare main last --fail-on worse:5% --fail-on claim:errors
      dbdyno compare xeon.csv power.csv --cores 16 8 --threads 32 64
      dbdyno compare 'yesterday 14:00..yesterday 15:00' '14:00..15:00'
    """
    rules, costs = _rules(fail_on, margin)
    options = comparing.Options(margin, baseline, metric, sessions, across_sizes, costs)
    chosen = conduct.MachineOptions.from_options(machines, cores, threads)
    out = _Out(rules, output, as_json, sessions)
    if second is not None and not _is_file(first) and conduct.is_interval(first):
        from dbdyno.store import SnapshotStore

        intervals = conduct.compared_intervals(SnapshotStore(store), first, second)
        out.gate(None, (), intervals.claims, [first, second])
        out.show(present.intervals(intervals), present.intervals_record(intervals))
        return
    if _is_file(first) or (second is not None and _is_file(second)):
        paths = _files(first, second)
        words = [str(p) for p in paths]
        if column is None and len(paths) == 2 and (chosen.given or are_ladders(paths)):
            _show(None, machines_of_files(paths, chosen), out, words)
        else:
            sides = _numbers(paths, column, columns, decimal)
            _samples(sides, margin, better == "higher", out, words)
        return
    if misplaced := [
        o for o, v in (("column", column), ("columns", columns), ("decimal", decimal)) if v is not None
    ]:
        raise UsageError(f"--{misplaced[0]} is for files of numbers", "leave it out for runs")
    plain = options == comparing.Options(costs=costs) and second is None and not chosen.given
    if plain and (matrix := suite_named(store, first)) is not None:
        _show_suite(matrix, fail_on, output, as_json=as_json)
        return
    if second is None:
        if chosen.given:
            raise UsageError("--machines, --cores and --threads compare two runs", "name a second run")
        record = open_store(store).open(first)
        compared = conduct.compared_variants(open_store(store), record, options)
    else:
        runs = open_store(store)
        compared = conduct.compared_runs(runs, runs.open(first), runs.open(second), options, chosen)
    _show(*compared[:2], out, [r.info.id for r in compared.runs], compared.runs)
    is_commands = kind_of(compared.runs[0].plan).name == COMMANDS
    if second is not None and is_commands and not compared.machines and not as_json:
        screen.note("as two machines (one thread, equal load, crossing, per core): --machines")


def _show_suite(matrix: SuiteMatrix, fail_on: tuple[str, ...], output: Path | None, *, as_json: bool) -> None:
    """Shows the matrix of a suite, whose verdicts hold for all its benchmarks together."""
    judged = judged_suite(fail_on, matrix)
    if output is not None:
        judged.write(present.suite(matrix), output, judged.data(present.suite_record(matrix)))
    print_matrix(matrix, judged, as_json=as_json)
    judged.end(output, as_json=as_json)


def _rules(fail_on: Sequence[str], margin: float) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """Returns the rules, and the costs that they name."""
    if not fail_on:
        return (), ()
    from dbdyno.conclude import gates

    rules = gates.parse(fail_on, "comparison", margin)
    return rules, comparing.costs_among(r.figure for r in rules)


class _Out:
    """Where a comparison goes: a file, JSON or text; and the rules that it has to keep."""

    def __init__(
        self, rules: Sequence[Rule], output: Path | None, as_json: bool, sessions: int | None
    ) -> None:
        self._rules, self._sessions = rules, sessions
        self._output, self._as_json = output, as_json
        self._judged = Judged()

    def gate(
        self,
        comparison: Comparison | SampleComparison | None,
        runs: Sequence[Results],
        claims: Sequence[Claim],
        words: Sequence[str],
    ) -> None:
        """Judges what is compared, if there are rules. ``words`` name it in a command."""
        if self._rules:
            from dbdyno.conclude import gates

            gate = gates.of_comparison(self._rules, comparison, runs, self._sessions, claims)
            self._judged = Judged(gate, f"dbdyno compare {' '.join(map(quote, words))} -o comparison.html")

    def show(self, shown: Document, data: dict[str, Any]) -> None:
        """Writes a file if one is named; prints JSON or text; then ends by the gate."""
        data = self._judged.data(data)
        if self._output is not None:
            self._judged.write(shown, self._output, data)
        if self._as_json:
            print_json(data)
        elif not self._judged.alone:
            screen.out().print(present.printed(shown), crop=False)
            if self._output is not None:
                screen.report_path(self._output)
        self._judged.end(self._output, as_json=self._as_json)


def _show(
    comparison: Comparison | None,
    machines: Sequence[Machines],
    out: _Out,
    words: Sequence[str],
    runs: Sequence[Results] = (),
) -> None:
    """Prints or writes the comparison of the runs, of the machines behind them, or both."""
    out.gate(comparison, runs, [c for m in machines for c in m.claims], words)
    out.show(present.comparison(comparison, machines, runs), present.machines_document(comparison, machines))


def _files(first: str, second: str | None) -> tuple[Path, ...]:
    """Returns the paths of one file (a table) or two."""
    paths = tuple(Path(p) for p in (first, second) if p is not None)
    missing = [p for p in paths if not p.is_file() and not p.is_fifo()]
    if missing:
        raise UsageError(f"no file {missing[0]}", "two files, or two runs")
    if len(paths) == 2 and paths[0].samefile(paths[1]):
        raise UsageError(f"{first} twice: a sample cannot differ from itself", "name another file")
    return paths


def _numbers(
    paths: tuple[Path, ...], column: str | None, columns: str | None, decimal: str | None
) -> tuple[Numbers, Numbers]:
    if len(paths) == 1:
        names = [] if columns is None else [c.strip() for c in columns.split(",")]
        if columns is not None and len(names) != 2:
            raise UsageError(f"--columns {columns}: two names are needed", "--columns before,after")
        if not names and column is None and are_ladders(paths):
            raise UsageError(
                f"{paths[0]} is a ladder of loads, not two samples",
                f"dbdyno analyze {quote(str(paths[0]))}; or name two columns: --columns A,B; or a second "
                "ladder",
            )
        return read_pair(paths[0], names, column, decimal)
    if columns is not None:
        raise UsageError("--columns is for one file with both samples", "--column NAME is for two files")
    a, b = (read_sample(p, column, decimal) for p in paths)
    if a.name == b.name:
        a, b = (s._replace(name=str(p)) for s, p in zip((a, b), paths, strict=True))
    return a, b


def _samples(
    sides: tuple[Numbers, Numbers], margin: float, higher: bool, out: _Out, words: Sequence[str]
) -> None:
    a, b = sides
    names, lines = (a.name, b.name), (a.lines, b.lines)
    comparison = comparing.compare_samples(a.values, b.values, names, margin, higher, lines)
    out.gate(comparison, (), (), words)
    out.show(present.samples(comparison, (a.values, b.values)), present.comparison_document(comparison))


def _is_file(word: str) -> bool:
    """Returns whether ``word`` is a file, or looks like one: the id of a run has no dot and no slash."""
    return Path(word).is_file() or "/" in word or word.endswith((".txt", ".csv"))
