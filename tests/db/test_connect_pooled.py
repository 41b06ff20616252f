"""A pooler in front of a server that wants a password, or TLS. The pooler's secrets stay with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from dbdyno.engines.postgres import PostgresServer
from dbdyno.engines.postgres.pooler import process
from dbdyno.model.engine.protocols import Pool
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.plan import PlannedScript
from tests.contract.pooled import cell_of, measure, through
from tests.db.test_connect import SECRET, Remote
from tests.db.test_connect import remote as remote

pytestmark = [
    pytest.mark.db,
    pytest.mark.skipif(
        shutil.which("pgbouncer", path=os.pathsep.join(("/usr/sbin", os.environ["PATH"]))) is None,
        reason="no PgBouncer here: apt-get install pgbouncer",
    ),
]
POOL = Pool(2, "transaction", 3, "extended")
SECRET_BYTES = SECRET.encode()


def calls(dsn: str) -> int:
    """Returns the number of calls that ended well through a pool."""
    with closing(PostgresServer(dsn)) as server:
        script = server.script([PlannedScript(name="s.sql", text="select pg_sleep(0.01)")])
        with through(server, POOL):
            raw = measure(server, script, cell_of(script, POOL, 1))
        assert raw.tables["errors"].is_empty()
        return int(raw.tables["sessions"]["calls"].sum())


def test_a_password_over_tcp_is_stored_nowhere(remote: Remote) -> None:
    with closing(PostgresServer(remote.dsn())) as server:
        script = server.script([PlannedScript(name="s.sql", text="select pg_sleep(0.01)")])
        with through(server, POOL) as notes:
            raw = measure(server, script, cell_of(script, POOL, 1))
            directory = Path(notes.seen[-1].data["directory"])
            listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, check=True).stdout
            (pooler,) = process._processes(directory)
            environment = Path(f"/proc/{pooler.pid}/environ").read_bytes()
            files = {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}
            journal = notes.seen[-1].model_dump_json().encode()
    assert int(raw.tables["sessions"]["calls"].sum()) > 0
    assert set(files) == {"log"}  # the configuration is gone as soon as it was read
    stored = b"".join(frame.write_csv().encode() for frame in raw.tables.values())
    for place in (listed, environment, files["log"], journal, stored, repr(raw.meta).encode()):
        assert SECRET_BYTES not in place and SECRET_BYTES.replace(b"'", b"''") not in place


def test_the_configuration_is_for_its_user_alone(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}
    launch = process.Pooler._launch

    def look(self: process.Pooler, account: object, file: Path) -> object:
        seen.update(file=file.stat().st_mode & 0o777, directory=file.parent.stat().st_mode & 0o777)
        assert SECRET.replace("'", "''") in file.read_text(encoding="utf-8")
        return launch(self, account, file)  # type: ignore[arg-type]

    monkeypatch.setattr(process.Pooler, "_launch", look)
    with closing(PostgresServer(remote.dsn())) as server:
        server.check_pool(POOL)
    assert seen == {"file": 0o600, "directory": 0o700}


def test_a_pooler_gets_in_by_md5_and_over_the_unix_socket(remote: Remote) -> None:
    assert calls(remote.dsn(user="oldfashioned")) > 0
    assert calls(remote.dsn(host=str(remote.socket_dir))) > 0


@pytest.mark.parametrize("mode", ["disable", "require", "verify-ca", "verify-full"])
def test_a_pooler_uses_tls_as_the_target_asks(remote: Remote, mode: str) -> None:
    given = {"host": "localhost", "hostaddr": "127.0.0.1", "sslmode": mode}
    if mode.startswith("verify"):
        given["sslrootcert"] = str(remote.certificates / "ca.crt")
    assert calls(remote.dsn(**given)) > 0


def test_a_pooler_gets_in_where_tls_alone_is_let_in(remote: Remote) -> None:
    assert calls(remote.dsn(dbname="tlsonly", sslmode="require")) > 0


def test_a_pooler_gets_in_by_a_client_certificate(remote: Remote) -> None:
    files = {
        "sslrootcert": str(remote.certificates / "ca.crt"),
        "sslcert": str(remote.certificates / "client.crt"),
        "sslkey": str(remote.certificates / "client.key"),
    }
    assert calls(remote.dsn(user="certified", password=None, sslmode="verify-ca", **files)) > 0


def test_a_server_that_lets_the_pooler_not_in_says_so_without_the_password(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password of the control connection is changed before the pool is checked."""
    with closing(PostgresServer(remote.dsn())) as server:
        monkeypatch.setitem(server._login, "password", SECRET + "x")
        with pytest.raises(DbdynoError, match="cannot serve sessions") as caught:
            server.check_pool(POOL)
    assert SECRET not in str(caught.value) and "password authentication failed" in str(caught.value)
