"""A lab over a store of the test, and a browser's side of HTTP."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from dbdyno.web.address import Address, listening
from dbdyno.web.forms import CommandLine
from dbdyno.web.serving import server_of
from tests.stored_runs import copied_run, derived_run


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Lab:
    """A running server. ``printed``: the addresses that it printed, the newest last."""

    address: Address
    store: Path
    printed: list[str] = field(default_factory=list)
    cookie: str = ""

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, /, **headers: str) -> Answer:
        """Sends the cookie, if there is one, and headers whose names have hyphens for underscores."""
        sent = {"Host": f"127.0.0.1:{self.address.port}", **({"Cookie": self.cookie} if self.cookie else {})}
        sent |= {k.replace("_", "-"): v for k, v in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.address.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer: HTTPResponse = connection.getresponse()
            names = {k.lower(): v for k, v in answer.getheaders()}
            return Answer(answer.status, names, answer.read().decode())
        finally:
            connection.close()

    def post(self, path: str, body: bytes = b"", /, **headers: str) -> Answer:
        """Posts as a page of the lab does."""
        return self.ask(path, "POST", body, **{"Origin": self.address.url, **headers})

    def enter(self) -> Lab:
        """Uses the newest printed address, as a browser does, and keeps the cookie."""
        answer = self.ask(self.printed[-1].removeprefix(self.address.url))
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self


Started = Callable[..., Lab]


@pytest.fixture
def start_lab(tmp_path: Path) -> Iterator[Started]:
    """Starts a lab over a store; ``store``: by default one without runs. ``commands``: what the browser may
    start."""
    running = []

    def started(store: Path | None = None, commands: CommandLine | None = None) -> Lab:
        lab = Lab(listening("127.0.0.1:0", insecure=False, tls=None), store or tmp_path / "store")
        server = server_of(lab.address, lab.store, lab.printed.append, commands)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [*lab.address.sockets]}, daemon=True)
        thread.start()
        running.append((server, thread))
        return lab

    yield started
    for server, thread in running:
        server.should_exit = True
        thread.join(60)


@pytest.fixture(scope="session")
def model_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of lio on the simulated server, to be copied: :func:`tests.stored_runs.copied_run`."""
    return derived_run(tmp_path_factory.mktemp("model"))


@pytest.fixture
def store_of_runs(tmp_path: Path, model_run: Path) -> Path:
    """A store of three runs of three days; the second is named ``nightly`` and tagged ``a``."""
    store = tmp_path / "runs"
    store.mkdir(mode=0o700)
    for day, changes in ((1, {}), (2, {"name": "nightly", "tags": ["a"]}), (3, {"note": "the newest"})):
        copied_run(store, model_run, f"2026010{day}-100000-lio-000{day}", **changes)
    return store


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", place], capture_output=True
    ).returncode:
        pytest.skip("mounts a tmpfs: run the tests as root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path, left: int = 0) -> None:
    """Leaves so many pages of a file system."""
    (disk / "left").write_bytes(b"x" * 4096 * left)
    with pytest.raises(OSError, match="No space"), (disk / "full").open("wb", 0) as file:
        while True:
            file.write(b"x" * 4096)
    (disk / "left").unlink()


@pytest.fixture
def lab(start_lab: Started) -> Lab:
    return start_lab()
