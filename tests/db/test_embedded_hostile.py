"""The server's user attacks root: links and pipes at every name, from outside and by SQL alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from dbdyno.engines.postgres import embedded
from dbdyno.engines.postgres.embedded import Instance, StartOptions, instance_of
from dbdyno.engines.postgres.embedded.account import server_account
from dbdyno.engines.postgres.embedded.places import find_places
from dbdyno.engines.postgres.embedded.programs import Programs
from dbdyno.engines.postgres.embedded.worker import Worker, argv
from dbdyno.model.errors import DbdynoError, TargetError, UsageError

pytestmark = [
    pytest.mark.db,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run the tests as root"),
]
SECRET = "known to root alone\n"


@pytest.fixture
def stopped_instance(home: Path) -> tuple[Instance, Programs]:  # noqa: ARG001
    """Returns a data directory on which a server has run, and its programs."""
    server, programs = instance_of(None)
    server.open(programs, StartOptions())
    server.close()
    return server, programs


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Yields a file of root's and checks that it stays as it is."""
    file = tmp_path / "victim"
    file.write_text(SECRET)
    file.chmod(0o600)
    before = file.stat()
    yield file
    after = file.stat()
    assert (after.st_uid, after.st_mode, after.st_ino) == (0, before.st_mode, before.st_ino)
    assert file.read_text() == SECRET


def as_account(*words: str | Path) -> None:
    subprocess.run(argv(server_account(), "0", *words), check=True)


def plant(kind: str, path: Path, victim: Path) -> None:
    """Makes an entry as the server's user."""
    as_account("/bin/rm", "-rf", path)
    if kind == "link":
        as_account("/bin/ln", "-s", victim, path)
    elif kind == "pipe":
        as_account("/usr/bin/mkfifo", path)
    else:
        as_account("/bin/ln", "-s", "/dev/zero", path)


def attempt(act: Callable[[], object]) -> None:
    """Calls ``act``. A clear error is as good as success."""
    with suppress(DbdynoError):
        act()


def belongs_to_root(directory: Path) -> list[Path]:
    """Returns what lies below a directory of the server's user and is not that user's."""
    uid = server_account().uid
    return [p for p in (directory, *directory.rglob("*")) if p.lstat().st_uid != uid]


OURS = ("dbdyno.conf", "dbdyno.conf.new", "postmaster.pid", "postmaster.pid.new", "postgresql.conf.new")


def test_planted_files_lead_root_nowhere(stopped_instance: tuple[Instance, Programs], victim: Path) -> None:
    """Root looks, starts, changes settings, and stops. Nothing hangs, and the server works."""
    server, programs = stopped_instance
    for kind in ("link", "pipe", "zero"):
        for name in OURS:
            plant(kind, server.data / name, victim)
        assert embedded.status()["running"] is False
        assert server.is_as_started() is False
        server.open(programs, StartOptions(settings={"work_mem": "5MB"}))
        plant(kind, server.data / "dbdyno.conf", victim)
        plant(kind, server.data / "dbdyno.conf.new", victim)
        server.reconfigure({"work_mem": "6MB"}, restart=False)
        server.close()
        assert not belongs_to_root(server.data)
        for file in server.data.iterdir():
            assert file.is_symlink() or not file.is_file() or SECRET not in file.read_text(errors="replace")


def test_planted_directories_and_every_other_file(
    stopped_instance: tuple[Instance, Programs], victim: Path
) -> None:
    """The server itself cannot start with these. Root comes to no harm, and --fresh cures it."""
    server, programs = stopped_instance
    for path in sorted(server.data.iterdir()):
        plant("link", path, victim if path.is_file() else victim.parent)
    attempt(lambda: server.open(programs, StartOptions()))
    server.close()
    attempt(embedded.status)
    server.open(programs, StartOptions(fresh=True))
    server.close()
    assert victim.parent.is_dir()


def test_a_hostile_template_gives_nothing_away(
    stopped_instance: tuple[Instance, Programs], victim: Path
) -> None:
    server, programs = stopped_instance
    clusters = server.places.cache / "clusters"  # one for each user that servers run as
    owned = [t for t in clusters.iterdir() if t.stat().st_uid == server_account().uid]
    templates = [t for t in owned if t.name.startswith(programs.version)]
    assert templates
    planted = [t / name for t in templates for name in ("stolen", "pipe")]
    for file in planted:
        plant("link" if file.name == "stolen" else "pipe", file, victim)
    try:
        server.open(programs, StartOptions(fresh=True))
        server.close()
    finally:
        as_account("/bin/rm", *planted)
    assert (server.data / "stolen").is_symlink()
    assert not belongs_to_root(server.data)


def test_a_script_cannot_lead_root_by_sql_alone(home: Path, victim: Path) -> None:  # noqa: ARG001
    """The script plants by COPY TO PROGRAM while the server runs; then root does all that it does next."""
    server, programs = instance_of(None)
    server.open(programs, StartOptions())
    socket = server.socket_dir
    names = [server.data / n for n in (*OURS, "postmaster.opts", "pg_hba.conf")]
    names += [socket / n for n in ("x", "x.new", ".s.PGSQL.5432.lock")]
    program = "; ".join(f"ln -sf {victim} {name}" for name in names)
    with psycopg.connect(server.facts()["dsn"], autocommit=True) as connection:
        connection.execute(f"copy (select 1) to program '{program}'".encode())
    assert server.process() is not None  # also with a link as its pid file
    attempt(lambda: server.reconfigure({"work_mem": "6MB"}, restart=False))
    attempt(lambda: server.reconfigure({"work_mem": "7MB"}, restart=True))
    server.close()
    assert server.process() is None
    server.open(programs, StartOptions(fresh=True))
    server.close()


def test_root_touches_nothing_below_directories_of_the_server(home: Path) -> None:
    """Python audits every open, change of owner or mode, move and removal by root's own process."""
    done = subprocess.run(
        [sys.executable, "-c", AUDITED, str(home)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    below = [line for line in done.stdout.splitlines() if line.startswith("below ")]
    assert below == [], below
    assert "end" in done.stdout


AUDITED = """
import os, sys
from pathlib import Path
from dbdyno.engines.postgres import embedded
from dbdyno.engines.postgres.embedded import StartOptions, instance_of
server, programs = instance_of(None)
guarded = [str(server.data), str(server.socket_dir), str(server.data) + ".new"]
clusters = str(server.places.cache / "clusters")
def below(path):
    if isinstance(path, int) or path is None:
        return False
    path = os.path.abspath(os.fsdecode(path))
    if path.startswith(clusters + "/"):
        return "/" in path[len(clusters) + 1:]
    return any(path.startswith(g + "/") for g in guarded)
def hook(event, args):
    if event == "open" or event.startswith(("os.", "shutil.")):
        if any(below(a) for a in args if isinstance(a, (str, bytes, os.PathLike))):
            print("below", event, args, flush=True)
sys.addaudithook(hook)
server.open(programs, StartOptions())
server.reconfigure({"work_mem": "5MB"}, restart=False)
server.reconfigure({"work_mem": "6MB"}, restart=True)
server.is_as_started(), server.facts(), embedded.status(), server.process()
server.close()
server.open(programs, StartOptions(fresh=True))
server.close()
embedded.start()
embedded.stop()
print("end")
"""


def test_a_new_data_directory_removes_only_what_is_in_it(
    stopped_instance: tuple[Instance, Programs], tmp_path: Path
) -> None:
    server, programs = stopped_instance
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    as_account("/bin/ln", "-s", kept, server.data / "pg_tblspc" / "1")
    server.open(programs, StartOptions(fresh=True))
    server.close()
    assert (kept / "file").exists()


def test_files_are_roots_and_nobody_elses(stopped_instance: tuple[Instance, Programs]) -> None:
    server, _ = stopped_instance
    for name in ("server.log", "instance.json", "start.lock", "server.lock", "owner.lock"):
        status = (server.directory / name).stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o600), name


def test_a_place_that_its_user_could_replace_is_refused(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's user owns the parent, so it could put a link in place of root's directory."""
    account = server_account()
    loose = open_dir / "loose"
    loose.mkdir()
    os.chown(loose, account.uid, account.gid)
    monkeypatch.setenv("DBDYNO_SERVER_DIR", str(loose / "srv"))
    with pytest.raises(UsageError, match=rf"directory {loose} belongs to another user"):
        find_places(account)


def test_directories_above_that_do_not_exist_yet_are_no_obstacle(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's first run has neither ~/.local nor ~/.local/share."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "DBDYNO_SERVER_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(open_dir))
    assert find_places(server_account()).data.is_dir()


def test_a_link_on_the_way_that_another_user_may_turn_is_refused(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's link leads to a good place while it is looked at, and elsewhere afterwards."""
    good, loose = open_dir / "good", open_dir / "loose"
    good.mkdir()
    loose.mkdir(mode=0o777)
    loose.chmod(0o1777)
    as_account("/bin/ln", "-s", good, loose / "link")
    monkeypatch.setenv("DBDYNO_SERVER_DIR", str(loose / "link"))
    with pytest.raises(UsageError, match=rf"link {loose / 'link'} belongs to another user"):
        find_places(server_account())
    (loose / "link").unlink()
    (loose / "link").symlink_to(good)  # root's own
    places = find_places(server_account())
    assert places.data == good / "servers" and places.cache == good / "cache"


def test_the_server_inherits_no_secrets(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """A script could read them in the environment of the server's processes."""
    for name in ("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DATABASE_URL"):
        monkeypatch.setenv(name, "known to root alone")
    server, programs = instance_of(None)
    server.open(programs, StartOptions())
    with psycopg.connect(server.facts()["dsn"], autocommit=True) as connection:
        connection.execute("create temp table seen (line text)")
        connection.execute("copy seen from program 'env; tr \\\\0 \\\\n < /proc/$PPID/environ'")
        lines = {line.split("=")[0] for (line,) in connection.execute("select line from seen").fetchall()}
        assert "PATH" in lines and not lines & {"AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DATABASE_URL"}
    server.close()


def test_a_stopped_child_is_given_up(
    stopped_instance: tuple[Instance, Programs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's user may stop the child that acts for root, so root waits for a limited time."""
    monkeypatch.setattr("dbdyno.engines.postgres.embedded.worker._PATIENCE_S", 0.5)
    with Worker(stopped_instance[0].account) as worker:
        assert worker.read(stopped_instance[0].data / "PG_VERSION") == "18\n"
        child = worker._child
        assert child is not None
        as_account("/bin/kill", "-STOP", str(child.pid))
        with pytest.raises(TargetError, match="does not answer"):
            worker._call("files.read", str(stopped_instance[0].data / "PG_VERSION"), 0, 10, patience_s=0.5)
        assert child.poll() is not None
    assert worker.read(stopped_instance[0].data / "PG_VERSION") == "18\n"


# -- who the server runs as ----------------------------------------------------------------------------
def test_nobody_is_never_the_servers_user(
    stopped_instance: tuple[Instance, Programs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds by name, and for data that an earlier start left. --fresh starts anew as another user."""
    server, programs = stopped_instance
    monkeypatch.setenv("DBDYNO_SERVER_USER", "nobody")
    with pytest.raises(UsageError, match="other programs run as too"):
        server_account()
    monkeypatch.delenv("DBDYNO_SERVER_USER")
    subprocess.run(["chown", "-hR", "nobody:", server.data], check=True)
    server, programs = instance_of(None)
    with pytest.raises(UsageError, match="belongs to user nobody") as caught:
        server.open(programs, StartOptions())
    server.close()
    command = str(caught.value.cure).partition("hand it over: ")[2].partition(";")[0]
    subprocess.run(command, shell=True, check=True)
    server, programs = instance_of(None)
    server.open(programs, StartOptions())
    server.close()
    subprocess.run(["chown", "-hR", "nobody:", server.data], check=True)
    server, programs = instance_of(None)
    server.open(programs, StartOptions(fresh=True))
    server.close()
    assert not belongs_to_root(server.data)


def test_data_of_another_database_user_keep_working(
    stopped_instance: tuple[Instance, Programs], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, programs = stopped_instance
    subprocess.run(["chown", "-hR", "daemon:", server.data], check=True)
    server, programs = instance_of(None)
    server.open(programs, StartOptions())
    process = server.process()
    assert process is not None
    assert Path(f"/proc/{process.pid}").stat().st_uid == server.account.uid != server_account().uid
    server.close()
    with monkeypatch.context() as patch, pytest.raises(UsageError, match="does not run as root"):
        patch.setenv("DBDYNO_SERVER_USER", "root")
        instance_of(None)


def test_a_lock_of_the_servers_user_stops_nobody(stopped_instance: tuple[Instance, Programs]) -> None:
    """The server's user cannot open the lock files."""
    server, _ = stopped_instance
    for name in ("start.lock", "owner.lock", "server.lock"):
        with pytest.raises(subprocess.CalledProcessError):
            as_account("/usr/bin/flock", "-n", server.directory / name, "/bin/true")
    assert not server.has_owner()
    assert server.stop() is None
