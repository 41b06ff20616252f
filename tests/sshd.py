"""An sshd beside a server elsewhere, in its namespaces, with an unprivileged user who may log in."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.elsewhere import test_user
from tests.elsewhere_server import ServerElsewhere
from tests.waiting import eventually

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
PORT = 2222
needs_sshd = pytest.mark.skipif(
    not Path(SSHD).exists(), reason="no sshd here: apt-get install openssh-server"
)
_CONFIG = """\
Port {port}
HostKey {place}/host
AuthorizedKeysFile {place}/keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
"""


@dataclass
class Sshd:
    """An ssh server. ``user`` may log in with the key in ``place``, and with ``mute``, for which no shell
    writes a word. ``host``: its address."""

    process: subprocess.Popen[bytes]
    place: Path
    host: str
    user: str

    def command(self, *options: str, key: str = "key") -> str:
        """Returns the client's command for ``--ssh-command``. No configuration of this machine's user
        counts."""
        known = ["-o", f"UserKnownHostsFile={self.place}/known", "-o", "StrictHostKeyChecking=yes"]
        words = [
            "ssh",
            "-F",
            "none",
            "-p",
            str(PORT),
            "-i",
            f"{self.place}/{key}",
            "-o",
            "IdentitiesOnly=yes",
        ]
        return " ".join([*words, *options, *known])  # the first of several values counts

    def logins(self) -> list[int]:
        """Returns processes of sshd that serve a login, as the user."""
        return [pid for pid, name in self._processes() if name.startswith("sshd")]

    def agents(self) -> list[int]:
        """Returns processes of dbdyno's agents there."""
        return [pid for pid, name in self._processes() if name == "dbdyno-agent"]

    def names(self) -> list[str]:
        """Returns programs of the user's processes there."""
        return [name for _, name in self._processes()]

    def _processes(self) -> Iterator[tuple[int, str]]:
        uid = pwd.getpwnam(self.user).pw_uid
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and entry.stat().st_uid == uid and self._inside(entry):
                    yield int(entry.name), (entry / "comm").read_text().strip()

    def _inside(self, process: Path) -> bool:
        return (process / "ns/net").readlink() == Path(f"/proc/{self.process.pid}/ns/net").readlink()


@contextlib.contextmanager
def sshd(server: ServerElsewhere, place: Path, within: Sequence[str] = ()) -> Iterator[Sshd]:
    """Yields an sshd in the namespaces of ``server``, which has to have a mount namespace of its own.

    ``within``: shell commands that are executed there first.
    """
    user = pwd.getpwuid(test_user()[0]).pw_name
    place.chmod(0o755)
    for name in ("host", "key", "other", "mute"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(words, check=True, capture_output=True)
    mute = f'command="exec cat >/dev/null" {(place / "mute.pub").read_text()}'
    (place / "keys").write_text((place / "key.pub").read_text() + mute)
    (place / "keys").chmod(0o644)
    (place / "known").write_text(f"[{server.host}]:{PORT} {(place / 'host.pub').read_text()}")
    (place / "config").write_text(_CONFIG.format(port=PORT, place=place))
    home = place / "home"
    home.mkdir()
    os.chown(home, *test_user())
    for name, line in (("passwd", _passwd(user, home)), ("shadow", f"{user}:*:19000:0:99999:7:::")):
        others = [
            one for one in Path(f"/etc/{name}").read_text().splitlines() if not one.startswith(f"{user}:")
        ]
        (place / name).write_text("\n".join([*others, line, ""]))
    binds = [f"mount --bind {place}/{name} /etc/{name}" for name in ("passwd", "shadow")]
    first = "; ".join(["mkdir -p /run/sshd", *binds, *within])
    words = [SSHD, "-D", "-e", "-f", str(place / "config")]
    entering = ["nsenter", "-t", str(server.pid), "-m", "-p", "-n", "sh", "-ec", f'{first}; exec "$@"', "sh"]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([*entering, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        eventually(lambda: process.poll() is not None or _answers(server.host), 60)
        assert process.poll() is None, (place / "log").read_text()
        yield Sshd(process, place, server.host, user)
    finally:
        process.terminate()
        process.wait(60)


def _passwd(user: str, home: Path) -> str:
    uid, gid = test_user()
    return f"{user}:x:{uid}:{gid}::{home}:/bin/sh"


def _answers(host: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, PORT), 5) as way:
        return way.recv(4) == b"SSH-"
    return False
