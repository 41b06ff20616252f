"""``dbdyno compare``: variants of a run, two runs, two files of numbers, or two machines by their ladders."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbdyno import conduct, present
from dbdyno.cli import screen
from dbdyno.cli.completion import RUNS_OR_FILES
from dbdyno.cli.options import json_option, open_store, print_json, store_option
from dbdyno.conclude import compare as comparing
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.store.files import read_limited

if TYPE_CHECKING:
    from dbdyno.model.analyses import Ladder, Machines
    from dbdyno.model.comparison import Comparison
    from dbdyno.model.results import Results
    from dbdyno.present.document import Document


Pair = tuple[float, float]


@dataclass(frozen=True)
class Asked:
    """What the user says of the two machines."""

    told: bool
    """Anything at all, so that two machines are compared."""
    cores: Pair | None = None
    threads: Pair | None = None

    @staticmethod
    def of(machines: bool, cores: Pair | None, threads: Pair | None) -> Asked:
        """Raises UsageError where a machine would have no core."""
        for option, pair in (("--cores", cores), ("--threads", threads)):
            if pair and min(pair) <= 0:
                raise UsageError(f"{option} {pair[0]:g} {pair[1]:g}", "numbers above 0")
        return Asked(machines or bool(cores) or bool(threads), cores or None, threads or None)


def of_runs(a: Results, b: Results, asked: Asked) -> tuple[Machines, ...]:
    """One for each ladder that both runs have. Raises UsageError where there is none."""
    from dbdyno.conclude.ladders import ladders_of

    return _compared(ladders_of(a), ladders_of(b), ("A", "B"), asked)


def of_files(paths: Sequence[Path], asked: Asked) -> tuple[Machines, ...]:
    """Of two CSV files with columns for sessions and throughput. Raises UsageError naming the line."""
    from dbdyno.store.ladder_csv import read_ladder

    a, b = (read_ladder(p) for p in paths)
    stems = paths[0].stem, paths[1].stem
    names = stems if stems[0] != stems[1] else (str(paths[0]), str(paths[1]))
    return _compared((a,), (b,), names, asked)


def are_ladders(paths: Sequence[Path]) -> bool:
    """Both files can be read as ladders: they have the columns, by their headings."""
    from dbdyno.store.ladder_csv import read_ladder

    try:
        return all(len(read_ladder(p).points) > 0 for p in paths)
    except UsageError:
        return False


def hosts_differ(a: Results, b: Results) -> bool:
    """The servers ran on hosts that are seen to be others. Of a server elsewhere the host is not known."""
    if not (a.environment.server.here and b.environment.server.here):
        return False
    mine, other = (r.environment.host.cpu.model_copy(update={"max_mhz": None}) for r in (a, b))
    return mine != other


def _compared(
    a: Sequence[Ladder],
    b: Sequence[Ladder],
    names: tuple[str, str],
    asked: Asked,
) -> tuple[Machines, ...]:
    from dbdyno.conclude.machines import machines, pairs

    return tuple(machines(_told(x, 0, asked), _told(y, 1, asked), names) for x, y in pairs(a, b))


def _told(ladder: Ladder, side: int, asked: Asked) -> Ladder:
    """With the machine as the user says it is."""
    machine = ladder.machine
    machine = replace(machine, cores=asked.cores[side]) if asked.cores else machine
    machine = replace(machine, cpus=asked.threads[side]) if asked.threads else machine
    return replace(ladder, machine=machine)


_CURE = "one number per line (# begins a comment), or CSV with a header and --column NAME"


def read_numbers(path: Path, column: str | None) -> list[float]:
    """Raises :class:`UsageError` naming the line that is none."""
    try:
        text = read_limited(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {path}: {reason}", _CURE) from e
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), start=1)]
    lines = [(n, line) for n, line in lines if line and not line.startswith("#")]
    if not lines:
        raise UsageError(f"{path} has no values", _CURE)
    is_table = "," in lines[0][1] or (column is not None and not _is_number(lines[0][1]))
    return [_number(path, n, word) for n, word in (_column(path, lines, column) if is_table else lines)]


def _column(path: Path, lines: list[tuple[int, str]], column: str | None) -> list[tuple[int, str]]:
    """Line number and field of each record."""
    records = [[field.strip() for field in r] for r in csv.reader(line for _, line in lines)]
    names = records[0]
    if column is None:
        raise UsageError(f"{path} is a table", f"choose a column: --column {' | '.join(names)}")
    if column not in names:
        raise UsageError(f"{path} has no column {column!r}", did_you_mean(column, names))
    place = names.index(column)
    short = next((n for (n, _), r in zip(lines, records, strict=True) if len(r) != len(names)), None)
    if short is not None:
        raise UsageError(f"{path}, line {short}: not as many fields as the header has", _CURE)
    return [(n, r[place]) for (n, _), r in zip(lines[1:], records[1:], strict=True)]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"{path}, line {line}: {word!r} is not a number", _CURE) from None


_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%?)\Z")


class Share(click.ParamType[float]):
    """``2%`` or ``0.02``."""

    name = "SHARE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _SHARE.match(str(value).strip())
        share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
        if not 0 <= share < 1:
            self.fail(f"{value!r} is no share: write 2% or 0.02", param, ctx)
        return share


@click.command()
@click.argument("first", metavar="[RUN|FILE]", default="last", shell_complete=RUNS_OR_FILES)
@click.argument("second", metavar="[RUN|FILE]", required=False, shell_complete=RUNS_OR_FILES)
@click.option("--baseline", metavar="NAME", help="Variant to compare with.")
@click.option("--margin", type=Share(), default="2%", show_default=True, help="Equivalence margin.")
@click.option("--metric", metavar="NAME", help="Compare this metric only: calls_per_s, response_p95_ns, ...")
@click.option("--sessions", type=int, metavar="N", help="Only at N sessions.")
@click.option("--column", metavar="NAME", help="Column of the numbers in CSV files.")
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
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML report; Markdown or Excel if FILE ends in .md or .xlsx.",
)
@store_option
@json_option
def compare(
    first: str,
    second: str | None,
    baseline: str | None,
    margin: float,
    metric: str | None,
    sessions: int | None,
    column: str | None,
    better: str,
    machines: bool,
    cores: tuple[float, float] | None,
    threads: tuple[float, float] | None,
    output: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Compare the variants of a run, two runs, or two files.

    Shows ratio, 95 % interval and verdict. One run: its variants, in pairs by block. Two runs: the second
    relative to the first. Two files of numbers (one per line, or CSV with --column): medians as in
    benchstat, and the ratio of means. The verdict is better, worse, no difference above the margin, or
    undecided, with the number of repeats that would decide. Runs of two machines, or two CSV files of
    sessions and throughput: also both ladders.

    \b
    Examples:
      dbdyno compare last
      dbdyno compare last --baseline none --margin 1% --sessions 8
      dbdyno compare 20261121-1045 20261121-1130 -o difference.html
      dbdyno compare last --metric response_p95_ns --json | jq .metrics[0].claims
      dbdyno compare old.txt new.txt
      dbdyno compare old.csv new.csv --column ms
      dbdyno compare xeon.csv power.csv --cores 16 8 --threads 32 64
    """
    options = comparing.Options(margin, baseline, metric, sessions)
    asked = Asked.of(machines, cores, threads)
    if _is_file(first) or (second is not None and _is_file(second)):
        paths = _two_files(first, second)
        if column is None and (asked.told or are_ladders(paths)):
            _show(None, of_files(paths, asked), output, as_json)
        else:
            _files(paths, column, margin, better == "higher", output, as_json)
        return
    if column is not None:
        raise UsageError("--column is for files of numbers", "leave it out for runs")
    if second is None:
        if asked.told:
            raise UsageError("--machines, --cores and --threads compare two runs", "name a second run")
        record = open_store(store).open(first)
        made = conduct.results_of(record).comparison if options == comparing.Options() else None
        made = made or comparing.compare_variants(conduct.derived_of(record), options)
        _show(made, (), output, as_json)
        return
    _show(*_runs(*_two_runs(first, second, options, store), options, asked), output, as_json)


def _show(made: Comparison | None, machines: Sequence[Machines], output: Path | None, as_json: bool) -> None:
    """What there is: the comparison of runs, the machines behind them, or both."""
    data = present.machines_document(made, machines) if as_json else None
    _out(present.comparison(made, machines), output, data)


def _out(shown: Document, output: Path | None, data: dict[str, Any] | None) -> None:
    """To a file where one is named; then as data, or as text."""
    if output is not None:
        present.write(shown, output)
    if data is not None:
        print_json(data)
        return
    screen.out().print(present.printed(shown), crop=False)
    if output is not None:
        screen.say(f"report: {output}")


def _two_runs(
    first: str, second: str, options: comparing.Options, store: Path | None
) -> tuple[Results, Results]:
    found = open_store(store)
    one, two = found.open(first), found.open(second)
    if options.baseline is not None:
        raise UsageError(
            "--baseline names a variant of one run", "leave it out: the first of two runs is the baseline"
        )
    if one.id == two.id:
        raise UsageError(
            f"{one.id} twice: a run cannot differ from itself",
            f"its variants: dbdyno compare {one.id}; another run: dbdyno runs",
        )
    return conduct.derived_of(one), conduct.derived_of(two)


def _runs(
    a: Results, b: Results, options: comparing.Options, asked: Asked
) -> tuple[Comparison | None, Sequence[Machines]]:
    """Ladders of two machines need no rung in common, and then stand alone."""
    machines: Sequence[Machines] = ()
    if asked.told or hosts_differ(a, b):
        try:
            machines = of_runs(a, b, asked)
        except UsageError:
            if asked.told:
                raise
    try:
        return comparing.compare_runs(a, b, options), machines
    except UsageError:
        if not machines:
            raise
        return None, machines


def _two_files(first: str, second: str | None) -> tuple[Path, Path]:
    if second is None:
        raise UsageError(f"{first} is a file: one sample cannot be compared", "name a second file")
    paths = Path(first), Path(second)
    missing = [p for p in paths if not p.is_file()]
    if missing:
        raise UsageError(f"no file {missing[0]}", "two files, or two runs")
    if paths[0].samefile(paths[1]):
        raise UsageError(f"{first} twice: a sample cannot differ from itself", "name another file")
    return paths


def _files(
    paths: tuple[Path, Path],
    column: str | None,
    margin: float,
    higher: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    numbers = [read_numbers(p, column) for p in paths]
    same = paths[0].name == paths[1].name
    names = (str(paths[0]), str(paths[1])) if same else (paths[0].name, paths[1].name)
    made = comparing.compare_samples(numbers[0], numbers[1], names, margin, higher)
    _out(present.samples(made), output, present.comparison_document(made) if as_json else None)


def _is_file(word: str) -> bool:
    """A file, or what was surely meant to be one: a run's id has no dot and no slash."""
    return Path(word).is_file() or "/" in word or word.endswith((".txt", ".csv"))
