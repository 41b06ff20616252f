"""The conductor: the only room that decides the order in time and causes effects. A run is ``run``, then
``rebuild``."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.conduct.captures.captures import capture_of
    from dbdyno.conduct.context import RunContext
    from dbdyno.conduct.derive.derive import derive
    from dbdyno.conduct.derive.rebuild import derived_of, labelled, raw_tables, rebuild, reported, results_of
    from dbdyno.conduct.derive.shown import shown
    from dbdyno.conduct.doctor import Diagnosis, diagnosed
    from dbdyno.conduct.history.intervals import compared as compared_intervals
    from dbdyno.conduct.history.intervals import is_interval, time_model, time_model_of
    from dbdyno.conduct.history.intervals import trend_of as snapshot_trend
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
    from dbdyno.conduct.run import run
    from dbdyno.conduct.selftest import selftest


lazy(
    __name__,
    {
        "Cost": "dbdyno.conduct.measure.observed",
        "Diagnosis": "dbdyno.conduct.doctor",
        "EXTRA_CONNECTIONS": "dbdyno.conduct.measure.prepare",
        "Look": "dbdyno.conduct.measure.progress",
        "NullObservationListener": "dbdyno.conduct.measure.progress",
        "NullProgressListener": "dbdyno.conduct.measure.progress",
        "ObservationListener": "dbdyno.conduct.measure.progress",
        "Observed": "dbdyno.conduct.observe.observation",
        "Patch": "dbdyno.conduct.request.patch",
        "ProgressListener": "dbdyno.conduct.measure.progress",
        "Request": "dbdyno.conduct.request.request",
        "RunContext": "dbdyno.conduct.context",
        "compared_intervals": "dbdyno.conduct.history.intervals:compared",
        "capture_of": "dbdyno.conduct.captures.captures",
        "clean_cluster": "dbdyno.conduct.hosts.cluster:clean",
        "end_own_cluster": "dbdyno.conduct.hosts.cluster",
        "cluster_status": "dbdyno.conduct.hosts.cluster:status",
        "cluster_of": "dbdyno.conduct.request.request",
        "Crew": "dbdyno.conduct.measure.crew",
        "crew_of": "dbdyno.conduct.measure.crew",
        "derive": "dbdyno.conduct.derive.derive",
        "derived_of": "dbdyno.conduct.derive.rebuild",
        "diagnosed": "dbdyno.conduct.doctor",
        "experiment_of": "dbdyno.conduct.request.request",
        "find_recipe": "dbdyno.conduct.request.request",
        "host_of": "dbdyno.conduct.hosts.hosts",
        "is_interval": "dbdyno.conduct.history.intervals",
        "labelled": "dbdyno.conduct.derive.rebuild",
        "reported": "dbdyno.conduct.derive.rebuild",
        "measured": "dbdyno.conduct.measure.measurement_snapshots",
        "MemoryBeside": "dbdyno.conduct.memory.memory_beside",
        "MadeTables": "dbdyno.conduct.measure.tables",
        "make_tables": "dbdyno.conduct.measure.tables",
        "memory_of": "dbdyno.conduct.memory.memory_now",
        "memory_target": "dbdyno.conduct.memory.memory_now",
        "make_plan": "dbdyno.conduct.request.request",
        "object_use": "dbdyno.conduct.measure.measurement_snapshots",
        "observation_of": "dbdyno.conduct.observe.observation",
        "observation_plan": "dbdyno.conduct.observe.observation",
        "observe_server": "dbdyno.conduct.observe.observation",
        "observed_target": "dbdyno.conduct.hosts.hosts",
        "planned": "dbdyno.conduct.request.request",
        "raw_tables": "dbdyno.conduct.derive.rebuild",
        "rebuild": "dbdyno.conduct.derive.rebuild",
        "recipe_has_jobs": "dbdyno.conduct.request.request",
        "builtin_scripts": "dbdyno.conduct.request.script_texts",
        "recipe_text": "dbdyno.conduct.request.request",
        "recipes": "dbdyno.conduct.request.request",
        "results_of": "dbdyno.conduct.derive.rebuild",
        "run": "dbdyno.conduct.run",
        "selftest": "dbdyno.conduct.selftest",
        "ObservedServers": "dbdyno.conduct.observe.servers",
        "ServerRequest": "dbdyno.conduct.observe.servers",
        "ServerHosts": "dbdyno.conduct.observe.server_hosts",
        "observe_servers": "dbdyno.conduct.observe.servers",
        "report_group": "dbdyno.conduct.observe.servers",
        "results_of_group": "dbdyno.conduct.observe.servers",
        "server_machines": "dbdyno.conduct.observe.server_hosts",
        "shown": "dbdyno.conduct.derive.shown",
        "SeriesListener": "dbdyno.conduct.measure.snapshots",
        "take_series": "dbdyno.conduct.measure.snapshots",
        "take_snapshot": "dbdyno.conduct.measure.snapshots",
        "server_machine": "dbdyno.conduct.hosts.hosts",
        "server_ssh": "dbdyno.conduct.request.request",
        "snapshot_trend": "dbdyno.conduct.history.intervals:trend_of",
        "time_model": "dbdyno.conduct.history.intervals",
        "time_model_of": "dbdyno.conduct.history.intervals",
        "trace_logins": "dbdyno.conduct.measure.login_trace",
        "trend": "dbdyno.conduct.history.trend",
        "whom_in_words": "dbdyno.conduct.measure.observed:words",
        "workloads": "dbdyno.conduct.request.request",
    },
)
