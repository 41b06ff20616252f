"""Configures the server for each variant, and restores it at the end. Every change is written to a journal
first, so that `dbdyno clean` restores the server if the run is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType

from dbdyno import limits, observe
from dbdyno.conduct.measure.conditions import before_run
from dbdyno.conduct.measure.prepare import check_capacity
from dbdyno.conduct.measure.progress import ProgressListener
from dbdyno.drive import Interrupt
from dbdyno.model.engine.condition import Condition, DirectFiles
from dbdyno.model.engine.environment import ServerFacts
from dbdyno.model.engine.protocols import Configured, Journal, Load, Pool, Server, needed
from dbdyno.model.engine.topology import Topology
from dbdyno.model.errors import (
    Abandoned,
    DbdynoError,
    NotAvailable,
    NotPrivileged,
    ServerBusy,
    ServerLost,
    TargetError,
    Unreachable,
    UsageError,
)
from dbdyno.model.plan.plan import Choice, Plan, Variant
from dbdyno.model.results.results import Applied
from dbdyno.plan import check_comparable, without
from dbdyno.store import left_over


class _NotHere(Exception):
    """This machine or server does not allow a variant."""

    def __init__(self, error: DbdynoError) -> None:
        super().__init__(error.message)
        self.error = error


@contextlib.contextmanager
def _possible_here(*refusals: type[DbdynoError]) -> Iterator[None]:
    """Turns refusals of this machine or server into :class:`_NotHere`, except those of a lost server, or one
    used by others."""
    try:
        yield
    except (ServerBusy, ServerLost, Unreachable):
        raise
    except refusals as e:
        raise _NotHere(e) from e


class Stage:
    """Configures the server for each variant; leaving it by ``with`` restores everything in any case."""

    def __init__(
        self, server: Server, plan: Plan, topology: Topology, journal: Journal, listener: ProgressListener
    ) -> None:
        self.server, self.plan, self._topology = server, plan, topology
        self._journal, self.listener = journal, listener
        self._now: Variant | None = None
        self._visit = 0
        self.started = False  # whether the server of the current variant was started for it
        self._limited: limits.Applied | None = None
        self.applied: dict[str, Applied] = {}
        self._seen: set[str] = set()
        self.conditions: list[Condition] = []  # under the settings of each variant

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, _t: type[BaseException] | None, error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        trouble = [e for e in (self._try(step) for step in self._ways_back()) if e is not None]
        for e in trouble:
            self.listener.noted(f"not put back: {e.message}; dbdyno clean does it as soon as it can be done")
        if trouble and error is None:
            raise trouble[0]

    # -- before the start ---------------------------------------------------------------------------
    def check(self, interrupt: Interrupt, *, all_variants: bool = False) -> Plan:
        """Checks every variant before the first cell. Returns the plan without variants that are not
        possible here if others remain to compare; else, and with ``all_variants``, raises the reason with
        the cure. Raises :class:`Interrupted` between two variants."""
        refused: dict[str, DbdynoError] = {}
        for variant in self.plan.variants:
            interrupt.check()
            try:
                self._use(variant)
                self._tidy()
                known = self._without_lacking(variant)
                self.applied[variant.name] = self._check_one(known, self.server.facts())
            except _NotHere as e:
                refused[variant.name] = e.error
        self._leave_out(refused, all_variants)
        self._leave_out(self._rehearse(interrupt), all_variants)
        if any(self.applied[v.name].restarts for v in self.plan.variants):
            self._say_restarts()
        return self.plan

    def use(self, variant: Variant, *, anew: bool = False) -> None:
        """Puts the server of the variant in use, if variants name servers, and settings that were changed on
        the one before back. ``anew``: starts it again if it is in use. Raises the error of a server that
        cannot be used, with the variant's name."""
        try:
            self._use(variant, anew=anew)
        except _NotHere as e:
            raise e.error.of_variant(variant.name) from None

    def _use(self, variant: Variant, *, anew: bool = False) -> None:
        choosing = self.server.choosing
        if choosing is None:
            return
        self._configure({})
        try:
            self.started = choosing.use(variant.name, anew=anew) or self.started
        except Abandoned:
            raise
        except DbdynoError as e:
            raise _NotHere(e) from e

    def _without_lacking(self, variant: Variant) -> Variant:
        """Returns the variant, and changes it in the plan, without those settings of all variants that its
        server does not have."""
        choosing, experiment = self.server.choosing, self.plan.experiment
        spec = experiment.variants.get(variant.name)
        inherited = experiment.settings.keys() - ({} if spec is None else spec.settings).keys()
        lacking = [] if choosing is None else choosing.lacking(n for n in variant.settings if n in inherited)
        if not lacking:
            return variant
        why = f"the server of variant {variant.name} does not have it"
        left = {n: v for n, v in variant.settings.items() if n not in lacking}
        known = variant.model_copy(update={"settings": left})
        choices = (Choice(name=f"setting {n}", value="left out", reason=why) for n in lacking)
        variants = tuple(known if v.name == variant.name else v for v in self.plan.variants)
        changed = {"variants": variants, "choices": (*self.plan.choices, *choices)}
        self.plan = self.plan.model_copy(update=changed).sealed()
        self.listener.noted(f"setting {', '.join(lacking)} is left out: {why}")
        return known

    def _check_one(self, variant: Variant, facts: ServerFacts) -> Applied:
        own_world = self.server.world is not None
        if own_world and (variant.limits.of_system or variant.limits.bind not in (None, "off")):
            raise UsageError(
                f"variant {variant.name}: the {facts.engine} engine has no processes to limit",
                "leave out cpus, mems, quota, weight and bind",
            )
        self.server.check_driver(variant.driver)
        # a setting that one server lacks is no mistake in the others
        of_servers = () if self.server.choosing is None else (UsageError,)
        with _possible_here(NotPrivileged, NotAvailable, *of_servers):
            restarts = self._check_settings(variant)
        if self.server.choosing is not None:
            with _possible_here(TargetError):
                check_capacity(self.server, self.plan)
        with _possible_here(UsageError, TargetError):
            means = limits.check(
                variant.limits,
                self._topology,
                facts.main_pid,
                facts.local,
                self.plan.top,
                self._journal,
                facts.why_not_local,
            )
        with _possible_here(NotAvailable, TargetError):
            if (pool := self._pool(variant)) is not None:
                needed(self.server.pooling, "use a connection pooler").check_pool(pool)
        return Applied(restarts=tuple(restarts), limits=tuple(m.words for m in means))

    def _leave_out(self, refused: Mapping[str, DbdynoError], all_variants: bool) -> None:
        check_comparable(self.plan, refused, all_variants=all_variants)
        for name, error in refused.items():
            cure = f"; {error.cure}" if error.cure else ""
            self.listener.noted(f"variant {name} is left out: {error.message}{cure}")
        if refused:
            self.plan = without(self.plan, {name: e.message for name, e in refused.items()})

    def _tidy(self) -> None:
        """Restores settings that a killed run left on this server: they would be taken for the server's
        own."""
        settings = self.server.settings
        for journal in left_over().dead:
            for undo in reversed([u for u in journal.undos if u.kind == "settings"]):
                if settings is not None and (words := settings.put_back(undo)) is not None:
                    journal.forget(undo.key)
                    self.listener.noted(f"left by run {journal.run}, which was killed: {words}")

    def _rehearse(self, interrupt: Interrupt) -> dict[str, DbdynoError]:
        """Starts the server once with the settings that need a restart, since only that shows whether it
        starts.

        Returns the variants with which it does not start.
        """
        needing = [v for v in self.plan.variants if self.applied[v.name].restarts]
        refused: dict[str, DbdynoError] = {}
        for kind, variant in {self._restarting(v.name): v for v in needing}.items():
            interrupt.check()
            self.listener.preparing(f"restarting the server for variant {variant.name}")
            try:
                self._use(variant)
                self._configure(variant.settings)
            except (UsageError, _NotHere) as e:
                error = e.error if isinstance(e, _NotHere) else e
                refused |= {v.name: error for v in needing if self._restarting(v.name) == kind}
        if needing:
            self._configure({})
        return refused

    def _say_restarts(self) -> None:
        often = f"{self.restarts()} restarts of the server "
        often += "on the way" if self.plan.adaptive is None else "or more at each rung"
        self.listener.noted(f"{often}, about 0.2 s each")

    def restarts(self) -> int:
        """Returns how many times the server will be restarted over all cells."""
        names = [c.variant for c in self.plan.cells]
        kinds = [self._restarting(name) for name in names]
        return sum(a != b for a, b in zip(["", *kinds], [*kinds, ""], strict=True))

    def _restarting(self, name: str) -> str:
        variant = self.plan.variant(name)
        needs = self.applied[name].restarts if name in self.applied else ()
        kind = ";".join(f"{n}={variant.settings[n]}" for n in sorted(needs))
        return kind and f"{variant.server or ''};{kind}"

    # -- from variant to variant --------------------------------------------------------------------
    def enter(self, variant: Variant, visit: int = 0) -> None:
        """Configures the server for this variant. Raises the error of a failed change; the journal has all
        changes. ``visit``: if variants name servers, the measurements of one number are on one start."""
        goes_on = self.server.choosing is None or visit == self._visit
        if self._now is not None and self._now.name == variant.name and goes_on:
            return
        self._unlimit()
        self._now, self._visit = None, visit
        self._without_pool()
        self.started = False
        self.use(variant, anew=True)
        done = self._configure(variant.settings)
        if variant.limits.of_system:
            facts = self.server.facts()  # the server may have been restarted
            main_pid = limits.seen(facts.main_pid, facts.local, facts.why_not_local)
            self._limited = limits.apply(variant.limits, main_pid, self._journal)
        if (pool := self._pool(variant)) is not None:
            needed(self.server.pooling, "use a connection pooler").use_pool(pool, self._journal)
        self._now = variant
        self._look_at_settings(variant)
        known = self.applied.get(variant.name, Applied())
        changed = {"settings": dict(done.in_force), "starts": known.starts + self.started}
        self.applied[variant.name] = known.model_copy(update=changed)

    def _look_at_settings(self, variant: Variant) -> None:
        """Checks the server once under the settings of a variant."""
        if variant.settings and variant.name not in self._seen:
            self._seen.add(variant.name)
            conditions = before_run(self.server, self.server.facts())
            named = variant.name if len(self.plan.variants) > 1 else ""
            self.conditions += [c.model_copy(update={"variant": named}) for c in conditions]

    def look(self) -> None:
        """Reports limits that are no longer in force: a service manager may reclaim control groups."""
        if self._limited is not None and (why := self._limited.broken()) is not None:
            self.listener.noted(f"limits are not in force as they were set: {why}")

    def connected(self, load: Load) -> None:
        """Binds sessions and checks open files once all sessions are connected."""
        self._bind(load)
        self._look_at_files()

    def _look_at_files(self) -> None:
        """Checks, once for each variant that asks for direct I/O, that the server has its files open with
        it."""
        now, conditions = self._now, self.server.conditions
        if now is None or conditions is None or not now.settings or self.applied[now.name].files:
            return
        with contextlib.suppress(DbdynoError):  # a check must not fail a run
            facts = self.server.facts()
            asked = facts.here and conditions.conditions().direct_io
            if not asked or facts.main_pid is None:
                return
            root = self.server.machine.root
            seen = observe.direct_files(facts.main_pid, conditions.data_files, root)
            self._note_files(now, seen)

    def _note_files(self, now: Variant, seen: DirectFiles) -> None:
        self.applied[now.name] = self.applied[now.name].model_copy(update={"files": seen.words})
        if seen.direct is None or seen.direct != seen.files:
            self.listener.noted(f"! variant {now.name}, direct I/O: {seen.words}")

    def _bind(self, load: Load) -> None:
        """Binds each session's process to a CPU of its own if the variant asks for it."""
        spec = self._now.limits if self._now is not None else None
        if spec is None or spec.bind in (None, "off"):
            return
        facts = self.server.facts()
        main_pid = limits.seen(facts.main_pid, facts.local, facts.why_not_local)
        limits.pin(load.backends(), limits.bind_order(spec, self._topology, main_pid), main_pid)

    # -- the end ------------------------------------------------------------------------------------
    def _ways_back(self) -> Sequence[Callable[[], None]]:
        after = [partial(self._clean_up, v) for v in self.plan.variants if v.cleanup]
        return (self._unlimit, *after, self._without_pool, self._as_found)

    def _clean_up(self, variant: Variant) -> None:
        """Runs the variant's clean-up command. If that fails, `dbdyno clean` could do nothing either."""
        first = variant.jobs[0]
        try:
            needed(self.server.commands, "run commands").aside(variant.cleanup, first.directory, first.env)
        except DbdynoError as e:
            self.listener.noted(f"! clean-up of variant {variant.name} failed: {e.message}")

    def _try(self, step: Callable[[], None]) -> DbdynoError | None:
        try:
            step()
        except DbdynoError as e:
            return e
        return None

    def _unlimit(self) -> None:
        limited, self._limited = self._limited, None
        if limited is not None:
            limited.undo()

    def _without_pool(self) -> None:
        if self.server.pooling is not None and any(v.limits.pool is not None for v in self.plan.variants):
            self.server.pooling.use_pool(None, self._journal)

    def _as_found(self) -> None:
        if any(v.settings for v in self.plan.variants):
            self._configure({})

    def _check_settings(self, variant: Variant) -> Sequence[str]:
        if self.server.settings is None and not variant.settings:
            return ()
        return needed(self.server.settings, "change settings").check_settings(variant.settings)

    def _configure(self, settings: Mapping[str, str]) -> Configured:
        if self.server.settings is None and not settings:
            return Configured({}, restarted=False)
        return needed(self.server.settings, "change settings").configure(settings, self._journal)

    def _pool(self, variant: Variant) -> Pool | None:
        size = variant.limits.pool
        if size is None:
            return None
        return Pool(
            size=size,
            mode=variant.limits.pool_mode or "transaction",
            clients=self.plan.top,
            protocol=variant.driver.protocol,
        )
