"""``--metrics`` and ``dbdyno metrics`` on the command line."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbdyno.cli.app import app
from dbdyno.model.errors import UsageError

OBSERVE = ("observe", "--engine", "fake", "--dsn", "fake:cpus=2,foreign=3,cpu=2ms", "--for", "2s")
RUN = ("run", "lio", "--engine", "fake", "--dsn", "fake:cpus=2", "--sessions", "1", "--measure", "2s")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def dbdyno(*words: str) -> Result:
    return CliRunner().invoke(app, words, catch_exceptions=False)


@pytest.mark.whole
@pytest.mark.parametrize("command", [OBSERVE, RUN], ids=["observe", "run"])
def test_the_address_is_said_with_where_the_token_is(command: tuple[str, ...], home: Path) -> None:
    done = dbdyno(*command, "--metrics", "0", "--metrics-file", str(home / "d.prom"))
    assert done.exit_code == 0
    token = home / "dbdyno" / "metrics-token"
    assert "metrics: http://127.0.0.1:" in done.stderr and f"with the token in {token}" in done.stderr
    assert token.read_text().strip() not in done.output
    assert 'status="ok"} 1.0' in (home / "d.prom").read_text()


@pytest.mark.whole
def test_who_opens_it_to_other_hosts_is_warned(home: Path) -> None:
    warned = dbdyno(*OBSERVE, "--metrics", "0.0.0.0:0", "--metrics-open").stderr
    assert "! metrics: whoever reaches this address, on other hosts too, can read the figures" in warned
    assert "unencrypted" in dbdyno(*OBSERVE, "--metrics", "0.0.0.0:0").stderr
    assert "!" not in dbdyno(*OBSERVE, "--metrics", "127.0.0.1:0", "--metrics-open").stderr
    assert (home / "dbdyno" / "metrics-token").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--metrics-open",), "--metrics-open is for an address"),
        (("--metrics-token-file", "t"), "--metrics-token-file is for an address"),
        (("--metrics", "0", "--metrics-open", "--metrics-token-file", "t"), "exclude each other"),
        (("--metrics", "nowhere"), "no address"),
        (("--metrics-file", "x"), "reads *.prom only"),
        (("--metrics-file", "no/where/x.prom"), "there is no directory no/where"),
    ],
)
@pytest.mark.parametrize("command", [OBSERVE, RUN], ids=["observe", "run"])
def test_a_mistake_is_an_error_before_anything_is_measured(
    command: tuple[str, ...], options: tuple[str, ...], says: str, home: Path
) -> None:
    with pytest.raises(UsageError) as e:
        dbdyno(*command, *options)
    assert says in e.value.message and e.value.cure
    assert not list((home / "store").glob("*")), "no run is left behind"


def test_a_port_in_use_is_an_error_before_anything_is_measured(home: Path) -> None:
    in_use = pytest.raises(UsageError, match="the port is in use")
    with socket.create_server(("127.0.0.1", 0)) as other, in_use:
        dbdyno(*OBSERVE, "--metrics", str(other.getsockname()[1]))
    assert not (home / "store").exists()


def test_metrics_are_listed_with_their_series() -> None:
    lines = dbdyno("metrics", "list").output.splitlines()
    assert "dbdyno_session_seconds_total (counter)" in lines
    assert "dbdyno_response_seconds (histogram)" in lines
    assert max(map(len, lines)) <= 80
    listed = json.loads(dbdyno("metrics", "list", "--json").output)["metrics"]
    (histogram,) = [m for m in listed if m["kind"] == "histogram"]
    assert histogram["series"] == [f"dbdyno_response_seconds{end}" for end in ("_bucket", "_sum", "_count")]


def test_the_dashboard_is_printed_or_written(tmp_path: Path) -> None:
    printed = dbdyno("metrics", "dashboard").output
    path = tmp_path / "d.json"
    assert dbdyno("metrics", "dashboard", "-o", str(path)).output == f"{path}\n"
    assert path.read_text() == printed and json.loads(printed)["panels"]
    with pytest.raises(UsageError, match="cannot write"):
        dbdyno("metrics", "dashboard", "-o", str(tmp_path / "no" / "d.json"))
