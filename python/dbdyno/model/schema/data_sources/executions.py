"""Columns of the resources that single executions of commands used."""

from __future__ import annotations

from dbdyno.model.schema.column import CELL
from dbdyno.model.schema.column import column as _c
from dbdyno.model.schema.table import Table

EXECUTION_TABLES: tuple[Table, ...] = (
    Table(
        "execution_times",
        (
            *CELL,
            _c("session", "i64", "session that ran it"),
            _c("number", "i64", "0.. in the session, in the order of starting, warm-up included"),
            _c("job", "str", "the job's name"),
            _c("measured", "bool", "started in the window"),
            _c("start_s", "f64", "since t0; negative: warm-up"),
            _c("end_s", "f64", "since t0"),
            _c("duration_ns", "i64", "from start to end, the start-up of its shell taken off"),
            _c("spawn_ns", "i64", "from start until its program had been loaded", null=True),
            _c("outcome", "str", "ok | exit | signal | timeout | verify | stopped | not started"),
            _c("exit_code", "i64", "exit code, or number of the signal", null=True),
            _c("cpu_user_ns", "i64", "user CPU of its tree", null=True),
            _c("cpu_system_ns", "i64", "kernel CPU of its tree", null=True),
            _c("max_rss_bytes", "i64", "largest resident set of any of its processes", null=True),
            _c("work", "f64", "work units of it", null=True),
            _c(
                "score",
                "f64",
                "modified Z-score of its duration among those of its job (Iglewicz and Hoaglin 1993)",
                null=True,
            ),
            _c("outlier", "bool", "its score is above 3.5 or below -3.5"),
            _c("left_over", "i64", "processes of it that outlived it, and were killed", null=True),
            _c("detail", "str", "of one that failed: the end of its error output", null=True),
        ),
        options=("executions",),
    ),
    Table(
        "execution_rates",
        (
            *CELL,
            _c("job", "str", "the job's name; NULL: all jobs", null=True),
            _c("executions", "i64", "measured ones that ended well"),
            _c("failed", "i64", "measured ones that did not"),
            _c("outliers", "i64", "of those that ended well"),
            _c("left_over", "i64", "measured ones that left processes behind", null=True),
            _c("mean_ns", "f64", "mean duration, the start-up of a shell taken off", null=True),
            _c("sd_ns", "f64", "standard deviation of durations; NULL: one execution", null=True),
            _c("min_ns", "f64", "shortest", null=True),
            _c("median_ns", "f64", "median", null=True),
            _c("max_ns", "f64", "longest", null=True),
            _c("first_ns", "f64", "duration of the first execution, warm-up included", null=True),
            _c("spawn_ns", "f64", "mean time from start until the program had been loaded", null=True),
            _c(
                "shell_ns",
                "f64",
                "start-up of its shell at its shortest, which was taken off; 0: no shell",
                null=True,
            ),
            _c("cpu_user_ns", "f64", "mean user CPU of an execution's tree", null=True),
            _c("cpu_system_ns", "f64", "mean kernel CPU", null=True),
            _c("parallelism", "f64", "CPU per duration: CPUs that an execution used on average", null=True),
            _c("max_rss_bytes", "i64", "largest resident set of any process", null=True),
            _c("minor_faults", "f64", "page faults without I/O, of an execution", null=True),
            _c("major_faults", "f64", "page faults with I/O", null=True),
            _c("voluntary", "f64", "voluntary context switches", null=True),
            _c("involuntary", "f64", "involuntary ones", null=True),
            _c("read_bytes", "f64", "read from storage", null=True),
            _c("written_bytes", "f64", "written to storage", null=True),
            _c("work", "f64", "work units of an execution", null=True),
            _c(
                "executions_per_s", "f64", "of all sessions: executions / (last end - first start)", null=True
            ),
            _c("work_per_s", "f64", "work units per second in the same time", null=True),
            _c("makespan_ns", "f64", "from the first start to the last end", null=True),
        ),
        together=True,
        options=("executions",),
    ),
    Table(
        "execution_failures",
        (
            *CELL,
            _c("job", "str", "the job's name"),
            _c("outcome", "str", "exit | signal | timeout | verify | stopped | not started"),
            _c("exit_code", "i64", "exit code, or number of the signal", null=True),
            _c("count", "i64", "measured executions that ended so"),
            _c("detail", "str", "the end of the error output of the first of them", null=True),
        ),
        options=("executions",),
    ),
    Table(
        "parallelism",
        (
            *CELL,
            _c("start_s", "f64", "since t0"),
            _c("end_s", "f64", "since t0"),
            _c("runnable", "f64", "tasks on a CPU or in the run queue, mean of the samples"),
            _c("disk", "f64", "tasks asleep in the kernel for a device (state D)"),
            _c("asleep", "f64", "other tasks"),
            _c("most", "i64", "most tasks runnable in a sample"),
            _c("few", "f64", "share of the samples in which at most one task was runnable"),
            _c("samples", "i64", "samples"),
        ),
        options=("executions",),
    ),
)
"""Derived tables of :data:`RAW_EXECUTIONS`. Means and extremes cover successful executions only."""
OUTLIER = 3.5
"""Limit of the modified Z-score, recommended by Iglewicz and Hoaglin (1993), How to Detect and Handle
Outliers."""
