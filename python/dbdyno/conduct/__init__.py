"""The conductor: alone knows the order in time and causes effects. A run is ``run``, then ``rebuild``."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.conduct.captures import capture_of
    from dbdyno.conduct.cluster import clean as clean_cluster
    from dbdyno.conduct.cluster import end_own_cluster
    from dbdyno.conduct.cluster import status as cluster_status
    from dbdyno.conduct.crew import Crew, crew_of
    from dbdyno.conduct.derive import derive
    from dbdyno.conduct.doctor import Diagnosis, diagnosed
    from dbdyno.conduct.hosts import host_of, observed_target, server_machine
    from dbdyno.conduct.intervals import compared as compared_intervals
    from dbdyno.conduct.intervals import is_interval, time_model, time_model_of
    from dbdyno.conduct.intervals import trend_of as snapshot_trend
    from dbdyno.conduct.login_trace import trace_logins
    from dbdyno.conduct.measurement_snapshots import measured, object_use
    from dbdyno.conduct.memory_beside import MemoryBeside
    from dbdyno.conduct.memory_now import memory_of, memory_target
    from dbdyno.conduct.observation import (
        Observed,
        observation_of,
        observation_plan,
        observe_server,
    )
    from dbdyno.conduct.observed import Cost
    from dbdyno.conduct.observed import words as whom_in_words
    from dbdyno.conduct.prepare import EXTRA_CONNECTIONS
    from dbdyno.conduct.progress import (
        Look,
        NullObservationListener,
        NullProgressListener,
        ObservationListener,
        ProgressListener,
    )
    from dbdyno.conduct.rebuild import derived_of, labelled, raw_tables, rebuild, reported, results_of
    from dbdyno.conduct.request import (
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
    from dbdyno.conduct.run import run
    from dbdyno.conduct.script_texts import builtin_scripts
    from dbdyno.conduct.selftest import selftest
    from dbdyno.conduct.server_hosts import ServerHosts, server_machines
    from dbdyno.conduct.servers import (
        ObservedServers,
        ServerAsked,
        observe_servers,
        report_group,
        results_of_group,
    )
    from dbdyno.conduct.shown import shown
    from dbdyno.conduct.snapshots import SeriesListener, take_series, take_snapshot
    from dbdyno.conduct.tables import MadeTables, make_tables
    from dbdyno.conduct.trend import trend


lazy(
    __name__,
    {
        "Cost": "dbdyno.conduct.observed",
        "Diagnosis": "dbdyno.conduct.doctor",
        "EXTRA_CONNECTIONS": "dbdyno.conduct.prepare",
        "Look": "dbdyno.conduct.progress",
        "NullObservationListener": "dbdyno.conduct.progress",
        "NullProgressListener": "dbdyno.conduct.progress",
        "ObservationListener": "dbdyno.conduct.progress",
        "Observed": "dbdyno.conduct.observation",
        "ProgressListener": "dbdyno.conduct.progress",
        "Request": "dbdyno.conduct.request",
        "compared_intervals": "dbdyno.conduct.intervals:compared",
        "capture_of": "dbdyno.conduct.captures",
        "clean_cluster": "dbdyno.conduct.cluster:clean",
        "end_own_cluster": "dbdyno.conduct.cluster",
        "cluster_status": "dbdyno.conduct.cluster:status",
        "cluster_of": "dbdyno.conduct.request",
        "Crew": "dbdyno.conduct.crew",
        "crew_of": "dbdyno.conduct.crew",
        "derive": "dbdyno.conduct.derive",
        "derived_of": "dbdyno.conduct.rebuild",
        "diagnosed": "dbdyno.conduct.doctor",
        "experiment_of": "dbdyno.conduct.request",
        "find_recipe": "dbdyno.conduct.request",
        "host_of": "dbdyno.conduct.hosts",
        "is_interval": "dbdyno.conduct.intervals",
        "labelled": "dbdyno.conduct.rebuild",
        "reported": "dbdyno.conduct.rebuild",
        "measured": "dbdyno.conduct.measurement_snapshots",
        "MemoryBeside": "dbdyno.conduct.memory_beside",
        "MadeTables": "dbdyno.conduct.tables",
        "make_tables": "dbdyno.conduct.tables",
        "memory_of": "dbdyno.conduct.memory_now",
        "memory_target": "dbdyno.conduct.memory_now",
        "make_plan": "dbdyno.conduct.request",
        "object_use": "dbdyno.conduct.measurement_snapshots",
        "observation_of": "dbdyno.conduct.observation",
        "observation_plan": "dbdyno.conduct.observation",
        "observe_server": "dbdyno.conduct.observation",
        "observed_target": "dbdyno.conduct.hosts",
        "planned": "dbdyno.conduct.request",
        "raw_tables": "dbdyno.conduct.rebuild",
        "rebuild": "dbdyno.conduct.rebuild",
        "recipe_has_jobs": "dbdyno.conduct.request",
        "builtin_scripts": "dbdyno.conduct.script_texts",
        "recipe_text": "dbdyno.conduct.request",
        "recipes": "dbdyno.conduct.request",
        "results_of": "dbdyno.conduct.rebuild",
        "run": "dbdyno.conduct.run",
        "selftest": "dbdyno.conduct.selftest",
        "ObservedServers": "dbdyno.conduct.servers",
        "ServerAsked": "dbdyno.conduct.servers",
        "ServerHosts": "dbdyno.conduct.server_hosts",
        "observe_servers": "dbdyno.conduct.servers",
        "report_group": "dbdyno.conduct.servers",
        "results_of_group": "dbdyno.conduct.servers",
        "server_machines": "dbdyno.conduct.server_hosts",
        "shown": "dbdyno.conduct.shown",
        "SeriesListener": "dbdyno.conduct.snapshots",
        "take_series": "dbdyno.conduct.snapshots",
        "take_snapshot": "dbdyno.conduct.snapshots",
        "server_machine": "dbdyno.conduct.hosts",
        "server_ssh": "dbdyno.conduct.request",
        "snapshot_trend": "dbdyno.conduct.intervals:trend_of",
        "time_model": "dbdyno.conduct.intervals",
        "time_model_of": "dbdyno.conduct.intervals",
        "trace_logins": "dbdyno.conduct.login_trace",
        "trend": "dbdyno.conduct.trend",
        "whom_in_words": "dbdyno.conduct.observed:words",
        "workloads": "dbdyno.conduct.request",
    },
)
