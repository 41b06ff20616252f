"""Fields of the experiment that are options of a command, too: each is declared here, once.

A declaration holds all but the field's type: the option's names, its help, its range, its default and its
group. :func:`dbdyno.model.plan.flagged.flagged` makes the field of it, :mod:`dbdyno.cli.flags` the option.
Light: every ``--help`` loads this.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from dbdyno.model.plan.literals import (
    Arrivals,
    Expected,
    Order,
    Protocol,
    Reset,
    ServerSettings,
    Shell,
    Spread,
    Waits,
)

WHAT = "What to run"
OBSERVED = "What to observe"
SCRIPTS = "Scripts, as in pgbench"
COMMANDS = "Commands in place of a database"
LOAD = "Load"
MEASUREMENT = "Measurement"
SERVER = "Server"
CLUSTER = "Cluster"
GATHER = "What to gather"
OUTPUT = "Output"
GROUPS = (WHAT, OBSERVED, LOAD, MEASUREMENT, SCRIPTS, COMMANDS, SERVER, CLUSTER, GATHER, OUTPUT)
"""In the order of a help text."""

RUN, OBSERVE = "run", "observe"


class Number(int):
    """Number of a process, session or window, as tables hold it."""


class Flag(NamedTuple):
    """An option that is a field of the experiment."""

    key: str  # measure; of a table driver.protocol; jobs.shell: of each job
    names: str  # as on the command line, blanks between them
    help: str  # one sentence, or a few
    group: str
    more: str = ""  # what only --help-all and the pages add
    metavar: str = ""
    kind: type = str  # bool: takes no value
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    default: Any = None  # the field's
    shown: str = ""  # the default in words, where the field's own says less
    value: Any = None  # what an option without a value sets; None: true
    multiple: bool = False
    common: bool = False  # whether --help shows it; --help-all shows all
    brief: str = ""  # what --help shows in place of help
    commands: tuple[str, ...] = (RUN,)

    @property
    def text(self) -> str:
        """The whole help, without the default."""
        return f"{self.help}{'' if self.more[:1] in ('', ':') else ' '}{self.more}"


_BOTH = (RUN, OBSERVE)
_NAME_VALUE = "NAME=VALUE"
_DECLARED = (
    # -- load --
    Flag(
        "sessions",
        "--sessions --ladder",
        "Numbers of sessions: 1,2,4,8 | FROM:TO | FROM:TO:STEP | FROM:TO:x2 | auto | auto:TOP.",
        LOAD,
        "auto searches around the knee, or around the target.",
        metavar="LADDER",
        shown="1, 2, 4 ... 4 x CPUs",
        common=True,
        brief="Numbers of sessions: 1,2,4,8 | 1:16 | 1:64:x2 | auto.",
    ),
    Flag(
        "target",
        "--target",
        "Search for the highest number of sessions (with --rates auto: the highest rate) that meets a "
        "target: 'p95<20ms'",
        LOAD,
        "(p50, p90, p95, p99, p99.9, p99.99, mean, max), or the fewest sessions that meet 'throughput>1000'.",
        metavar="METRIC<LIMIT",
        common=True,
        brief="Search for the highest load that meets a target: 'p95<20ms'.",
    ),
    Flag(
        "rungs",
        "--rungs",
        "Maximum number of load levels (auto).",
        LOAD,
        least=3,
        most=200,
        kind=int,
        shown="16",
    ),
    Flag(
        "rate",
        "-R --rate",
        "Begin calls at this rate whether or not earlier ones have ended",
        LOAD,
        ": response times count from when a call was due (dbdyno help paced).",
        metavar="CALLS/S",
        common=True,
        brief="Paced load: begin calls at this rate, on time.",
    ),
    Flag(
        "rates",
        "--rates",
        "Rates, over a fixed number of sessions: 100,200,400 | FROM:TO:STEP | FROM:TO:x1.5 | auto | "
        "auto:TOP.",
        LOAD,
        "auto searches the highest rate that is delivered, or that meets the target.",
        metavar="LADDER",
        common=True,
        brief="Paced load at several rates: 100,200,400 | auto.",
    ),
    Flag(
        "arrivals",
        "--arrivals",
        "With a rate: calls come at random, or at equal distances.",
        LOAD,
        choices=get_args(Arrivals),
        shown="poisson",
    ),
    Flag(
        "latency_limit",
        "-L --latency-limit",
        "With a rate: drop a call that is due for longer than this, and count it; a number is milliseconds.",
        LOAD,
        metavar="TIME",
        shown="none",
    ),
    Flag(
        "think",
        "--think",
        "Think time between two calls of a session: 10ms, 'exponential 10ms', 'uniform 5ms 15ms'.",
        LOAD,
        metavar="TIME",
        shown="none",
    ),
    Flag(
        "call_target",
        "--call-target",
        "Duration of a call with one session.",
        LOAD,
        metavar="TIME",
        shown="300ms or less",
    ),
    Flag(
        "recalibrate",
        "--recalibrate",
        "Calibrate the size of a call anew; otherwise it is as in earlier runs on this machine.",
        LOAD,
        kind=bool,
        default=False,
    ),
    Flag(
        "driver",
        "--driver",
        "Driver option: protocol=simple, pipeline=on, validation='SELECT 1', threads=2; repeatable.",
        LOAD,
        metavar=_NAME_VALUE,
        multiple=True,
    ),
    # -- measurement --
    Flag(
        "measure",
        "--measure",
        "Duration of a measurement.",
        MEASUREMENT,
        metavar="TIME",
        default="10s",
        common=True,
    ),
    Flag(
        "settle",
        "--settle",
        "Warm-up before each measurement.",
        MEASUREMENT,
        metavar="TIME",
        default="2s",
        common=True,
    ),
    Flag(
        "repeats",
        "--repeats",
        "Repeats; two or more give intervals.",
        MEASUREMENT,
        kind=int,
        least=1,
        most=1000,
        default=1,
        common=True,
    ),
    Flag(
        "until",
        "--until",
        "Repeat until the 95 % interval of every rate is within this share of it: 2%.",
        MEASUREMENT,
        metavar="SHARE",
        shown="off",
        common=True,
        brief="Repeat until the 95 % intervals are within this share: 2%.",
    ),
    Flag("budget", "--budget", "Total time budget: 30min.", MEASUREMENT, metavar="TIME"),
    Flag(
        "cool_down",
        "--cool-down",
        "Pause before each measurement.",
        MEASUREMENT,
        metavar="TIME",
        default="0s",
        shown="none",
    ),
    Flag(
        "order",
        "--order",
        "Order of the measurements.",
        MEASUREMENT,
        choices=get_args(Order),
        shown="interleaved with several variants, else ladder",
    ),
    Flag(
        "reset",
        "--reset",
        "Load the tables that dbdyno prepared again: before each measurement, or each repeat or round of "
        "variants (dbdyno help resets).",
        MEASUREMENT,
        choices=get_args(Reset),
        shown="each where calls change rows",
    ),
    Flag(
        "expect",
        "--expect",
        "What is to be tested: disk (physical reads), cache (the server's), or memory (any cache; tables are "
        "read into it before each measurement); warns where it is not.",
        MEASUREMENT,
        choices=get_args(Expected),
    ),
    Flag(
        "baseline",
        "--baseline",
        "Variant to compare with.",
        MEASUREMENT,
        metavar="VARIANT",
        shown="the first",
    ),
    Flag("seed", "--seed", "Random seed for order and sampling times.", MEASUREMENT, kind=int, default=1),
    # -- scripts, as in pgbench --
    Flag(
        "variables",
        "-D --define",
        "Variable of the scripts; repeatable.",
        SCRIPTS,
        metavar=_NAME_VALUE,
        multiple=True,
    ),
    Flag(
        "scale",
        "-s --scale",
        "Variable scale of your own scripts; pgbench's own have that of their tables.",
        SCRIPTS,
        metavar="N",
        kind=int,
        least=1,
        shown="1",
    ),
    Flag(
        "driver.protocol",
        "-M --protocol",
        "How statements are sent.",
        SCRIPTS,
        choices=get_args(Protocol)[::-1],
        shown="prepared",
    ),
    Flag("driver.reconnect", "-C --connect", "A connection for each call.", SCRIPTS, kind=bool),
    Flag(
        "driver.max_tries",
        "--max-tries",
        "Tries of a call that fails by a serialization failure or deadlock; 0: until it succeeds or the "
        "measurement ends.",
        SCRIPTS,
        metavar="N",
        kind=int,
        least=0,
        shown="1",
    ),
    Flag(
        "driver.allow_shell",
        "--allow-shell",
        "Scripts may run shell commands: \\shell, \\setshell.",
        SCRIPTS,
        kind=bool,
    ),
    # -- commands in place of a database --
    Flag("once", "--once", "Run each job exactly once in a measurement.", COMMANDS, kind=bool, default=False),
    Flag(
        "runs",
        "--runs",
        "Run each job exactly N times in a measurement.",
        COMMANDS,
        metavar="N",
        kind=int,
        least=1,
        most=1_000_000,
        shown="as often as --measure has room for",
    ),
    Flag(
        "orders",
        "--orders",
        "Of several jobs measure only these: serial, parallel (one at a time, with the most threads), "
        "concurrent (all at once, with the least threads), both; commas between them.",
        COMMANDS,
        metavar="ORDERS",
        default=(),
    ),
    Flag(
        "warmup",
        "-w --warmup",
        "Run each job N times before the first measurement, not measured.",
        COMMANDS,
        metavar="N",
        kind=int,
        least=0,
        most=10_000,
        shown="1; 0 with --once",
    ),
    Flag(
        "setup",
        "--setup",
        "Command run once for each variant, before the first measurement.",
        COMMANDS,
        metavar="COMMAND",
    ),
    Flag(
        "cleanup",
        "--cleanup",
        "Command run once for each variant, after the last measurement.",
        COMMANDS,
        metavar="COMMAND",
    ),
    Flag(
        "jobs.prepare",
        "--prepare",
        "Command before each execution, not measured.",
        COMMANDS,
        metavar="COMMAND",
    ),
    Flag(
        "jobs.conclude",
        "--conclude",
        "Command after each execution, not measured.",
        COMMANDS,
        metavar="COMMAND",
    ),
    Flag(
        "jobs.shell",
        "--shell",
        "What runs the command; a shell's own start-up is measured and taken off.",
        COMMANDS,
        choices=get_args(Shell),
        default="none",
    ),
    Flag(
        "jobs.input", "--input", "Standard input of the command.", COMMANDS, metavar="FILE", shown="/dev/null"
    ),
    Flag("jobs.directory", "--directory", "Directory that the command runs in.", COMMANDS, metavar="DIR"),
    Flag(
        "jobs.env",
        "--env",
        "Environment variable of the command; repeatable.",
        COMMANDS,
        metavar=_NAME_VALUE,
        multiple=True,
    ),
    Flag(
        "jobs.timeout",
        "--timeout",
        "Kill an execution that takes longer, with all its processes; it has failed.",
        COMMANDS,
        metavar="TIME",
        shown="none",
    ),
    Flag(
        "jobs.verify",
        "--verify",
        "Command that must succeed after each execution: 'cmp OUT REFERENCE'; not measured.",
        COMMANDS,
        metavar="COMMAND",
    ),
    Flag(
        "jobs.work_bytes",
        "--work-bytes",
        "The work of an execution is this file's size.",
        COMMANDS,
        metavar="FILE",
    ),
    Flag(
        "jobs.work_regex",
        "--work-regex",
        "The work of an execution is the number that this finds in what it prints: 'done (\\d+)'.",
        COMMANDS,
        metavar="REGEX",
    ),
    Flag(
        "jobs.work_unit", "--work-unit", "What that number counts, plural: files.", COMMANDS, metavar="NOUN"
    ),
    Flag(
        "keep_output",
        "--keep-output",
        "Keep the end of what each execution prints: 64kB.",
        COMMANDS,
        metavar="SIZE",
        shown="of failed ones alone",
    ),
    Flag(
        "hide_args",
        "--hide-args",
        "Keep arguments, parameters and environment of commands out of the stored run and the report.",
        COMMANDS,
        kind=bool,
        default=False,
    ),
    # -- server --
    Flag(
        "servers",
        "--servers",
        "Compare servers, each a variant: versions, directories of programs, or connection strings: "
        "17,18,/opt/db/bin.",
        SERVER,
        "dbdyno starts the installed ones, one at a time, each with data of its own (dbdyno help variants).",
        metavar="SERVER,...",
        common=True,
        brief="Compare servers: versions or directories of programs: 17,18,/opt/db/bin.",
    ),
    Flag(
        "server_settings",
        "--settings",
        "Settings of the servers that are compared: own leaves each its defaults; same sets what all have to "
        "the default of the oldest.",
        SERVER,
        choices=get_args(ServerSettings),
        shown="own",
    ),
    Flag(
        "settings",
        "--setting",
        "Server setting for the run, restored at the end; repeatable.",
        SERVER,
        metavar=_NAME_VALUE,
        multiple=True,
        common=True,
        brief="Server setting for the run; repeatable.",
    ),
    Flag(
        "limits",
        "--limit",
        "Limit for the server's processes: cpus=0-3, quota=1.5, bind=spread, pool=4 ...; repeatable.",
        SERVER,
        metavar=_NAME_VALUE,
        multiple=True,
        common=True,
        brief="For the server's processes: cpus=0-3, quota=1.5, bind=spread ...; repeatable.",
    ),
    # -- cluster --
    Flag(
        "cluster.address",
        "--cluster",
        "Drive from the nodes of a Ray cluster: ray://HOST:10001, auto, or local:3 (dbdyno help cluster; "
        "needs dbdyno[cluster]).",
        CLUSTER,
        metavar="ADDRESS",
    ),
    Flag(
        "cluster.drivers",
        "--drivers",
        "Nodes that drive.",
        CLUSTER,
        kind=int,
        least=1,
        most=10_000,
        shown="all with the resource driver, or all but the server's",
    ),
    Flag(
        "cluster.per_driver",
        "--per-driver",
        "Most sessions of a driver.",
        CLUSTER,
        kind=int,
        least=1,
        most=1_000_000,
    ),
    Flag(
        "cluster.spread",
        "--spread",
        "Sessions of each driver: the same number, in proportion to its CPUs, or each full (--per-driver) "
        "before the next.",
        CLUSTER,
        choices=get_args(Spread),
        default="even",
    ),
    Flag(
        "cluster.server_node",
        "--server-node",
        "Node of the server, by address or host name.",
        CLUSTER,
        metavar="NODE",
        shown="found by the DSN's address",
    ),
    Flag(
        "cluster.degrade",
        "--degrade",
        "Go on with the drivers that are left when one is lost.",
        CLUSTER,
        kind=bool,
        default=False,
    ),
    # -- what to observe --
    Flag(
        "observation.duration",
        "--for",
        "Duration.",
        OBSERVED,
        metavar="TIME",
        shown="until Ctrl-C or q",
        common=True,
        commands=(OBSERVE,),
    ),
    Flag(
        "observation.window",
        "--window",
        "Duration of a window.",
        OBSERVED,
        metavar="TIME",
        default="10s",
        common=True,
        commands=(OBSERVE,),
    ),
    Flag(
        "observation.user",
        "--only-user",
        "Only sessions of this user.",
        OBSERVED,
        metavar="NAME",
        common=True,
        commands=(OBSERVE,),
    ),
    Flag(
        "observation.database",
        "--only-database",
        "Only sessions in this database.",
        OBSERVED,
        metavar="NAME",
        common=True,
        commands=(OBSERVE,),
    ),
    Flag(
        "observation.application",
        "--only-application",
        "Only sessions with this application_name.",
        OBSERVED,
        metavar="NAME",
        common=True,
        commands=(OBSERVE,),
    ),
    Flag(
        "observation.pids",
        "--only-pid",
        "Only this process; repeatable.",
        OBSERVED,
        metavar="PID",
        kind=Number,
        default=(),
        multiple=True,
        commands=(OBSERVE,),
    ),
    # -- what to gather --
    Flag(
        "waits",
        "--waits",
        "How waits are measured: sampled, or exact by scheduler trace",
        GATHER,
        "(needs CAP_BPF and CAP_PERFMON, and CAP_SYS_PTRACE if the server runs as another user). auto uses "
        "the trace where permitted.",
        choices=get_args(Waits),
        default="auto",
        common=True,
        commands=_BOTH,
    ),
    Flag(
        "sample_hz",
        "--sample-hz",
        "Activity samples per second.",
        GATHER,
        kind=float,
        least=0.1,
        most=100,
        default=10.0,
        commands=_BOTH,
    ),
    Flag(
        "log_calls",
        "--log-calls",
        "Store start, duration and CPU of every call.",
        GATHER,
        kind=bool,
        default=False,
    ),
    Flag(
        "observe",
        "--no-observe",
        "Throughput and response times only; session time is not accounted for.",
        GATHER,
        kind=bool,
        default=True,
        value=False,
    ),
    Flag(
        "snapshots",
        "--snapshots/--no-snapshots",
        "Snapshots of the server's statistics at the start and end of measurements.",
        GATHER,
        kind=bool,
        shown="on",
        commands=_BOTH,
    ),
    Flag(
        "memory",
        "--memory/--no-memory",
        "Memory of server and machine at the start and end of measurements.",
        GATHER,
        kind=bool,
        shown="on",
        commands=_BOTH,
    ),
    Flag(
        "params",
        "--param",
        "Workload parameter; repeatable.",
        WHAT,
        metavar=_NAME_VALUE,
        multiple=True,
        common=True,
    ),
)
FLAGS = {flag.key: flag for flag in _DECLARED}


def register(flag: Flag) -> Flag:
    """Adds a flag to the options of its commands, and returns it."""
    FLAGS[flag.key] = flag
    return flag


def flags_of(command: str) -> tuple[Flag, ...]:
    """Returns the flags of a command, in the order of their declarations."""
    return tuple(flag for flag in FLAGS.values() if command in flag.commands)
