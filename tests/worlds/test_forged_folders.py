"""Another user of the machine attacks the folders and files that a later start of dbdyno trusts."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elsewhere import Elsewhere, as_user, needs_root, test_user

pytestmark = [pytest.mark.root, needs_root]
ATTACKER = (54_322, 54_322)
RUN = (
    "run",
    "lio",
    "--sessions",
    "1",
    "--measure",
    "1s",
    "--settle",
    "100ms",
    "--no-memory",
    "--no-snapshots",
)
LOOP = ("run", "--command", "@loop", "--sessions", "1", "--measure", "1s", "--settle", "0s")
BASES = {
    "XDG_DATA_HOME": ".local/share",
    "XDG_CACHE_HOME": ".cache",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CONFIG_HOME": ".config",
}


def attack(text: str) -> subprocess.CompletedProcess[str]:
    """Runs ``text`` by ``sh`` as another user than the victim."""
    words = [*as_user(ATTACKER), "sh", "-c", text]
    return subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)


def with_umask(mask: str) -> list[str]:
    return [*as_user(), "sh", "-c", f'umask {mask}; exec "$@"', "sh"]


def dbdyno(
    theirs: Elsewhere, *words: str, umask: str = "022", **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs the program as the victim, whose servers are in their usual place."""
    done = theirs.dbdyno(*words, world=with_umask(umask), DBDYNO_SERVER_DIR="", **env)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def give(path: Path, user: tuple[int, int]) -> None:
    for place in (path, *path.rglob("*")):
        os.chown(place, *user, follow_symlinks=False)


def forged_file(home: Path, relative: str, text: str = "", mode: int = 0o600) -> Path:
    """Writes a file of the victim's in folders of the victim's."""
    path = home / relative
    for place in reversed([p for p in path.parents if not p.exists()]):
        place.mkdir(mode=0o700)
        os.chown(place, *test_user())
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, *test_user())
    return path


@pytest.mark.parametrize("umask", ["000", "077"])
def test_nothing_of_a_first_start_is_open_to_others(theirs: Elsewhere, umask: str) -> None:
    """A first start makes an embedded server, a run, and compiled programs. Another user can neither write
    nor read them."""
    for words in (RUN, LOOP, ("server", "start"), ("runs",)):
        done = dbdyno(theirs, *words, umask=umask)
        assert done.returncode == 0, done.stderr + done.stdout
    try:
        kept = [theirs.home / below for below in BASES.values() if (theirs.home / below).exists()]
        every = [p for base in kept for p in (base, *base.rglob("*")) if not p.is_symlink()]
        assert {p.name for p in every} >= {"clusters", "jobs", "instance.json", "postgresql.conf", "run.json"}
        mode = {p: stat.S_IMODE(p.lstat().st_mode) for p in every}
        assert [f"{p} {m:04o}" for p, m in mode.items() if m & 0o022] == []
        places = " ".join(str(p) for p in kept)
        listing = attack(f"find {places} -writable -o -type f -readable 2>/dev/null")
        assert listing.stdout == ""
    finally:
        stopped = dbdyno(theirs, "server", "stop")
    assert stopped.returncode == 0, stopped.stderr


@pytest.mark.parametrize("variable", BASES)
@pytest.mark.parametrize(
    "forge",
    ["mkdir -m 777 {base}/dbdyno", "mkdir -m 777 {base}/evil; ln -s {base}/evil {base}/dbdyno"],
    ids=["folder", "link"],
)
def test_a_folder_that_another_user_made_first_is_refused(
    theirs: Elsewhere, variable: str, forge: str
) -> None:
    """It is in a place where everybody may make something, as /tmp."""
    base = theirs.home / "base"
    base.mkdir()
    base.chmod(0o1777)
    assert attack(forge.format(base=base)).returncode == 0
    if variable == "XDG_CONFIG_HOME":
        assert (
            attack(f"echo 'ssh-command = \"touch {base}/done\"' > {base}/dbdyno/config.toml").returncode == 0
        )
    words = {"XDG_CACHE_HOME": LOOP, "XDG_STATE_HOME": LOOP}.get(variable, ("runs",))
    done = dbdyno(theirs, *words, **{variable: str(base)})
    assert done.returncode in (2, 4), done.stdout + done.stderr
    assert f"{base}/dbdyno belongs to another user (uid {ATTACKER[0]})" in done.stderr
    assert "run as " in done.stderr and "remove it" not in done.stderr
    assert not [p for p in (base / "dbdyno").rglob("*") if p.name != "config.toml"]


def test_a_parent_in_which_others_may_exchange_folders_is_refused(theirs: Elsewhere) -> None:
    base = theirs.home / "base"
    base.mkdir()
    os.chown(base, *test_user())
    base.chmod(0o777)
    for variable, words in (("XDG_DATA_HOME", ("runs",)), ("XDG_CACHE_HOME", ("server", "start"))):
        done = dbdyno(theirs, *words, **{variable: str(base)})
        assert done.returncode in (2, 4), done.stdout
        assert f"other users may write to directory {base} (mode 0777)" in done.stderr
        assert f"chmod o-w {base}" in done.stderr or f"chmod go-w {base}" in done.stderr
    named = dbdyno(theirs, *LOOP, DBDYNO_STORE=str(base))
    assert named.returncode == 4 and f"directory {base} (mode 0777)" in named.stderr


def journal(theirs: Elsewhere) -> Path:
    undo = {"kind": "group", "key": "group x", "what": "control group x", "data": {}}
    text = json.dumps({"run": "forged", "pid": 1, "pid_start_ticks": 1, "boot": "x", "undos": [undo]})
    return forged_file(theirs.home, ".local/state/dbdyno/undo/forged.json", text)


def config(theirs: Elsewhere) -> Path:
    return forged_file(theirs.home, ".config/dbdyno/config.toml", "quiet = true\n")


def forged_instance(theirs: Elsewhere) -> Path:
    return forged_file(theirs.home, ".local/share/dbdyno/postgres/18/instance.json", "{}")


@pytest.mark.parametrize(
    ("file", "words", "code"),
    [(journal, ("clean",), 4), (config, ("runs",), 2), (forged_instance, ("server", "status"), 2)],
)
def test_a_forged_file_among_ones_own_is_refused(
    theirs: Elsewhere, file: Callable[[Elsewhere], Path], words: tuple[str, ...], code: int
) -> None:
    """Another user has put it there, or may write it."""
    path = file(theirs)
    os.chown(path, *ATTACKER)
    done = dbdyno(theirs, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"belongs to another user (uid {ATTACKER[0]})" in done.stderr and str(path) in done.stderr
    os.chown(path, *test_user())
    path.chmod(0o666)
    assert attack(f"echo >> {path}").returncode != 0  # by its folders; but who knows since when
    done = dbdyno(theirs, *words)
    assert done.returncode == code and re.search(f"chmod g?o-w {path}", done.stderr), done.stderr


def test_a_forged_program_of_the_shipped_jobs_is_not_run(theirs: Elsewhere) -> None:
    assert dbdyno(theirs, *LOOP).returncode == 0
    (program,) = (p for p in (theirs.home / ".cache/dbdyno/jobs").iterdir() if p.is_file())
    sound = program.read_bytes()
    program.chmod(0o777)  # by an earlier version with umask 000, and then forged
    program.write_text("#!/bin/sh\ntouch ~/forged\n")
    assert dbdyno(theirs, *LOOP).returncode == 0
    assert program.read_bytes() == sound and not (theirs.home / "forged").exists()
    os.chown(program, *ATTACKER)
    done = dbdyno(theirs, *LOOP)
    assert done.returncode == 2 and f"{program} belongs to another user" in done.stderr, done.stderr


def test_a_template_that_others_could_replace_is_initialised_anew(theirs: Elsewhere) -> None:
    """Earlier versions left it with umask 000, so everybody could put another in its place."""
    assert dbdyno(theirs, "server", "start").returncode == 0
    assert dbdyno(theirs, "server", "stop").returncode == 0
    clusters = theirs.home / ".cache/dbdyno/postgres/clusters"
    for place in (clusters, *list(clusters.parents)[:3]):
        place.chmod(0o777 if place == clusters else 0o755)
    (template,) = clusters.iterdir()
    forged = attack(
        f"mv {template} {clusters}/aside && mkdir -m 777 {template} && cd {template} && umask 000 && "
        f"echo 'archive_command = forged' > postgresql.conf && echo 18 > PG_VERSION"
    )
    assert forged.returncode == 0, forged.stderr
    done = dbdyno(theirs, "server", "start", "--fresh")
    try:
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(clusters.stat().st_mode) == 0o700
        assert [p.name for p in clusters.iterdir()] == [template.name]
        data = theirs.home / ".local/share/dbdyno/postgres/18/data"
        assert "forged" not in (data / "postgresql.conf").read_text()
    finally:
        dbdyno(theirs, "server", "stop")
    clusters.chmod(0o777)
    assert attack(f"mkdir {clusters}/mine && touch {clusters}/mine/kept").returncode == 0
    clusters.chmod(0o700)
    give(template, ATTACKER)
    done = dbdyno(theirs, "server", "start", "--fresh")
    assert done.returncode == 2 and f"{template} belongs to another user" in done.stderr, done.stderr
    clusters.chmod(0o777)
    done = dbdyno(theirs, "server", "start", "--fresh")
    assert done.returncode == 2 and f"rm -rf {clusters}" in done.stderr, done.stderr


def test_data_of_another_user_are_not_started(theirs: Elsewhere) -> None:
    assert dbdyno(theirs, "server", "start").returncode == 0
    assert dbdyno(theirs, "server", "stop").returncode == 0
    data = theirs.home / ".local/share/dbdyno/postgres/18/data"
    data.chmod(0o777)
    done = dbdyno(theirs, "server", "start")
    assert done.returncode == 2 and f"chmod go-w {data}" in done.stderr, done.stderr
    data.chmod(0o700)
    give(data, ATTACKER)
    done = dbdyno(theirs, "server", "start")
    assert done.returncode == 2 and f"{data} belongs to another user" in done.stderr, done.stderr
