"""The conductor: the only room that decides the order in time and causes effects. A run is ``run``, then
``rebuild``."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.conduct.before import Waiting, alone, others_now, parse_quiet
    from dbdyno.conduct.beside import LiveBeside
    from dbdyno.conduct.captures.captures import capture_of
    from dbdyno.conduct.comparisons import (
        MachineOptions,
        compared_runs,
        compared_variants,
        machines_of,
        parse_share,
    )
    from dbdyno.conduct.context import RunContext
    from dbdyno.conduct.derive.derive import derive
    from dbdyno.conduct.derive.rebuild import (
        derived_of,
        raw_tables,
        rebuild,
        relabelled,
        reported,
        results_of,
    )
    from dbdyno.conduct.derive.shown import shown
    from dbdyno.conduct.derive.spans import Chosen, ObservedTime, RecentObservations
    from dbdyno.conduct.doctor import Diagnosis, diagnosed
    from dbdyno.conduct.explanation import explanation
    from dbdyno.conduct.history.curves import Curve, curve
    from dbdyno.conduct.history.ends import series as snapshot_series
    from dbdyno.conduct.history.intervals import compared as compared_intervals
    from dbdyno.conduct.history.intervals import is_interval, time_model, time_model_of
    from dbdyno.conduct.history.intervals import loads as loads_around
    from dbdyno.conduct.history.labels import labels_of
    from dbdyno.conduct.history.removal import Removal, removal
    from dbdyno.conduct.history.rows import RunRow, run_row
    from dbdyno.conduct.history.selection import age, check_has_unit, select, shown_as
    from dbdyno.conduct.history.snapshot_days import between as between_snapshots
    from dbdyno.conduct.history.snapshot_days import interval_page, load_over_time
    from dbdyno.conduct.history.stored_trend import OBJECTS as TREND_OBJECTS
    from dbdyno.conduct.history.stored_trend import TrendQuestion, newest_workload, stored_trend
    from dbdyno.conduct.history.trend import trend
    from dbdyno.conduct.hosts.cluster import clean as clean_cluster
    from dbdyno.conduct.hosts.cluster import end_own_cluster
    from dbdyno.conduct.hosts.cluster import status as cluster_status
    from dbdyno.conduct.hosts.hosts import host_of, observed_target, server_machine
    from dbdyno.conduct.measure.crew import Crew, crew_of
    from dbdyno.conduct.measure.login_trace import trace_logins
    from dbdyno.conduct.measure.measurement_snapshots import measured, object_use
    from dbdyno.conduct.measure.observed import Cost
    from dbdyno.conduct.measure.observed import words as whom_in_words
    from dbdyno.conduct.measure.prepare import EXTRA_CONNECTIONS
    from dbdyno.conduct.measure.progress import (
        Look,
        NullObservationListener,
        NullProgressListener,
        ObservationListener,
        ProgressListener,
    )
    from dbdyno.conduct.measure.snapshots import SeriesListener, take_series, take_snapshot
    from dbdyno.conduct.measure.tables import MadeTables, make_tables
    from dbdyno.conduct.memory.memory_beside import MemoryBeside
    from dbdyno.conduct.memory.memory_now import memory_of, memory_target
    from dbdyno.conduct.noise import outlook, with_outlook
    from dbdyno.conduct.observe.observation import (
        Observed,
        observation_of,
        observation_plan,
        observe_server,
    )
    from dbdyno.conduct.observe.server_hosts import ServerHosts, server_machines
    from dbdyno.conduct.observe.servers import (
        ObservedServers,
        ServerRequest,
        observe_servers,
        report_group,
        results_of_group,
    )
    from dbdyno.conduct.request.patch import Patch
    from dbdyno.conduct.request.request import (
        Request,
        cluster_of,
        experiment_of,
        find_recipe,
        make_plan,
        planned,
        recipe_has_jobs,
        recipe_text,
        recipes,
        server_ssh,
        workloads,
    )
    from dbdyno.conduct.request.script_texts import builtin_scripts
    from dbdyno.conduct.request.servers import check_alone, impossible_variants
    from dbdyno.conduct.run import run
    from dbdyno.conduct.selftest import check_cases, selftest
    from dbdyno.conduct.suite import (
        PlannedBenchmark,
        matrix_of,
        planned_suite,
        report_suite,
        run_suite,
        runs_of_suite,
        suite_named,
        suites,
    )

lazy(__name__)
