"""The Rust core. Specs are JSON texts, checked by the core (unknown keys are errors)."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbdyno.model.schema.tables import CoreColumn

class CoreError(Exception):
    """Base of the core's errors; ``args`` = (kind, message, sqlstate | None, session | None).

    kind: spec | unreachable | authentication | server | lost | protocol | tls | aborted | io
    """

class DriverError(CoreError): ...
class ObserverError(CoreError): ...

def now_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds: the one clock."""

def launch_commands(control: int, find: Callable[[str, str], str | None]) -> None:
    """What the launcher process of the engine ``command`` runs, until the other end of the socket ``control``
    is closed. ``find``: of a pattern and a text, the first group of the last match. The descriptor
    ``control`` is duplicated. Raises :class:`DriverError` where it is no such socket."""

def read_script(
    name: str, text: str, allow_shell: bool = False, protocol: str = "simple", given: Sequence[str] = ()
) -> str:
    """A script in pgbench's language as JSON: ``commands`` (line, kind, text, sql with $1, variables, start
    in bytes, statements) and ``error`` (line, column, message, cure, shown) or null. ``given``: variables
    that it need not set."""

def builtin_script(name: str) -> tuple[str, str] | None:
    """The full name and the text of pgbench's built-in script that alone begins with ``name``."""

def evaluate_script(text: str, variables: Mapping[str, str], seed: int) -> dict[str, str]:
    """The variables after the \\set commands and conditions of a script, as they are written into SQL;
    ValueError where one has no value."""

class Load:
    """See ``dbdyno.model.engine.protocols.Load``. ``spec`` for engine postgres: docs/core.md."""

    def __init__(self, engine: str, spec: str) -> None: ...
    def connect(self) -> None: ...
    def start(self, start_ns: int, t0_ns: int, t1_ns: int) -> None: ...
    def finish(self) -> None: ...
    def wait(self, timeout_s: float) -> bool:
        """Whether the phase is over; ``math.inf``: for as long as it takes. Signals are heard meanwhile."""

    def stop(self) -> None: ...
    def abort(self) -> None: ...
    def progress(self) -> tuple[int, int, int, int, int, int]: ...
    def live_durations(self) -> list[tuple[int, int]]: ...
    def backends(self) -> list[tuple[int, int, int]]: ...
    def threads(self) -> list[int]: ...
    def now_ns(self) -> int: ...
    def tables(self) -> dict[str, dict[str, CoreColumn]]: ...
    def window_tables(self, window: int) -> dict[str, dict[str, CoreColumn]]: ...

class Loader:
    """Fills tables and runs statements over several connections; begins at once: docs/loader.md."""

    def __init__(self, engine: str, spec: str) -> None:
        """Counts rows of tables with a parent first, which may take minutes: signals are heard meanwhile."""

    def wait(self, timeout_s: float) -> bool:
        """True when all is done. Raises :class:`DriverError`; all connections are ended then."""

    def abort(self) -> None:
        """Cancels all statements, ends all connections, and waits for that (some seconds at most)."""

    def progress(self) -> tuple[int, int, int]:
        """Step (from 0), rows and bytes sent."""

    def total_rows(self) -> int:
        """All tables, as they will be."""

    def sums(self) -> list[tuple[str, tuple[int, int, int]]]:
        """By table: rows, bytes, checksum."""

class Watch:
    """See ``dbdyno.model.engine.protocols.Watch``."""

    def __init__(self, spec: str) -> None: ...
    def start(self, t0_ns: int, t1_ns: int) -> None: ...
    def stop(self) -> None: ...
    def latest(self) -> dict[str, float]: ...
    def trouble(self) -> str | None:
        """The first thing that went wrong with the activity samples, if anything did."""

    def tables(self) -> dict[str, dict[str, CoreColumn]]: ...
    def recent(self, since_ns: int) -> dict[str, dict[str, CoreColumn]]: ...
    def source_status(self) -> dict[str, tuple[str, str]]:
        """(status, detail) of ``wait event word``, ``scheduler trace`` and ``sampler priority`` (whether the
        samplers got a real-time one), as far as they were asked for;
        ``open files`` where they are too few."""

class Pulse:
    """Looks until it is collected whether this process was there all the time."""

    def __init__(self) -> None: ...
    def holes(self) -> list[tuple[int, int, int, int]]:
        """From and to (CLOCK_MONOTONIC), stopped and suspended, in ns; of half a second and more."""

def read_task(pid: int, tid: int) -> Mapping[str, Any]:
    """One read of a task: run_ns, runq_ns, slices, user_ns, system_ns, start_ticks, comm, state, cpu,
    status."""

def read_behind(pid: int, program: str, symbol: str, offset: int) -> tuple[int | None, str, str]:
    """64 bits of a process's memory, ``offset`` bytes behind where a pointer variable of its program points:
    value (None: not read), status, reason and cure."""

def find_cgroups(
    pid: int | None = None, root: str | PathLike[str] = "/", controllers: Sequence[str] | None = None
) -> Sequence[tuple[int, str]]:
    """(version, directory) of the groups of a process (None: ourselves), innermost first in each hierarchy.

    Without ``controllers`` those with CPU figures; with them the v1 groups of these controllers, and v2.
    v1 comes before v2; cpu and cpuacct of v1 may be two directories. ``root``: where the machine's tree
    begins. Raises OSError where ``/proc/PID/cgroup`` cannot be read.
    """

def page_cache(
    files: Sequence[tuple[str | PathLike[str], bytes, int]], block_bytes: int, budget_ns: int
) -> Sequence[tuple[int | None, int | None, int | None, str]]:
    """How much of each file is in the page cache: size, bytes in the cache, bytes of the given blocks in the
    cache, status. ``files``: path, numbers of blocks as big-endian 64-bit integers, and the number of the
    file's first block; blocks of other files are passed over.

    By cachestat(2), else mincore(2). ``not permitted``: the file may not be read, or is neither ours nor ours
    to write; ``lost``: ``budget_ns`` was over. The first file is always read.

    Raises ValueError where ``block_bytes`` is 0.
    """

# Distribution functions, see ``dbdyno.stats.special``. Those with ``out`` write into an array.

def log_gamma(x: NDArray[np.float64], out: NDArray[np.float64]) -> None: ...
def gamma_above(shape: NDArray[np.float64], x: NDArray[np.float64], out: NDArray[np.float64]) -> None: ...
def gamma_quantile(
    shape: NDArray[np.float64], below: NDArray[np.float64], out: NDArray[np.float64]
) -> None: ...
def beta_below(
    a: NDArray[np.float64], b: NDArray[np.float64], x: NDArray[np.float64], out: NDArray[np.float64]
) -> None: ...
def students_below(
    degrees: NDArray[np.float64], below: NDArray[np.float64], out: NDArray[np.float64]
) -> None: ...
def students_tail(t: float, degrees: float) -> float:
    """Probability that Student's t is farther from 0 than ``t``."""

def students_quantile(tail: float, degrees: float) -> float:
    """The t that is exceeded in absolute value with probability ``tail``."""

def f_above(f: float, degrees: float, degrees_below: float) -> float:
    """Probability that a ratio of two mean squares exceeds ``f``."""

def f_quantile(below: float, degrees: float, degrees_below: float) -> float:
    """The ratio of two mean squares that is not exceeded with probability ``below``."""

def chi_square_quantile(above: float, degrees: float) -> float:
    """The chi-square that is exceeded with probability ``above``."""

def binomial_below(count: float, n: float, p: float) -> float:
    """Probability of at most ``count`` successes in ``n`` trials; continuous between whole numbers."""

def binomial_count(share: float, n: float, p: float) -> float:
    """The inverse of :func:`binomial_below`; 0 where no success is more probable than ``share``."""

def noncentral_t_above(t: float, degrees: float, centre: float) -> float:
    """Probability that a t with noncentrality ``centre`` exceeds ``t``; both are at least 0. Above a centre
    of 1,000 exact to 1 / ``centre``; NaN above 1e9 degrees."""

def find_root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """The argument where ``function``, which has another sign at ``low`` than at ``high``, is 0. Errors of
    ``function`` are raised."""
