"""The finer tables on a terminal: waits, microstates, load profile, source against source."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from dbdyno.model.results import Results
from dbdyno.model.units import significant
from dbdyno.model.visible import one_line
from dbdyno.present import figures, headline, processes, profile, sources_used, waits
from dbdyno.present.figures import difference, quantity
from dbdyno.present.missing_values import in_words
from dbdyno.present.selection import Pick, pick_of, rows_of

_NAME = 18  # the least that is left of a name
Rows = Sequence[Sequence[str]]
Make = Callable[[Results, Pick, int], Iterator[RenderableType]]


class Page:
    """A renderable as wide as the console; ``str()`` gives it as plain text of 100 columns."""

    def __init__(self, results: Results, pick: Pick | None, make: Make) -> None:
        self._results, self._pick, self._make = results, pick, make

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        if self._pick is None:
            yield Text("Nothing was measured.")
        else:
            yield from self._make(self._results, self._pick, options.max_width)

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=100)
        console.print(self)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return text


def profile_text(results: Results, cell: str | None = None) -> Page:
    """The load profile of a cell; without one of the top rung, or of all windows of an observation.

    Raises UsageError where the run has no such cell.
    """
    return Page(results, pick_of(results, cell), _profile)


def events_text(results: Results, cell: str | None = None) -> Page:
    """Every (state, wait event) of a cell. Raises UsageError where the run has no such cell."""
    return Page(results, pick_of(results, cell), lambda r, p, w: _events(r, p, w, waits.MAX_ROWS))


def microstates_text(results: Results, cell: str | None = None) -> Page:
    """Microstates of all processes of a cell. Raises UsageError where the run has no such cell."""
    return Page(results, pick_of(results, cell), lambda r, p, w: microstates(r, p, w, processes.MAX_ROWS))


def witnesses_text(results: Results, cell: str | None = None) -> Page:
    """Source against source of a cell. Raises UsageError where the run has no such cell."""
    return Page(results, pick_of(results, cell), _witnesses)


def grid(heads: Sequence[str], rows: Rows, width: int, words: Sequence[str] = ()) -> Iterator[Text]:
    """Lines of fixed width: the first column and those headed ``words`` to the left, others to the right.

    The first column gives way down to _NAME, then columns go from the right; a cell is never cut else.
    """
    count = len(heads)
    left = {0, *(i for i, h in enumerate(heads) if h in words)}
    while True:
        widths = _widths(heads, rows)[:count]
        spare = width - sum(widths[1:]) - 2 * (count - 1)
        if widths[0] <= spare or spare >= _NAME or count <= 2:
            break
        count -= 1
    widths[0] = min(widths[0], max(spare, _NAME))
    for number, row in enumerate((heads, *rows)):
        cells = [_cell(row[i], widths[i], i in left) for i in range(count)]
        style = "bold" if number == 0 else ""
        yield Text("  ".join(cells).rstrip(), style=style, no_wrap=True, overflow="crop")


def _widths(heads: Sequence[str], rows: Rows) -> list[int]:
    return [max(len(r[i]) for r in (heads, *rows)) for i in range(len(heads))]


def _cell(text: str, width: int, to_left: bool) -> str:
    text = one_line(text)
    short = text if len(text) <= width else f"{text[: width - 1]}…"
    return short.ljust(width) if to_left else short.rjust(width)


def _profile(results: Results, pick: Pick, width: int) -> Iterator[RenderableType]:
    found = profile.profile(results, pick)
    repeats = f", all {pick.repeats} repeats together" if pick.repeats > 1 else ""
    yield Text(headline.title(results), style="bold")
    yield Text(f"Load profile {pick.at}{repeats}", style="bold")
    if not found.lines:
        yield Text("The run has no counters.")
        return
    rows = [[line.name, *line.values, line.source] for line in found.lines]
    rows += [[name, value, *[""] * len(found.heads)] for name, value in found.ratios]
    yield from grid(["", *found.heads, "witness"], rows, width, ["witness"])
    yield from _notes(found.notes)
    yield Text("")
    yield from _top(results, pick, found.events, width)


def _top(results: Results, pick: Pick, events: list[profile.Event], width: int) -> Iterator[RenderableType]:
    yield Text(f"Top {len(events)} foreground events {pick.at} by total time", style="bold")
    if not events:
        yield Text("Sessions were neither sampled nor traced.")
        return
    heads = ["event", "seconds", "% DB time", "CPU WAIT s", "95 % interval", "waits", "mean", "witness"]
    rows = [[e.name, e.seconds, e.share, e.runq, e.interval, e.waits, e.mean, e.source] for e in events]
    yield from grid(heads, rows, width, ["witness"])
    words = (
        "seconds: a wait's are asleep; CPU WAIT s: what its label hid in the run queue, counted in CPU WAIT. "
        + sources_used.caption(results, pick.cell)
    )
    yield from _notes([words])


def top_events(results: Results, pick: Pick, width: int) -> Iterator[RenderableType]:
    """The ten largest parts of DB time."""
    yield from _top(results, pick, profile.profile(results, pick).events, width)


def _events(results: Results, pick: Pick, width: int, most: int) -> Iterator[RenderableType]:
    found = waits.waits(results, pick)
    if not found.rows:
        return
    yield Text(f"Where the time went {pick.at}, seconds per second", style="bold")
    shown = found.rows[:most]
    heads = ["wait event", "state", *waits.HEADS, "waits/s", "samples"]
    rows = [[w.event, w.state, *(_ranged(*f) for f in w.figures), w.waits, w.samples] for w in shown]
    if sum(_widths(heads, rows)) + 2 * len(heads) > width:  # intervals are what there is no room for
        rows = [[w.event, w.state, *(t for t, _ in w.figures), w.waits, w.samples] for w in shown]
    if found.total:
        rows.append(["all", "", *found.total, "", ""])
    yield from grid(heads, rows, width, ["state"])
    left = found.left_out + len(found.rows) - len(shown)
    notes = [f"{left} smaller rows are not shown"] if left else []
    yield from _notes([*notes, *sources_used.words(results), *found.notes])


def events(results: Results, pick: Pick, width: int) -> Iterator[RenderableType]:
    """The longest rows, for the end of a run."""
    return _events(results, pick, width, 8)


def _ranged(text: str, told: str) -> str:
    """A figure with its interval: ``0.252 (0.227 to 0.277)``."""
    return f"{text} ({told})" if told and text != figures.UNKNOWN else text


def microstates(results: Results, pick: Pick, width: int, most: int) -> Iterator[RenderableType]:
    """A grid for each block, at most ``most`` rows of it."""
    for block in processes.blocks(results, pick):
        yield Text(f"{block.title}, microstates {pick.at}: percent of each process's time", style="bold")
        heads = ["process", "pid", *(c.head for c in processes.COLUMNS)]
        rows = [[_name(p), p.pid, *(text for text, _ in p.cells)] for p in block.processes[:most]]
        yield from grid(heads, rows, width)
        left = block.left_out + len(block.processes) - len(rows)
        yield from _notes([f"{left} less active ones are not shown"] if left else [])
    notes = processes.unknown(results, pick)
    words = (
        "USR to UNAC add up to 100 (UNAC: signed remainder); BLKIO lies inside SLP and LOCK; indented: a "
        "parallel worker below its leader, with its share of the session's CPU"
    )
    yield from _notes([words, *notes, sources_used.caption(results, pick.cell)])


def _name(process: processes.Process) -> str:
    return f"  {process.share} of CPU: {process.name}" if process.worker else process.name


def _witnesses(results: Results, pick: Pick, width: int) -> Iterator[RenderableType]:
    yield Text(f"Source against source {pick.at}", style="bold")
    rows = []
    for r in rows_of(results, "witnesses", pick).to_dicts():
        value = figures.UNKNOWN if r["value"] is None else significant(r["value"], 4)
        verdict = r["verdict"] if r["value"] is not None else in_words(r["status"])
        off = "" if verdict == "reference" else difference(r["relative_difference"])
        rows.append([quantity(r["quantity"]), r["source"], value, r["unit"], off, verdict])
    if not rows:
        yield Text("No quantity had more than one witness here.")
        return
    heads = ["quantity", "witness", "value", "unit", "difference", "verdict"]
    yield from grid(heads, rows, width, ["witness", "unit", "verdict"])


def _notes(notes: Sequence[str]) -> Iterator[Text]:
    for note in notes:
        yield Text(note, style="dim")
