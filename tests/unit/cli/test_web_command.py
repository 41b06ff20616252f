"""``dbdyno web``: what it refuses before it listens, and what it prints."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.openssl import openssl

from dbdyno.cli.app import app
from dbdyno.model.errors import UsageError
from dbdyno.web.address import tls_files


def refused(*words: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(app, ["web", *words], standalone_mode=False, catch_exceptions=False)
    return error.value


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    error = refused()
    assert "uvicorn" in error.message and error.cure == "pip install 'dbdyno[web]'"


def test_commands_alone_mean_nothing(tmp_path: Path) -> None:
    assert refused("--store", str(tmp_path), "--allow-commands").cure == "add --allow-start"


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, another key, and one with a password."""
    folder = tmp_path_factory.mktemp("pems")
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost")
    for name in ("web", "other"):
        openssl("req", "-x509", *made, "-out", f"{name}.pem", "-keyout", f"{name}.key", folder=folder)
    openssl("pkey", "-in", "web.key", "-aes128", "-passout", "pass:x", "-out", "locked.key", folder=folder)
    (folder / "text.pem").write_text("no certificate")
    return folder


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("web.pem", "other.key", "not the key of"),
        ("text.pem", "web.key", "text.pem: not in the format PEM"),
        ("web.pem", "text.pem", "text.pem: not in the format PEM"),
        ("web.pem", "locked.key", "has a password"),
    ],
)
def test_files_that_are_not_a_pair_are_named(certificate: str, key: str, words: str, pems: Path) -> None:
    with pytest.raises(UsageError, match=words) as error:
        tls_files(pems / certificate, pems / key)
    assert error.value.cure


def test_one_file_of_a_pair_is_not_enough(pems: Path) -> None:
    assert "belong together" in refused("--tls-cert", str(pems / "web.pem")).message


def test_it_serves_https_and_ends_with_sigterm(pems: Path, tmp_path: Path) -> None:
    words = (
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        str(pems / "web.pem"),
        "--tls-key",
        str(pems / "web.key"),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "dbdyno", "web", "--store", str(tmp_path / "absent"), *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = next(line.strip() for line in process.stdout if line.startswith("  https://"))
        trust = ssl.create_default_context(cafile=pems / "web.pem")
        trust.check_hostname = False  # that of the address
        with pytest.raises(urllib.error.HTTPError) as answer:  # 303 without a place for the cookie: 401
            urllib.request.urlopen(url, context=trust, timeout=60)
        assert answer.value.code == 401
        process.terminate()
        assert process.wait(60) == 0
        assert process.stdout.read().endswith("The server has ended.\n")
    finally:
        process.kill()
        process.wait()
