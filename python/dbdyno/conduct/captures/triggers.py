"""Evaluates the triggers of a run on the live samples, beside the measurement.

A thread of its own reads the samples a few times a second and starts actions, each in a thread. With a
simulated engine, conditions are evaluated and actions continued where simulated time passes. A firing is
stored at once, as ``triggers/NNNN.json``; a capture is stored when it ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from dbdyno import observe
from dbdyno.conduct.captures.trigger_actions import ACTIONS, Around, Work
from dbdyno.conduct.companion import Companion, OpenWatch
from dbdyno.model.engine.protocols import Clock, Load, Progress, Server, Target, Watch
from dbdyno.model.errors import DbdynoError, Interrupted, StoreError
from dbdyno.model.plan.plan import Plan
from dbdyno.model.plan.triggers import Fired
from dbdyno.model.units import NS_PER_S, format_size
from dbdyno.observe.live_values import Wanted, counted, live_values, needed_from, p95_ns, tables_for
from dbdyno.plan.trigger_conditions import FIGURES, Values
from dbdyno.plan.triggers import Action, Armed, Budget, Firing, step, triggers_of
from dbdyno.store import Run, write_fired

PERIOD_NS = NS_PER_S // 2
UNKNOWN_NS = 3 * NS_PER_S
"""A figure that is unknown for this time is reported."""
AT_ONCE = 8
"""Most actions in progress at the same time."""
_JOIN_S = 15.0


@dataclass
class _Running:
    fired: Fired
    work: Work
    until_ns: int = 0
    begun: bool = False
    thread: threading.Thread | None = None


@dataclass
class _Seen:
    """The figures that conditions are evaluated on, of the current window or measurement."""

    watch: Watch
    open_watch: OpenWatch
    load: Load | None
    calls: deque[tuple[int, Progress, Counter[int]]] = field(default_factory=deque)
    since_ns: int = 0


class Triggers(Companion):
    """Evaluates triggers and runs their actions. Leaving it by ``with`` ends actions in progress and keeps
    what they captured."""

    def __init__(
        self,
        server: Server,
        plan: Plan,
        record: Run,
        clock: Clock,
        say: Callable[[str], None],
        target: Callable[[], Target],
    ) -> None:
        """``target`` returns the target for an action's own connections."""
        self._server, self._plan, self._record, self._clock, self._say = server, plan, record, clock, say
        self._target = target
        self._planned = triggers_of(plan.experiment)
        self._armed = {t.number: Armed() for t in self._planned.all}
        self._wanted = [Wanted(f.name, f.argument, f.key) for f in self._planned.figures()]
        self._tables = tables_for(self._wanted)
        self._budget = Budget.of(self._planned)
        self._seen: _Seen | None = None
        self._running: list[_Running] = []
        self._words: deque[str] = deque()
        self._reported: set[str] = set()
        self._known_ns: dict[str, int] = {}  # figure -> when it was last known
        self._number, self._looked_ns = 0, 0
        self._lock, self._ended, self._pausing = threading.RLock(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Triggers:
        if self._planned.all and self._server.world is None:
            self._thread = threading.Thread(target=self._beside, name="dbdyno-triggers", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._ended.set()
        self.window_over()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    # -- called by what measures ------------------------------------------------------------------
    def look(self, watch: Watch, open_watch: OpenWatch, load: Load | None = None) -> None:
        """Takes the current watch for the thread that evaluates conditions. With a simulated clock the
        conditions are evaluated here."""
        if not self._planned.all:
            return
        if self._seen is None or self._seen.watch is not watch:
            # of a load, samples of the warm-up do not count
            from_ns = 0 if load is None else self._clock.now_ns()
            since_ns = from_ns if self._seen is None else self._seen.since_ns
            self._seen = _Seen(watch, open_watch, load, since_ns=since_ns)
        if self._server.world is not None:
            self._evaluate()
            self._go_on()
        self._tell()

    def window_over(self) -> None:
        """Ends actions in progress."""
        with self._lock:
            self._seen = None
            self._pausing.set()
            running = list(self._running)
        for one in running:
            if one.thread is not None:
                one.thread.join(_JOIN_S)
            else:
                while self._advance(one, stopped=True):
                    pass
        self._pausing.clear()
        self._armed = {n: Armed(fired_ns=state.fired_ns) for n, state in self._armed.items()}
        self._tell()

    def _tell(self) -> None:
        """Passes lines on in the caller's thread, so that the listener needs no lock."""
        while self._words:
            self._say(self._words.popleft())

    def _once(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            self._words.append(words)

    # -- looking ----------------------------------------------------------------------------------
    def _beside(self) -> None:
        while not self._ended.wait(PERIOD_NS / NS_PER_S):
            try:
                self._evaluate()
            except Exception as error:  # a fault of triggers must not end the measurement
                self._once(f"triggers are not evaluated: {type(error).__name__}: {error}")

    def _evaluate(self) -> None:
        with self._lock:
            seen, now_ns = self._seen, self._clock.now_ns()
            if seen is None or now_ns - self._looked_ns < PERIOD_NS // 2:
                return
            self._looked_ns = now_ns
        driven = self._driven(seen, now_ns)
        from_ns = needed_from(self._wanted, now_ns, seen.since_ns)
        recent = observe.recent_frames(seen.watch, from_ns, self._tables)
        families = self._server.wait_families
        for at_ns, values in live_values(recent, self._wanted, families, seen.since_ns):
            seen.since_ns = at_ns
            known = {**values, **driven}
            self._say_unknown(at_ns, values)
            for trigger in self._planned.all:
                self._armed[trigger.number], firing = step(trigger, self._armed[trigger.number], at_ns, known)
                if firing is not None:
                    self._fire(firing, seen)

    def _say_unknown(self, at_ns: int, values: Values) -> None:
        """Reports a condition whose figures are unknown: it must not look like one that is not met."""
        for wanted in self._wanted:
            if values.get(wanted.key) is not None or FIGURES[wanted.name].driven:
                self._known_ns[wanted.key] = at_ns
            elif at_ns - self._known_ns.setdefault(wanted.key, at_ns) >= UNKNOWN_NS:
                self._once(
                    f"triggers: {wanted.key} is unknown, so its condition cannot be met: dbdyno doctor"
                )

    def _driven(self, seen: _Seen, now_ns: int) -> dict[str, float]:
        """Returns the driver's figures over the last second."""
        wanted = {w.name for w in self._wanted if FIGURES[w.name].driven}
        if seen.load is None or not wanted:
            return {}
        durations = seen.load.live_durations() if "p95" in wanted else ()
        seen.calls.append((now_ns, Progress(*seen.load.progress()), counted(durations)))
        while len(seen.calls) > 2 and now_ns - seen.calls[1][0] >= NS_PER_S:
            seen.calls.popleft()
        (first_ns, first, before), (last_ns, last, after) = seen.calls[0], seen.calls[-1]
        calls = last.calls - first.calls
        if last_ns - first_ns < NS_PER_S // 2 or not calls:
            return {}
        figures = {"response": (last.in_call_ns - first.in_call_ns) / calls / NS_PER_S}
        slow_ns = p95_ns(after - before)
        return figures | ({} if slow_ns is None else {"p95": slow_ns / NS_PER_S})

    def _fire(self, firing: Firing, seen: _Seen) -> None:
        trigger = firing.trigger
        self._words.append(f"trigger {trigger.number}: {firing.matched} ({firing.measured})")
        for action in trigger.actions:
            self._number += 1
            fired = Fired(
                number=self._number,
                trigger=trigger.number,
                condition=trigger.condition.text,
                matched=firing.matched,
                values=firing.values,
                at_ns=firing.at_ns,
                noticed_ns=self._clock.now_ns(),
                action=action.text,
            )
            self._begin(fired, action, seen)

    def _begin(self, fired: Fired, action: Action, seen: _Seen) -> None:
        with self._lock:
            refused, status = self._budget.refusal(self._planned), "over budget"
            if not refused and len(self._running) >= AT_ONCE:
                refused, status = f"{AT_ONCE} other actions are under way", "failed"
            if refused or self._pausing.is_set():
                self._once(f"{action.text} was left out: {refused or 'the measurement has ended'}")
                fired = fired.model_copy(update={"status": status, "detail": refused})
                write_fired(self._record, fired)
                return
            self._budget = self._budget.begun()
            write_fired(self._record, fired)
            around = Around(
                self._server,
                self._plan,
                self._record,
                self._clock,
                self._target,
                seen.open_watch,
            )
            one = _Running(fired, ACTIONS[action.name](around, action, fired))
            self._running.append(one)
            if self._server.world is None:
                one.thread = threading.Thread(
                    target=self._drive, args=(one,), name="dbdyno-action", daemon=True
                )
                one.thread.start()

    # -- actions under way ------------------------------------------------------------------------
    def _drive(self, one: _Running) -> None:
        stopped = False
        while self._advance(one, stopped=stopped):
            while not (stopped := self._pausing.is_set()) and self._clock.now_ns() < one.until_ns:
                left_s = (one.until_ns - self._clock.now_ns()) / NS_PER_S
                self._pausing.wait(max(0.0, min(left_s, 0.5)))

    def _go_on(self) -> None:
        """Continues actions if the clock is simulated."""
        for one in list(self._running):
            if self._clock.now_ns() >= one.until_ns:
                self._advance(one, stopped=False)

    def _advance(self, one: _Running, *, stopped: bool) -> bool:
        """Runs one step of an action and returns whether it goes on."""
        try:
            one.until_ns = one.work.send(stopped) if one.begun else next(one.work)
            one.begun = True
        except StopIteration as end:
            self._over(one, dict(end.value))
        except (DbdynoError, Interrupted, OSError) as error:
            why = getattr(error, "message", None) or str(error)
            self._over(one, {"status": "failed", "detail": why})
        except Exception as error:
            self._over(one, {"status": "failed", "detail": f"{type(error).__name__}: {error}"})
        else:
            return True
        return False

    def _over(self, one: _Running, became: dict[str, Any]) -> None:
        fired = one.fired.model_copy(update=became)
        with self._lock:
            self._running.remove(one)
            self._budget = self._budget.stored(fired.size_bytes)
        with contextlib.suppress(StoreError):  # the measurement reports a full disk
            write_fired(self._record, fired)
        if fired.status == "failed":
            self._once(f"{fired.action}: {fired.detail}")
        else:
            stored = f", {format_size(fired.size_bytes)}" if fired.size_bytes else ""
            detail = f": {fired.detail}" if fired.detail else ""
            self._words.append(f"{fired.action} of trigger {fired.trigger} has ended{stored}{detail}")
