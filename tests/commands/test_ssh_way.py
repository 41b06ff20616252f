"""The way to a host over ssh, with shells in its place: their output, and the places where an agent finds
room."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from dbdyno.model.errors import NotAvailable, Unreachable
from dbdyno.remote import ssh
from tests.elsewhere import needs_root


def stand_in(tmp_path: Path, script: str) -> str:
    """Writes a program to use in place of ssh."""
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def shell_within(mounts: str, env: str = "") -> str:
    """Returns the beginning of a command line on a host with other file systems."""
    inside = f"{mounts}; unset XDG_RUNTIME_DIR TMPDIR; {env} exec env HOME=/tmp /bin/sh"
    return f"exec unshare --mount sh -ec {shlex.quote(inside)}"


@pytest.mark.parametrize(
    "script",
    [
        "exec /bin/sh",
        "echo hello; echo dbdyno host Plan9 mips >&2; exec /bin/sh",
        r"printf '\033]0;title\007no newline'; exec /bin/sh",
    ],
    ids=["plain", "lines", "no newline"],
)
def test_what_a_shell_prints_first_is_passed_over(tmp_path: Path, script: str) -> None:
    host = ssh.machine("db", stand_in(tmp_path, script))
    try:
        assert (host.uid, host.architecture) == (os.geteuid(), os.uname().machine)
        name = (host.root / f"proc/{host.pid}/comm").read_text().strip()
        assert name == "dbdyno-agent"
    finally:
        host.close()


@needs_root
@pytest.mark.parametrize("mount", ["-o size=1m", "-o noexec"])
def test_a_place_that_is_of_no_use_is_passed_over(tmp_path: Path, mount: str) -> None:
    host = ssh.machine("db", stand_in(tmp_path, shell_within(f"mount -t tmpfs {mount} none /dev/shm")))
    host.close()


@needs_root
@pytest.mark.parametrize(("mount", "sign"), [("-o size=1m", "(full)"), ("-o noexec", "noexec")])
def test_without_a_usable_place_the_error_names_what_is_installed(
    tmp_path: Path, mount: str, sign: str
) -> None:
    """An agent of another version counts as none, and the error says so."""
    old = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        (old / "dbdyno-agent").write_text("#!/bin/sh\necho dbdyno-agent 0.0.9 protocol 1\n")
        (old / "dbdyno-agent").chmod(0o755)
        mounts = f"for d in /dev/shm /tmp; do mount -t tmpfs {mount} none $d; done"
        with pytest.raises(NotAvailable) as refused:
            ssh.machine("db", stand_in(tmp_path, shell_within(mounts, f"PATH={old}:$PATH;")))
    finally:
        shutil.rmtree(old)
    assert sign in refused.value.message
    assert "dbdyno-agent 0.0.9 protocol 1" in refused.value.message


@pytest.mark.parametrize(
    ("script", "sign"),
    [
        ("echo This account is not available.; exit 1", "This account is not available."),
        ("echo 'rbash: /bin/sh: restricted' >&2; exit 1", "rbash: /bin/sh: restricted"),
        ("exit 0", "ended with status 0"),
    ],
)
def test_a_shell_that_lets_nobody_in_is_quoted(tmp_path: Path, script: str, sign: str) -> None:
    with pytest.raises(Unreachable) as refused:
        ssh.machine("db", stand_in(tmp_path, script))
    assert sign in refused.value.message
    assert "ssh db /bin/sh -c true" in str(refused.value.cure)
