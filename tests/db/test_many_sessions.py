"""Many sessions: how many descriptors an observation holds, and the warning where the limit is too low."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.clusters import server_dir
from tests.db.conftest import Bench, eventually

pytestmark = pytest.mark.db
SESSIONS = 200
OTHERS = 300  # libraries, traces, our threads, helpers; a second generation would add 2 a session
LIMIT = 128


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, server_home: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("crowded"), server_dir(server_home / "crowded"))
    started = bench.dbdyno("server", "start", "--max-connections", str(SESSIONS + 20))
    assert started.returncode == 0, started.stderr
    with contextlib.ExitStack() as stack:
        for _ in range(SESSIONS):
            stack.enter_context(psycopg.connect(bench.dsn, autocommit=True))
        yield bench
    bench.here("server", "stop")


def test_windows_that_follow_one_another_open_each_file_once(crowded: Bench) -> None:
    words = ("observe", "--dsn", crowded.dsn, "--for", "5s", "--window", "2s", "--quiet")
    most = 0
    with crowded.background(*words) as process:

        def over() -> bool:
            nonlocal most
            with contextlib.suppress(OSError):
                most = max(most, len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
            return process.poll() is not None

        eventually(over)
    assert 2 * SESSIONS <= most <= 2 * SESSIONS + OTHERS


def test_a_low_limit_of_open_files_is_reported_and_changes_no_figure(crowded: Bench) -> None:
    under = ("prlimit", f"--nofile={LIMIT}:{LIMIT}")
    done = crowded.dbdyno("observe", "--dsn", crowded.dsn, "--for", "2s", "--json", under=under)
    assert done.returncode == 0, done.stderr
    assert f"at most {LIMIT} files may be open" in done.stdout
    assert "LimitNOFILE" in done.stdout
    assert json.loads(done.stdout)["findings"]
