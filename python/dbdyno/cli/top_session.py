"""One session alone: who it is, its microstates, its events."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from dbdyno.cli.top_state import Row
from dbdyno.cli.top_words import RUN, WAIT, number, share
from dbdyno.observe.glance import SessionLine

_EVENTS = 20


def alone_lines(row: Row | None, pid: int | None) -> Iterator[Text]:
    yield Text("")
    if row is None:
        yield Text(f"session {pid} has ended, or the filter hides it; escape goes back", "yellow")
        return
    s = row.line
    yield Text.assemble((f"session {s.session}, process {s.pid}", "bold"), f"  {s.state or 'state unknown'}, "
                        f"{s.event or 'no wait event'}, query id {s.query_id or 'unknown'}")  # fmt: skip
    names = ("user", "database", "application", "client", "kind")
    yield Text("  ".join(f"{name} {row.text(name) or '?'}" for name in names), "dim")
    yield Text("")
    yield from _microstates(s)
    yield Text("")
    yield Text(f"{'its events, share of its time':40} {'asleep %':>9} {'queue %':>9} {'CPU %':>9}", "bold")
    for e in s.events[:_EVENTS]:
        yield Text(f"{e.name:40} {share(e.sleep):>9} {share(e.runq):>9} {share(e.run):>9}")


def _microstates(s: SessionLine) -> Iterator[Text]:
    """As prstat -m: where the session's time went, in per cent of it."""
    spent = s.spent
    heads = ("USR", "SYS", "CPU", "CPU WAIT", "SLEEP", "CLIENT", "BLOCK I/O", "slices/s")
    yield Text(" ".join(f"{h:>9}" for h in heads), "bold")
    line = Text(" ".join(f"{share(v):>9}" for v in (spent and spent.user, spent and spent.system)))
    line.append(f" {share(s.run):>9}", RUN).append(f" {share(s.runq):>9}", WAIT)
    line.append(f" {share(s.sleep):>9} {share(s.client):>9} {share(spent and spent.block_io):>9}")
    yield line.append(f" {number(spent and spent.slices_per_s):>9}")
