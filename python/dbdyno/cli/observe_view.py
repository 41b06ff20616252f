"""Draws the live view: header, events and sessions, one session alone; figures and colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from dbdyno.cli.observe_state import HELP, ORDERS, Row, View
from dbdyno.model.sources.source import HIDDEN_STATUS, TRACE
from dbdyno.model.sources.wait_families import Family
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_average, format_ns, format_rate
from dbdyno.observe.blocking import Blocked
from dbdyno.observe.glance import EventLine, Glance, SessionLine

LEAST = 0.0005  # seconds per second: the least value that is not shown as 0.000
RUN, WAIT = "green", "dark_orange"
_COLORS = {
    Family.IO: "blue",
    Family.COMMIT: "bright_blue",
    Family.LOCK: "red",
    Family.LATCH: "magenta",
    Family.NETWORK: "cyan",
    Family.TIMER: "bright_black",
    Family.CLIENT: "bright_black",
    Family.OTHER: "yellow",
}


def event_color(event: EventLine) -> str:
    return _COLORS[event.family] if event.wait_class else "white"


def hidden_in_words(hidden: int, sessions: int) -> str:
    """Returns an empty text if all sessions are visible."""
    return f"{hidden} of {counted(sessions, 'session')} {HIDDEN_STATUS}" if hidden else ""


def number(value: float | None, unknown: str = "?") -> str:
    """Formats seconds per second with three digits."""
    return unknown if value is None else format_average(value)


def brief_words(recent: Glance) -> str:
    """Returns the CPU use of sessions too brief to be sampled; empty if there were none."""
    brief = recent.brief
    if brief is None:
        return ""
    count = "sessions" if brief.processes is None else counted(brief.processes, "session")
    rest = ", the rest unknown" if brief.runq is None else f", CPU WAIT {number(brief.runq)}"
    return f"  {count} too brief to be sampled: CPU {number(brief.run)}{rest}"


def share(value: float | None) -> str:
    """Formats a share in per cent, with at most one decimal."""
    if value is None:
        return "?"
    return f"{100 * value:.0f}" if value >= 0.0995 else f"{100 * value:.1f}"


def clock(seconds: float) -> str:
    """Formats seconds as ``1:02:03``."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


_SESSION_EVENTS = 20


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
    for e in s.events[:_SESSION_EVENTS]:
        yield Text(f"{e.name:40} {share(e.sleep):>9} {share(e.runq):>9} {share(e.run):>9}")


def tree_lines(blocked: Sequence[Blocked], room: int) -> Iterator[Text]:
    """Yields roots and, below each, the sessions that wait for it and for how long."""
    yield Text("")
    yield Text(f"{'process':>9} {'waits':>8}  who blocks whom", "bold")
    if not blocked:
        yield Text("no session waits for a lock", "dim")
    for line in blocked[: max(3, room)]:
        indent = "  " * (line.depth - 1) + "`- " if line.depth else ""
        waited = "" if line.waited_s is None else format_ns(line.waited_s * NS_PER_S)
        count = f"blocks {line.waiters}: " if line.waiters else ""
        style = "" if line.depth else "bold red"
        yield Text(f"{line.pid or '-':>9} {waited:>8}  {indent}{count}{line.doing}", style)
        if whose := "  ".join(w for w in (line.who, _query(line)) if w):
            yield Text(f"{'':20}{whose}", "dim")
    if (more := len(blocked) - max(3, room)) > 0:
        yield Text(f"{more} more", "dim")


def _query(line: Blocked) -> str:
    return "" if line.query_id is None else f"query id {line.query_id}"


def _microstates(s: SessionLine) -> Iterator[Text]:
    """Yields where the session's time went in per cent, with the columns of prstat -m."""
    spent = s.spent
    heads = ("USR", "SYS", "CPU", "CPU WAIT", "SLEEP", "CLIENT", "BLOCK I/O", "slices/s")
    yield Text(" ".join(f"{h:>9}" for h in heads), "bold")
    line = Text(" ".join(f"{share(v):>9}" for v in (spent and spent.user, spent and spent.system)))
    line.append(f" {share(s.run):>9}", RUN).append(f" {share(s.runq):>9}", WAIT)
    line.append(f" {share(s.sleep):>9} {share(s.client):>9} {share(spent and spent.block_io):>9}")
    yield line.append(f" {number(spent and spent.slices_per_s):>9}")


_EVENTS = 7
_KEYS_LINE = "q quit  h help  s sort  f filter  b locks  m memory  enter drill in  space freeze"
_MEMORY_LINE = "m back  up down scroll  q quit  h help"


@dataclass(frozen=True)
class Header:
    """Facts of the header apart from the figures."""

    server: str = ""
    since_s: float = 0.0
    left_s: float | None = None
    stored: int = 0
    whom: str = ""  # the filter of the observation, in words
    notice: str = ""
    here: float | None = None  # CPU of this process, of one CPU


@dataclass(frozen=True)
class Screen:
    header: Header
    glance: Glance | None
    view: View
    rows: Sequence[Row] = field(default_factory=tuple)  # those shown, in order
    blocked: Sequence[Blocked] = field(default_factory=tuple)  # who blocks whom now
    memory: Sequence[Text] = field(default_factory=tuple)  # where the memory is

    def lines(self, width: int, height: int) -> list[Text]:
        """Returns at most ``height`` lines; the last is for keys and notices."""
        lines = [*self._top(width), *self._body(height)][: height - 1]
        lines += [Text("")] * (height - 1 - len(lines))
        return [_crop(line, width) for line in (*lines, self._foot())]

    def _top(self, width: int) -> Iterator[Text]:
        h = self.header
        left = "" if h.left_s is None else f", {clock(max(0.0, h.left_s))} left"
        title = Text.assemble(("dbdyno observe ", "bold"), f"{h.server}  {clock(h.since_s)}{left}  ")
        title.append(f"{counted(h.stored, 'window')} stored")
        if self.view.frozen:
            title.append("  FROZEN", "bold yellow")
        yield title
        if self.glance is not None:
            yield from _sums(self.glance, h, width)
        roots = [b for b in self.blocked if not b.depth]
        if roots and not self.view.tree:
            waiters = sum(b.waiters for b in roots)
            plural = "session waits" if waiters == 1 else "sessions wait"
            yield Text(f"locks  {waiters} {plural} for locks: b shows who blocks whom", "red")

    def _body(self, height: int) -> Iterator[Text]:
        if self.view.help:
            yield Text("")
            yield from (Text.assemble((f"{keys:>14}  ", "bold"), text) for keys, text in HELP)
        elif self.view.memory:
            yield Text("")
            yield from self.memory[self.view.line :]
        elif self.glance is None:
            yield Text("waiting for the first readings ...", "dim")
        elif self.view.tree:
            yield from tree_lines(self.blocked, height - 12)
        elif self.view.alone:
            chosen = next((r for r in self.rows if r.line.pid == self.view.chosen), None)
            yield from alone_lines(chosen, self.view.chosen)
        else:
            yield from _events(self.glance)
            yield from _sessions(self.rows, self.view, height - 18)

    def _foot(self) -> Text:
        if self.view.typing:
            return Text.assemble(("filter: ", "bold"), self.view.filter, ("_", "blink"))
        if self.header.notice:
            return Text(self.header.notice, "yellow")
        if self.view.memory:
            return Text(_MEMORY_LINE, "dim")
        parts = [_KEYS_LINE, f"sorted by {ORDERS[self.view.order][0]}"]
        parts += [f"only {self.view.filter!r}"] if self.view.filter else []
        return Text("  |  ".join(parts), "dim")


def _crop(line: Text, width: int) -> Text:
    line = line.copy()
    line.plain = one_line(line.plain)
    line.no_wrap = True
    if 0 < width < len(line) and not (line.plain[width - 1] + line.plain[width]).count(" "):
        width = line.plain.rfind(" ", 0, width) + 1 or width  # cut between figures, not within one
    line.truncate(width, overflow="crop")
    return line


def _sums(g: Glance, h: Header, width: int) -> Iterator[Text]:
    m = g.machine
    kinds = "  ".join(f"{kind} {number(used)}" for kind, used in m.cpu.items() if used >= 0.005)
    cost = f"cost: here {share(h.here)} %, at the server {share(m.at_server)} % of a CPU"
    yield Text(f"host   {counted(m.cpus, 'CPU') if m.cpus else '? CPUs'}: {kinds or 'not read'}   {cost}")
    parts = ("db_time", "run", "runq", "sleep", "client")
    db, run, runq, sleep, client = (number(g.total(part)) for part in parts)
    yield Text.assemble(
        ("time   ", ""), (f"DB time {db}", "bold"), " = ", (f"CPU {run}", RUN), " + ",
        (f"CPU WAIT {runq}", WAIT), f" + asleep {sleep};  client {client}   "
        f"s/s of {counted(len(g.sessions), 'session')}, last {format_ns(g.seconds * NS_PER_S)}",
    )  # fmt: skip
    if hidden := hidden_in_words(g.hidden, len(g.sessions)):
        yield Text(f"hidden {hidden}: their waits are unknown, and so is DB time", "yellow")
    yield _bar(g, width)
    helpers = sorted(m.helpers.items(), key=lambda x: -x[1])[:4]
    own = "  ".join(f"{name} {number(used)}" for name, used in helpers if used >= LEAST)
    yield Text(
        f"waits  by {g.tier}, {counted(g.samples, 'sample')}" + (f"   server's own: {own}" if own else ""),
        "dim",
    )
    if busy := g.idle_busy:
        run_s, runq_s = (sum(getattr(s, p) or 0.0 for s in busy) for p in ("run", "runq"))
        yield Text(
            f"idle   {counted(len(busy), 'idle session')} used a CPU or waited for one: CPU {number(run_s)}, "
            f"CPU WAIT {number(runq_s)}",
            WAIT,
        )
    if brief := brief_words(g):
        yield Text(f"brief{brief}", WAIT)
    if h.whom:
        yield Text(f"only   {h.whom}")


def _bar(g: Glance, width: int) -> Text:
    """Draws DB time as one bar: CPU, CPU WAIT, then sleep by class of wait events."""
    classes: dict[str, float] = {}
    colors: dict[str, str] = {}
    for e in g.events:
        if e.sleep and not e.at_client:
            name = e.wait_class or "no wait event"
            classes[name] = classes.get(name, 0.0) + e.sleep
            colors.setdefault(name, event_color(e))
    parts = [("CPU", g.total("run") or 0.0, RUN), ("CPU WAIT", g.total("runq") or 0.0, WAIT)]
    parts += [(n, v, colors[n]) for n, v in sorted(classes.items(), key=lambda x: -x[1])]
    whole = 0.0 if g.hidden else sum(v for _, v, _ in parts)
    bar = Text("       ")
    room = max(10, width - 8)
    for name, value, style in parts if whole > 0 else ():
        cells = round(room * value / whole)
        label = f" {name} {value / whole:.0%} "
        bar.append((label if len(label) <= cells else "").ljust(cells)[:cells], f"black on {style}")
    return bar


def _events(g: Glance) -> Iterator[Text]:
    """Yields CPU and CPU WAIT ranked among the wait events, each with its part in the run queue."""
    db = g.total("db_time") or 0.0
    ranked: list[tuple[str, float, float | None, str, EventLine | None]] = [
        ("DB CPU", g.total("run") or 0.0, None, RUN, None),
        ("CPU WAIT", g.total("runq") or 0.0, None, WAIT, None),
    ]
    for e in g.events:
        if not e.at_client:
            ranked.append((e.name, e.sleep or 0.0, e.runq, event_color(e), e))
    hidden = sum(e.runq or 0.0 for e in g.events if e.at_client)
    head = f"{'top events, seconds per second':36} {'asleep':>9} {'%DB':>5} {'in queue':>9}"
    yield Text(f"{head} {'waits/s':>7} {'mean wait':>9}", "bold")
    ranked = [r for r in ranked if r[1] >= LEAST or (r[2] or 0.0) >= LEAST]
    for name, value, runq, style, event in sorted(ranked, key=lambda r: -(r[1] + (r[2] or 0.0)))[:_EVENTS]:
        line = Text(f"{name:36} ", style)
        line.append(
            f"{number(value):>9} {share(value / db if db else None):>5} {number(runq, ''):>9}", "default"
        )
        if event is not None and g.tier == TRACE:
            waits = "?" if event.waits is None else format_rate(event.waits)
            mean = "?" if event.waits is None else "" if event.mean_ns is None else format_ns(event.mean_ns)
            line.append(f" {waits:>7} {mean:>9}", "default")
        yield line
    if hidden >= LEAST:
        yield Text(f"{'in the run queue under a client wait':36} {'':>9} {'':>5} {number(hidden):>9}", "dim")
    yield Text("")


def _sessions(rows: Sequence[Row], view: View, room: int) -> Iterator[Text]:
    head = f"{'pid':>7} {'user@database':20} {'application':12} {'DB%':>5} {'CPU%':>5} {'WAIT%':>5} "
    yield Text(head + f"{'slp%':>5} {'clnt%':>5} {'state':8} event", "bold")
    pids = [r.line.pid for r in rows]
    at = pids.index(view.chosen) if view.chosen in pids else 0
    room = max(3, room)
    first = max(0, min(at - room // 2, len(rows) - room))
    for row in rows[first : first + room]:
        s = row.line
        who = f"{row.text('user')}@{row.text('database')}"[:20]
        line = Text(f"{s.pid:>7} {who:20} {row.text('application')[:12]:12} {share(s.db_time):>5} ")
        line.append(f"{share(s.run):>5} ", RUN)
        line.append(f"{share(s.runq):>5} ", WAIT)
        line.append(f"{share(s.sleep):>5} {share(s.client):>5} {_state(s.state):8} {s.event or ''}")
        if s.pid == view.chosen:
            line.stylize("reverse")
        yield line
    if not rows:
        yield Text("no session" + (f" with {view.filter!r}" if view.filter else ""), "dim")
    elif len(rows) > room:
        yield Text(
            f"{counted(len(rows), 'session')}; {first + 1} to {min(first + room, len(rows))} shown", "dim"
        )


def _state(state: str | None) -> str:
    return {"idle in transaction": "idle tx", "idle in transaction (aborted)": "idle txa"}.get(
        state or "", (state or "?")[:8]
    )
