"""Findings: claims from the tables. One function a question, all in ``CHECKS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl

from dbdyno.conclude.command_claims import of_commands
from dbdyno.conclude.commands import commands
from dbdyno.conclude.compare import cpu_profile
from dbdyno.conclude.regression import requests
from dbdyno.conclude.run import (
    background,
    chains,
    checks,
    counting,
    coverage,
    equal_load,
    growth,
    hosts,
    locks,
    memory,
    paced,
    quality,
    scripts,
    standstill,
    steadiness,
    system_calls,
    table_scans,
    triggers,
)
from dbdyno.conclude.run.case import Case, Facts
from dbdyno.conclude.scaling import capacity, cpu_wait
from dbdyno.model.engine.environment import Environment
from dbdyno.model.plan.plan import Plan, Workload
from dbdyno.model.results.claim import Claim

CHECKS: tuple[Callable[[Case], Iterator[Claim]], ...] = (
    triggers.fired,
    quality.cells_cut_short,
    coverage.nobody,
    coverage.hidden_sessions,
    coverage.gaps,
    coverage.brief_sessions,
    quality.client_limits,
    quality.driver_starved,
    quality.driver_share,
    hosts.starved,
    hosts.network,
    hosts.slow,
    paced.driver_late,
    paced.overload,
    paced.dropped,
    counting.sessions_lost,
    counting.no_calls,
    commands.failed,
    counting.errors,
    scripts.retried,
    scripts.most_time,
    counting.work_constant,
    counting.executions,
    counting.changes,
    growth.not_reset,
    growth.grew,
    table_scans.not_cached,
    counting.cached,
    counting.os_cached,
    counting.from_storage,
    commands.speed_up,
    commands.orders,
    commands.compared,
    commands.durations,
    commands.serial_time,
    commands.outliers,
    commands.first,
    commands.left_behind,
    commands.shells,
    capacity.headline,
    equal_load.equal_load,
    locks.lock_bound,
    locks.hot_rows,
    locks.latch,
    chains.roots,
    cpu_wait.onsets,
    cpu_wait.in_windows,
    cpu_wait.throttled,
    standstill.throttled_wait,
    standstill.throttled_sessions,
    standstill.stopped,
    background.pool_queue,
    background.pool_way,
    background.pooler_busy,
    cpu_wait.hidden_run_queue,
    cpu_wait.idle_burn,
    cpu_wait.naive_cpu,
    cpu_profile.where_cpu_goes,
    cpu_profile.cost_difference,
    background.helpers,
    background.io_workers,
    requests.cost,
    background.parallel_workers,
    background.autovacuum,
    background.checkpoints,
    background.resets,
    memory.memory,
    system_calls.number_and_cost,
    system_calls.time_inside,
    quality.unaccounted,
    checks.conditions,
    checks.short_compiled,
    quality.steal,
    quality.foreign_load,
    quality.sources_differ,
    quality.long_calls,
    steadiness.steps,
    steadiness.drift,
    steadiness.uneven_sessions,
    steadiness.placement_groups,
    steadiness.all_share,
    steadiness.alike,
    steadiness.settled,
    coverage.sampler,
    coverage.sampler_late,
    coverage.sources_used,
    quality.sources_missing,
    quality.one_repeat,
)
_OF_THE_WHOLE = frozenset({
    *(capacity.headline, chains.roots, checks.conditions, commands.compared, commands.durations),
    *(commands.failed, commands.first, commands.left_behind, commands.orders, commands.outliers),
    *(commands.serial_time,),
    *(commands.shells, commands.speed_up, counting.errors, counting.executions, counting.no_calls),
    *(counting.sessions_lost, counting.work_constant, coverage.gaps, coverage.sources_used),
    *(cpu_profile.cost_difference, cpu_profile.where_cpu_goes, cpu_wait.onsets, equal_load.equal_load),
    *(growth.grew, growth.not_reset, locks.hot_rows, locks.latch, locks.lock_bound, memory.memory),
    *(quality.cells_cut_short, quality.foreign_load, quality.one_repeat, quality.sources_differ),
    *(quality.sources_missing, scripts.most_time, scripts.retried, steadiness.alike),
    *(steadiness.settled, table_scans.not_cached, triggers.fired),
})  # fmt: skip
"""Checks that ask nothing of single cells: they wait until all of them are there."""
_OF_DATABASES = ("naive-cpu", "idle-busy", "hidden-run-queue")
"""They are of states that servers name: commands have none."""
_ORDER = ("invalid", "warning", "note", "good")


def asked(
    plan: Plan,
    environment: Environment,
    tables: Mapping[str, pl.DataFrame],
    workloads: Mapping[str, Workload],
) -> Facts:
    """What the checks ask of these cells one by one, answered; of the same tables as :func:`findings`."""
    case = Case(plan, environment, tables, workloads)
    found = [finding for check in CHECKS if check not in _OF_THE_WHOLE for finding in check(case)]
    for _ in coverage.too_few(case, found):
        pass
    return case.facts


def findings(
    plan: Plan,
    environment: Environment,
    tables: Mapping[str, pl.DataFrame],
    workloads: Mapping[str, Workload],
    facts: Facts | None = None,
    load: Callable[[str], Mapping[str, pl.DataFrame]] | None = None,
) -> tuple[Claim, ...]:
    """From all tables of window, ledger and ``rungs``. The gravest first, else in the order of ``CHECKS``.

    ``facts``: what is known of single cells; what the checks ask beyond is added. With them ``tables`` needs
    no tables that only single cells are asked of: ``load`` makes those of a cell again.
    """
    case = Case(plan, environment, tables, workloads, {} if facts is None else facts, load)
    found = [finding for check in CHECKS for finding in check(case)]
    found += coverage.too_few(case, found)
    if plan.jobs:
        found = [of_commands(f) for f in found if f.id not in _OF_DATABASES]
    return tuple(sorted(found, key=lambda f: _ORDER.index(f.severity)))
