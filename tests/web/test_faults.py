"""Broken requests, and stores that fail while they are read: an answer or none, and no traceback."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path
from urllib.parse import quote

import pytest

from dbdyno.cli.web_forms import CommandForms
from dbdyno.model.errors import StoreError
from dbdyno.store import RunStore
from dbdyno.store.table_rows import TableRows
from tests.web.conftest import Lab, Started

ONE = "20260101-100000-lio-0001"


@pytest.fixture
def lab(start_lab: Started, store_of_runs: Path) -> Lab:
    return start_lab(store_of_runs, CommandForms(store_of_runs, commands=False)).enter()


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.get_records("call") if record.exc_info]


@pytest.mark.parametrize("name", ["x" * 5_000, "\ud800", "a\0b", "~1"], ids=["long", "half", "zero", "back"])
def test_a_run_by_a_name_that_no_file_can_have_is_absent(lab: Lab, name: str) -> None:
    shown = lab.ask(f"/run/{quote(name, errors='surrogatepass')}")
    assert shown.status == 404 and len(shown.text) < 200_000
    for accept in "application/json", "text/html":
        answer = lab.post("/label", json.dumps({"run": name, "name": "x"}).encode(), Accept=accept)
        assert answer.status == 404 and "no longer" in answer.text


def sent(lab: Lab, path: str, body: bytes, headers: str) -> bytes:
    """Posts to the lab, ends its own side of the connection, and returns the answer."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{lab.address.port}", f"Origin: {lab.address.url}",
             f"Cookie: {lab.cookie}", headers, "", ""]  # fmt: skip
    with socket.create_connection(("127.0.0.1", lab.address.port), 60) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
        return answer


@pytest.mark.parametrize("path", ["/start/plan", "/label"])
def test_a_body_that_ends_early_or_not_at_all_is_refused(lab: Lab, path: str) -> None:
    assert sent(lab, path, b"workload=lio", "Content-Length: 1000") == b""
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    assert b" 400 " in sent(lab, path, chunk * 300, "Transfer-Encoding: chunked").partition(b"\r\n")[0]
    assert lab.ask("/").status == 200


def test_a_table_that_fails_while_it_is_sent_is_not_taken_for_whole(lab: Lab) -> None:
    (cell, *_) = sorted((lab.store / ONE / "cells").iterdir())
    table, manifest = cell / "samples.parquet", cell / "manifest.json"
    content = bytearray(table.read_bytes())
    content[4 : len(content) // 3] = bytes(len(content) // 3 - 4)  # what is in the footer stays
    table.write_bytes(content)
    digests = json.loads(manifest.read_text()) | {table.name: hashlib.sha256(content).hexdigest()}
    manifest.write_text(json.dumps(digests))
    with pytest.raises(IncompleteRead):
        lab.ask(f"/run/{ONE}/table/samples.csv")


def test_a_run_that_is_removed_while_a_table_is_read_is_an_error_of_the_store(store_of_runs: Path) -> None:
    batches = TableRows(RunStore(store_of_runs).open(ONE).path, "samples").batches()
    assert next(batches).is_empty()
    shutil.rmtree(store_of_runs / ONE)
    with pytest.raises(StoreError):
        next(batches)
