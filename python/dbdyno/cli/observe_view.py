"""Draws the live view: header, events and sessions, one session alone; figures and colours."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from dbdyno.cli.observe_sheets import RUN, WAIT, Row
from dbdyno.cli.observe_state import KEYS, LOCKS, MEMORY, SESSIONS, SORT_KEYS, STATEMENTS, View
from dbdyno.cli.observe_table import Sheet, clock, first_line, fit_columns, number, share, table
from dbdyno.model.engine.live import LiveFigures
from dbdyno.model.sources.source import HIDDEN_STATUS, TRACE
from dbdyno.model.sources.wait_families import Family
from dbdyno.model.text.visible import one_line
from dbdyno.model.units import NS_PER_S, counted, format_ns, format_rate
from dbdyno.observe.blocking import Blocked
from dbdyno.observe.glance import EventLine, Glance, SessionLine
from dbdyno.observe.glance_devices import DevicesNow

LEAST = 0.0005  # seconds per second: the least value that is not shown as 0.000
MARKS = "\u25bc\u25b2"
PLAIN_MARKS = "v^"
"""Marks of a falling and a rising order, and those of a terminal without UTF-8."""
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


def brief_words(recent: Glance) -> str:
    """Returns the CPU use of sessions too brief to be sampled; empty if there were none."""
    brief = recent.brief
    if brief is None:
        return ""
    count = "sessions" if brief.processes is None else counted(brief.processes, "session")
    rest = ", the rest unknown" if brief.runq is None else f", CPU WAIT {number(brief.runq)}"
    return f"  {count} too brief to be sampled: CPU {number(brief.run)}{rest}"


_SESSION_EVENTS = 20


def _wrap(text: str, width: int) -> Iterator[Text]:
    """Yields the lines of a statement, broken at words where they are too long."""
    for line in text.expandtabs(4).splitlines():
        for part in textwrap.wrap(line, max(20, width - 2), subsequent_indent="    ") or [""]:
            yield Text(f"  {part}")


def session_lines(row: Row, width: int) -> Iterator[Text]:
    """Yields one session: microstates, events, and the whole text of its statement."""
    s = row.line
    state = f"{s.state or 'state unknown'}, {s.event or 'no wait event'}"
    title = f"session {s.session}, process {s.pid}"
    yield Text.assemble((title, "bold"), f"  {state}, query id {s.query_id or 'unknown'}")
    names = ("user", "database", "application", "client", "kind")
    yield Text("  ".join(f"{name} {row.text(name) or '?'}" for name in names), "dim")
    yield Text("")
    yield from _microstates(s)
    yield Text("")
    yield Text(f"{'its events, share of its time':40} {'asleep %':>9} {'queue %':>9} {'CPU %':>9}", "bold")
    for e in s.events[:_SESSION_EVENTS]:
        yield Text(f"{e.name:40} {share(e.sleep):>9} {share(e.runq):>9} {share(e.run):>9}")
    yield Text("")
    yield Text("its latest statement", "bold")
    yield from _wrap(row.statement or "unknown", width)


def row_lines(sheet: Sheet, row: object, width: int) -> Iterator[Text]:
    """Yields all columns of one row, and the whole text of its statement."""
    detail = sheet.detail(row)
    wide = max(len(c.head) for c in sheet.columns)
    for column in sheet.columns:
        if not (detail and column.name == "statement"):
            yield Text.assemble((f"{column.head:>{wide}}  ", "bold"), column.text(row))
    if detail:
        yield Text("")
        yield from _wrap(detail, width)


def tree_lines(blocked: Sequence[Blocked], texts: Mapping[int, str]) -> Iterator[Text]:
    """Yields roots and, below each, the sessions that wait for it and for how long. ``texts``: latest
    statement by pid."""
    yield Text(f"{'process':>9} {'waits':>8}  who blocks whom", "bold")
    if not blocked:
        yield Text("no session waits for a lock", "dim")
    for line in blocked:
        indent = "  " * (line.depth - 1) + "`- " if line.depth else ""
        waited = "" if line.waited_s is None else format_ns(line.waited_s * NS_PER_S)
        count = f"blocks {line.waiters}: " if line.waiters else ""
        style = "" if line.depth else "bold red"
        yield Text(f"{line.pid or '-':>9} {waited:>8}  {indent}{count}{line.doing}", style)
        statement = first_line(texts.get(line.pid or 0, ""))
        if not statement and line.query_id is not None:
            statement = f"query id {line.query_id}"
        if whose := "  ".join(w for w in (line.who, statement) if w):
            yield Text(f"{'':20}{whose}", "dim")


def _microstates(s: SessionLine) -> Iterator[Text]:
    """Yields where the session's time went in per cent, with the columns of prstat -m."""
    spent = s.spent
    heads = ("USR", "SYS", "CPU", "CPU WAIT", "SLEEP", "CLIENT", "BLOCK I/O", "slices/s")
    yield Text(" ".join(f"{h:>9}" for h in heads), "bold")
    line = Text(" ".join(f"{share(v):>9}" for v in (spent and spent.user, spent and spent.system)))
    line.append(f" {share(s.run):>9}", RUN).append(f" {share(s.runq):>9}", WAIT)
    line.append(f" {share(s.sleep):>9} {share(s.client):>9} {share(spent and spent.block_io):>9}")
    yield line.append(f" {number(spent and spent.slices_per_s):>9}")


_LEAST_EVENTS, _MOST_EVENTS = 2, 7
_KEYS_LINE = "q quit  h help  enter row  / find  f filter  p pause  s save"
_FEW_KEYS = "q quit  h help"
_ROOMY = 110  # from here on the line of CPUs has the devices in more words
_OLD_S = 1.0
_LOW = 20  # a terminal of fewer lines has no bar, and one line of keys


_WAITING = Text("waiting for the first readings ...", "dim")
_CONNECTING = Text("connecting ...", "dim")


@dataclass(frozen=True)
class Header:
    """Facts of the header apart from the figures of the glance."""

    server: str = ""
    since_s: float = 0.0
    age_s: float = 0.0  # time since the figures of the glance were read
    left_s: float | None = None
    stored: int = 0
    whom: str = ""  # the filter of the observation, in words
    notice: str = ""
    here: float | None = None  # CPU of this process, of one CPU
    figures: LiveFigures = field(default_factory=LiveFigures)


@dataclass(frozen=True)
class Screen:
    header: Header
    glance: Glance | None
    view: View
    sheet: Sheet
    blocked: Sequence[Blocked] = field(default_factory=tuple)  # who blocks whom now
    texts: Mapping[int, str] = field(default_factory=dict)  # latest statement by pid
    memory: Callable[[int], Sequence[Text]] = lambda _width: ()  # where the memory is
    marks: str = MARKS

    def lines(self, width: int, height: int) -> list[Text]:
        """Returns ``height`` lines; the last are for keys and notices."""
        foot = self._foot(width, height)
        lines = [*self._top(width, height)][: max(1, height - len(foot))]
        lines += self._body(width, height - len(foot) - len(lines))
        lines = lines[: max(0, height - len(foot))]
        lines += [Text("")] * (height - len(foot) - len(lines))
        return [_crop(line, width) for line in [*lines, *foot][-height:]]

    def plain_text(self, width: int) -> str:
        """Returns the screen as plain text, with all rows."""
        text = self.view.is_text
        body = self.text(width) if text else self._table(width, 24 + len(self.sheet.rows) + _MOST_EVENTS)
        return "".join(f"{one_line(line.plain).rstrip()}\n" for line in [*self._top(width, 100), *body])

    def text(self, width: int) -> list[Text]:
        """Returns all lines of a screen that is a text."""
        view = self.view
        if view.help:
            return [*self._help(width)]
        if view.screen == MEMORY:
            return [*self.memory(width)]
        if view.screen == LOCKS:
            return [_WAITING] if self.glance is None else [*tree_lines(self.blocked, self.texts)]
        chosen = view.chosen.get(self.sheet.name)
        row = next((r for r in self.sheet.rows if self.sheet.key(r) == chosen), None)
        if row is None:
            what = f"session {chosen}" if view.screen == SESSIONS else "this row"
            return [Text(f"{what} has ended, or is not among those read; escape goes back", "yellow")]
        if isinstance(row, Row):
            return [*session_lines(row, width)]
        return [*row_lines(self.sheet, row, width)]

    def _top(self, width: int, height: int) -> Iterator[Text]:
        yield _title(self.header, width, paused=self.view.paused)
        if self.glance is not None or self.header.figures != LiveFigures():
            yield _load(self.header.figures, width)
        if self.glance is not None:
            yield from _sums(self.glance, self.header, width, low=height < _LOW)
        roots = [b for b in self.blocked if not b.depth]
        if roots and self.view.screen != LOCKS:
            waiters = sum(b.waiters for b in roots)
            plural = "session waits" if waiters == 1 else "sessions wait"
            locks = f"locks  {waiters} {plural} for locks"
            yield _fitting(width, Text(f"{locks}: b shows who blocks whom", "red"), Text(locks, "red"))

    def _body(self, width: int, room: int) -> list[Text]:
        if self.view.is_text:
            lines = self.text(width)
            first = max(0, min(self.view.line, len(lines) - 1))
            shown = lines[first : first + max(1, room - 1)]
            if len(lines) > len(shown):
                end = f"lines {first + 1} to {first + len(shown)} of {len(lines)}"
                shown = [*shown, Text(end, "dim")]
            return [Text(""), *shown] if len(shown) < room else shown
        if self.glance is None and self.view.screen in (SESSIONS, STATEMENTS):
            return [_WAITING if self.header.server else _CONNECTING]
        return [*self._table(width, room)]

    def _table(self, width: int, room: int) -> Iterator[Text]:
        view, sheet = self.view, self.sheet
        if view.screen == SESSIONS and self.glance is not None:
            events = [*_events(self.glance, max(_LEAST_EVENTS, min(_MOST_EVENTS, room // 3 - 1)), self.marks)]
            yield from events
            room -= len(events)
        else:
            if room > 8:
                yield Text(sheet.explains, "dim")
                room -= 1
            notes = [part for note in sheet.notes for part in textwrap.wrap(note, max(20, width))]
            yield from (Text(part, "yellow") for part in notes)
            room -= len(notes)
        chosen = view.chosen.get(sheet.name)
        rows, order = view.rows(sheet), view.order(sheet)
        yield from table(sheet, rows, order, chosen, (width, room), self.marks)

    def _help(self, width: int) -> Iterator[Text]:
        view, sheet = self.view, self.sheet
        yield Text(f"Screen: {view.screen}", "bold")
        if view.screen in _TEXTS:
            yield from _entry("", _TEXTS[view.screen], width)
        else:
            yield from _entry("", sheet.explains, width)
            shown = {c.name for c in fit_columns(sheet.columns, width, view.order(sheet).column)}
            for column in sheet.columns:
                away = "" if column.name in shown else " (not shown at this width)"
                yield from _entry(column.head, f"{column.explains}{away}", width)
        if view.screen == SESSIONS:
            yield from (line for head, text in _EVENT_HELP for line in _entry(head, text, width))
        yield Text("Keys", "bold")
        if view.screen == SESSIONS:
            order = ", ".join(sheet.column(name).head for name in SORT_KEYS.values())
            yield from _entry(" ".join(SORT_KEYS), f"sort by {order}", width)
        yield from (line for keys, text in KEYS for line in _entry(keys, text, width))
        yield Text("Header", "bold")
        yield from (line for head, text in _HEADER_HELP for line in _entry(head, text, width))
        if notes := self.header.figures.notes:
            yield Text("Unknown", "bold")
            yield from (line for note in notes for line in _entry("", note, width))

    def _foot(self, width: int, height: int) -> list[Text]:
        view = self.view
        tabs = Text()
        for n, name in enumerate(view.screens, start=1):
            tabs.append(f"{n} {name}", "reverse" if name == view.screen else "dim").append(" ")
        if len(tabs) - 1 > width:  # behind the last one is a blank
            tabs = Text.assemble((f"{view.screens.index(view.screen) + 1} {view.screen}", "reverse"))
            tabs.append(f" 1-{len(view.screens)} other screens", "dim")
        low = height < _LOW
        if view.typing:
            last = Text.assemble((f"{view.typing}: ", "bold"), getattr(view, view.typing), ("_", "blink"))
        elif self.header.notice:
            last = Text(self.header.notice, "yellow")
        else:
            ends = [f"only {view.filter!r}"] if view.filter else []
            if not view.is_text:
                order = view.order(self.sheet)
                rising = ", rising" if order.reverse else ""
                ends.append(f"sorted by {self.sheet.column(order.column).head}{rising}")
            keys = ["q quit  h help  1-9 screens"] if low else [_KEYS_LINE, _FEW_KEYS]
            last = _fitting(width, *(Text("  ".join((k, *ends)), "dim") for k in keys))
        return [last] if low else [tabs, last]


def _crop(line: Text, width: int) -> Text:
    line = line.copy()
    line.plain = one_line(line.plain)
    line.no_wrap = True
    if 0 < width < len(line) and not (line.plain[width - 1] + line.plain[width]).count(" "):
        width = line.plain.rfind(" ", 0, width) + 1 or width  # cut between figures, not within one
    line.truncate(width, overflow="crop")
    return line


_TEXTS = {
    MEMORY: "Where the memory is: read now, and again as its cost allows.",
    LOCKS: "Sessions that hold a lock for which others wait, and below each those that wait.",
}
_HEADER_HELP = (
    ("tx/s", "transactions that ended a second: commits and rollbacks of the chosen or all databases"),
    ("statements/s", "executions a second, by the server's counters of statements"),
    ("sessions", "client sessions, of at most so many connections; active; idle in a transaction"),
    (
        "CPUs",
        "CPUs in use on the machine by kind; server: its sessions and own processes",
    ),
    (
        "devices",
        "reads and writes a second of the devices below the server's directories, by all processes; their "
        "mean response time (await); requests in flight",
    ),
    ("DB time", "time of all sessions on a CPU, waiting for one (CPU WAIT), or asleep in the database"),
    ("waits", "how waits were measured; what the server's own processes use; what observing costs"),
)
_EVENT_HELP = (
    ("top events", "where DB time goes: DB CPU, CPU WAIT, and time asleep by wait event"),
    ("s/s", "seconds per second of all sessions"),
    ("%DB", "share of DB time"),
    ("in queue", "of CPU WAIT, the part under this wait event"),
    ("waits/s", "waits that began a second (scheduler trace alone); mean wait: their mean duration"),
)


def _entry(head: str, text: str, width: int) -> Iterator[Text]:
    """Yields an explanation, with its head before the first line."""
    wide = 14 if head else 0
    for n, part in enumerate(textwrap.wrap(text, max(20, width - wide - 2))):
        yield Text.assemble((f"{'' if n else head:>{wide}}  ", "bold"), part)


def _fitting(width: int, *options: Text) -> Text:
    """Returns the first of some texts that a line has room for; the last, if it has for none."""
    return next((text for text in options if len(text) <= width), options[-1])


def _title(h: Header, width: int, *, paused: bool) -> Text:
    left = "" if h.left_s is None else f", {clock(max(0.0, h.left_s))} left"
    product = h.server.partition(" at ")[0]
    options = (
        ("dbdyno observe ", f"  {counted(h.stored, 'window')} stored", h.server),
        ("dbdyno ", f"  {h.stored} stored", h.server),
        ("dbdyno ", "", h.server),
        ("dbdyno ", f"  {h.stored} stored", product),
        ("dbdyno ", "", product),
        ("", "", ""),
    )
    pauses = ("PAUSED, measuring goes on  ", "PAUSED  ") if paused else ("",)
    return _fitting(
        width,
        *(
            Text.assemble(
                (pause, "bold yellow"), (name, "bold"), f"{clock(h.since_s)}{left}{stored}  {server}"
            )
            for name, stored, server in options
            for pause in pauses
        ),
    )


def _load(f: LiveFigures, width: int) -> Text:
    """Returns transactions, statements and sessions: in words if there is room for them."""
    tps, sps = ("?" if v is None else format_rate(v) for v in (f.transactions_per_s, f.statements_per_s))
    sessions, most, active, idle = (
        "?" if v is None else f"{v:,}" for v in (f.sessions, f.most_sessions, f.active, f.idle_in_transaction)
    )
    long = f"sessions {sessions} of {most}: {active} active, {idle} idle in transaction"
    short = f"sessions {sessions}/{most}: {active} active"
    return _fitting(
        width,
        _rates(tps, " transactions/s", sps, " statements/s", long),
        _rates(tps, " tx/s", sps, " stmt/s", f"{short}, {idle} idle in tx"),
        _rates(tps, " tx/s", sps, " stmt/s", short),
        _rates(tps, " tx/s", sps, " stmt/s", ""),
    )


def _rates(tps: str, transactions: str, sps: str, statements: str, sessions: str) -> Text:
    return Text.assemble(
        "load   ", (tps, "bold"), f"{transactions}  ", (sps, "bold"), f"{statements}  ", sessions
    )


_KINDS = {
    "user": ("user", "nice"),
    "system": ("system", "irq", "softirq"),
    "iowait": ("iowait",),
    "steal": ("steal",),
}


def _cpus(g: Glance, width: int) -> Text:
    """Returns CPUs in use: of the machine by kind, and of the server; and the devices."""
    m = g.machine
    by_kind = {name: sum(m.cpu.get(kind, 0.0) for kind in kinds) for name, kinds in _KINDS.items()}
    kinds = " ".join(f"{n} {number(v)}" for n, v in by_kind.items() if v >= 0.005 or n in ("user", "system"))
    used = f"{number(sum(by_kind.values()) - by_kind['iowait'])} used"
    system = m.server_system
    modes = "" if system is None else f" ({share(system)} % system)"
    head, server, devices = (
        f"CPUs   {m.cpus or '?'}: ",
        f" | server {number(g.server_cpu)}",
        _devices(m.devices, width),
    )
    if not m.cpu:
        kinds = used = "?"
    return _fitting(
        width,
        Text(f"{head}{kinds}{server}{modes} | {devices}"),
        Text(f"{head}{kinds}{server} | {devices}"),
        Text(f"{head}{used}{server} | {devices}"),
        Text(f"{head}{used}{server}"),
    )


def _devices(now: DevicesNow | None, width: int) -> str:
    """Returns requests a second and their response time, with more words where there is room."""
    if now is None:
        return "devices ?"
    waited = "" if now.await_ns is None else f" {format_ns(now.await_ns)}"
    if width < _ROOMY:
        return f"I/O {format_rate(now.reads_per_s + now.writes_per_s)}/s{waited}"
    rates = f"{format_rate(now.reads_per_s)} r/s {format_rate(now.writes_per_s)} w/s"
    return f"devices {rates}, await{waited or ' -'}, {number(now.in_flight)} in flight"


def _sums(g: Glance, h: Header, width: int, *, low: bool) -> Iterator[Text]:
    m = g.machine
    yield _cpus(g, width)
    parts = ("db_time", "run", "runq", "sleep", "client")
    db, run, runq, sleep, client = (number(g.total(part)) for part in parts)
    last, age = f"last {format_ns(g.seconds * NS_PER_S)}", f"{h.age_s:.0f} s ago" if h.age_s >= _OLD_S else ""
    sum_of_parts = Text.assemble((f"DB time {db}", "bold"), " = ", (f"CPU {run}", RUN), " + ")
    sum_of_parts.append(f"CPU WAIT {runq}", WAIT)
    asleep, at_client = f" + asleep {sleep}", f" s/s;  client {client}"
    yield _fitting(
        width,
        *(
            Text("time   " if label else "")
            .append(f"{past}: " if past else "")
            .append(sum_of_parts)
            .append(end)
            for label, past, end in (
                (True, ", ".join(filter(None, (last, age))), asleep + at_client),
                (True, age or last, asleep + at_client),
                (True, age, asleep + at_client),
                (True, age, asleep),
                (False, age, asleep),
                (False, age, ""),
                (False, "", ""),
            )
        ),
    )
    if hidden := hidden_in_words(g.hidden, g.count):
        yield from _wrapped(f"hidden {hidden}: their waits are unknown, and so is DB time", width, "yellow")
    if low:
        return
    yield _bar(g, width)
    helpers = sorted(m.helpers.items(), key=lambda x: -x[1])[:3]
    own = "  ".join(f"{name} {number(used)}" for name, used in helpers if used >= LEAST)
    here = None if h.here is None else h.here + m.helping
    cost = f"cost: here {share(here)} %, at server {share(m.at_server)} % of a CPU"
    waits = f"waits  {g.tier}, {counted(g.samples, 'sample')}"
    own = f"   server's own: {own}" if own else ""
    yield _fitting(width, *(Text(waits + more, "dim") for more in (f"   {cost}{own}", f"   {cost}", "")))
    if busy := g.idle_busy:
        run_s, runq_s = (sum(getattr(s, p) or 0.0 for s in busy) for p in ("run", "runq"))
        yield from _wrapped(
            f"idle   {counted(len(busy), 'idle session')} used a CPU or waited for one: CPU {number(run_s)}, "
            f"CPU WAIT {number(runq_s)}",
            width,
            WAIT,
        )
    if brief := brief_words(g):
        yield from _wrapped(f"brief{brief}", width, WAIT)
    if h.whom:
        yield from _wrapped(f"only   {h.whom}", width, "")


def _wrapped(text: str, width: int, style: str) -> Iterator[Text]:
    for line in textwrap.wrap(text, max(20, width), subsequent_indent="       "):
        yield Text(line, style)


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


@dataclass(frozen=True)
class _Ranked:
    """A row of the top events."""

    name: str
    value: float  # seconds per second that it adds to DB time
    queue: str = ""
    waits: str = ""
    mean: str = ""
    style: str = ""


def _events(g: Glance, most: int, marks: str) -> Iterator[Text]:
    """Yields CPU and CPU WAIT ranked among the wait events by their seconds, each with its part in the run
    queue."""
    db = g.total("db_time") or 0.0
    ranked = [
        _Ranked("DB CPU", g.total("run") or 0.0, style=RUN),
        _Ranked("CPU WAIT", g.total("runq") or 0.0, style=WAIT),
        *(_event(e, traced=g.tier == TRACE) for e in g.events if not e.at_client),
    ]
    hidden = sum(e.runq or 0.0 for e in g.events if e.at_client)
    head = f"{'top events':32} {'s/s' + marks[0]:>9} {'%DB':>5} {'in queue':>9}"
    yield Text(f"{head} {'waits/s':>7} {'mean wait':>9}", "bold")
    shown = [r for r in ranked if r.value >= LEAST or r.queue not in ("", "0", "< 0.001")]
    for r in sorted(shown, key=lambda r: -r.value)[:most]:
        line = Text(f"{r.name:32} ", r.style)
        part = share(r.value / db if db else None)
        figures = f"{number(r.value):>9} {part:>5} {r.queue:>9} {r.waits:>7} {r.mean:>9}"
        yield line.append(figures.rstrip(), "default")
    if hidden >= LEAST:
        yield Text(f"{'in queue under a client wait':32} {'':>9} {'':>5} {number(hidden):>9}", "dim")
    yield Text("")


def _event(e: EventLine, *, traced: bool) -> _Ranked:
    waits = mean = ""
    if traced:
        waits = "?" if e.waits is None else format_rate(e.waits)
        mean = "?" if e.waits is None else "" if e.mean_ns is None else format_ns(e.mean_ns)
    return _Ranked(e.name, e.sleep or 0.0, number(e.runq, ""), waits, mean, event_color(e))
