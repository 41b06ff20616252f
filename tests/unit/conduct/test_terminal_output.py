"""No text of a server, a store or a file steers the terminal; the program runs on a pseudo-terminal."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakery import climb, recorded
from tests.on_terminal import STEERING, obeyed, on_terminal, on_terminal_here

from dbdyno.conduct.derive.derive import derive
from dbdyno.model.text.visible import one_line, shortened, visible
from dbdyno.store import Run, RunStore


@pytest.fixture(scope="module")
def forged_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run, each of whose texts steers a terminal."""
    climbed = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])
    root = tmp_path_factory.mktemp("forged")
    run = recorded(RunStore(root), climbed)
    results = derive(run.info, climbed.plan, climbed.environment, climbed.cells)
    run.write_derived(results.tables, results.findings)
    run.finish("cut short", "the server said")
    forge(run)
    return root


def forge(run: Run) -> None:
    for name in ("run.json", "environment.json", "plan.json"):
        _edit(run.path / name)
    derived = run.path / "derived"
    _edit(derived / "findings.json")
    manifest = json.loads((derived / "manifest.json").read_text())
    manifest["findings.json"] = hashlib.sha256((derived / "findings.json").read_bytes()).hexdigest()
    (derived / "manifest.json").write_text(json.dumps(manifest))


_TEXTS = {
    "reason",
    "version",
    "where",
    "claim",
    "cure",
    "evidence",
    "doc",
    "model",
    "distribution",
    "stopped",
}


def _edit(path: Path) -> None:
    def steered(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: steered(k, v) for k, v in value.items()}
        if isinstance(value, list):
            return [steered(key, v) for v in value]
        return f"{value}{STEERING}[/red][link=x]" if key in _TEXTS and isinstance(value, str) else value

    path.write_text(json.dumps(steered("", json.loads(path.read_text()))))


@pytest.mark.whole
@pytest.mark.parametrize(
    "words",
    [
        "runs",
        "show last --json",
        "show last --events --microstates --cross-check",
        "show \x1b]0;x\x07\x9b31m\x7f",
    ],
)
def test_a_forged_store_does_not_steer_the_terminal(forged_store: Path, words: str) -> None:
    _, written = on_terminal_here(*words.split(), env={"DBDYNO_STORE": str(forged_store)})
    assert "Traceback" not in written
    assert obeyed(written) == []
    assert len(written) > 20


def test_control_characters_of_a_stored_text_become_visible(forged_store: Path) -> None:
    _, written = on_terminal("show", "last", env={"DBDYNO_STORE": str(forged_store)})
    assert "␛]0;owned␇␛[2J\ufffd31m␡" in re.sub(r"\x1b\[[0-9;]*m|\s", "", written)


@contextmanager
def serve_answer(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serves on a port of this machine with the given answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.settimeout(10)
                        connection.recv(1 << 16)
                        answer(connection)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.close()


def _error(text: str) -> bytes:
    fields = b"".join(
        code + value.encode() + b"\0" for code, value in ((b"S", "FATAL"), (b"C", "28000"), (b"M", text))
    )
    return b"E" + struct.pack("!i", 4 + len(fields) + 1) + fields + b"\0"


@pytest.mark.whole
@pytest.mark.parametrize("command", ["run lio", "observe --for 1s"])
def test_an_error_of_a_server_does_not_steer_the_terminal_and_is_short(tmp_path: Path, command: str) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.sendall(_error(STEERING + "x" * 25_000 + STEERING))

    with serve_answer(refuse) as port:
        dsn = f"host=127.0.0.1 port={port} user=u dbname=d sslmode=disable gssencmode=disable"
        program = on_terminal if command.startswith("run") else on_terminal_here
        code, written = program(*command.split(), "--dsn", dsn, env={"DBDYNO_STORE": str(tmp_path)})
    assert code == 3
    assert obeyed(written) == []
    assert "more characters" in written
    assert len(written) < 6_000


def test_output_fits_into_any_encoding(forged_store: Path) -> None:
    for encoding, words in (("ascii", "show last"), ("latin-1", "recipes"), ("utf-8", "show \udcff")):
        done = subprocess.run(
            [sys.executable, "-m", "dbdyno", *words.split()],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding, "DBDYNO_STORE": str(forged_store)},
        )
        assert b"Traceback" not in done.stderr
        (done.stdout + done.stderr).decode(encoding)


def test_a_closed_output_is_no_defect(forged_store: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m dbdyno runs >&-'],
        capture_output=True,
        env={**os.environ, "DBDYNO_STORE": str(forged_store)},
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_text_made_visible_keeps_its_length_and_harmless_characters() -> None:
    text = f"a{STEERING}\tb\n\udcffc"
    assert len(visible(text)) == len(text)
    assert visible(text)[0] == "a" and visible(text).endswith("\tb\n\ufffdc")
    assert "\n" not in one_line(text) and "\t" not in one_line(text)
    assert visible("plain: ä ± 漢字 🙂") == "plain: ä ± 漢字 🙂"


def test_long_texts_are_shortened_with_a_count_of_what_is_missing() -> None:
    assert shortened("x" * 100, 100) == "x" * 100
    assert shortened("x" * 1_200, 100) == "x" * 100 + " ... (1,100 more characters)"
    assert shortened("a\n" * 100, 1_000, 3).startswith("a\na\na ... (")
