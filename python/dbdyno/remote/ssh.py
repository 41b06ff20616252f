"""An agent on another host over the user's own OpenSSH client: nothing is installed there, nothing stays.

``ssh`` runs a shell there, which reads the script below from its standard input. In lockstep (nobody sends
before the other has spoken) it says what the host is, takes the agent's program where an installed one is not
the same, checks its hash, opens it, removes it, and becomes it. Configuration, keys, agent, jump hosts and
known hosts are the user's; ssh may ask for a password on the terminal.
"""

from __future__ import annotations

import hashlib
import os
import select
import shlex
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import dbdyno
from dbdyno.model.errors import NotAvailable, TargetError, Unreachable, UsageError
from dbdyno.remote.agent import Agent
from dbdyno.remote.channels import ProcessChannel
from dbdyno.remote.machine import RemoteMachine
from dbdyno.remote.program import program

_MARK = b"dbdyno "
"""Begins the lines of the script: what a shell's own start-up files print does not."""
_MOST_NOISE = 64 << 10
_QUIET = ("sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh")
"""Ctrl-C ends the measurement after its calls, and not the way to the host at once."""
_SCRIPT = r"""
dbdyno_main() {
    umask 077
    printf '\ndbdyno host %s %s\n' "$(uname -s)" "$(uname -m)"
    read -r verb sum bytes || exit 0
    [ "$verb" = take ] || exit 0
    have=$(command -v dbdyno-agent 2>/dev/null) && [ -f "$have" ] &&
        [ "$(sha256sum <"$have" | cut -d" " -f1)" = "$sum" ] && {
            echo "dbdyno installed"
            exec "$have"
        }
    other=
    [ -z "$have" ] || other=$("$have" --version </dev/null 2>/dev/null | head -n 1)
    file=
    trap 'rm -f "$file"' EXIT
    trap 'exit 1' HUP INT TERM
    tried=
    for place in "${XDG_RUNTIME_DIR:-}" /dev/shm "${TMPDIR:-}" /tmp "${HOME:-}"; do
        [ -d "$place" ] && [ -w "$place" ] || continue
        tried="$tried $place"
        next=$(mktemp "$place/dbdyno-agent.XXXXXXXX" 2>/dev/null) || continue
        if [ -z "$file" ]; then
            if ! head -c "$bytes" /dev/zero >"$next" 2>/dev/null; then
                rm -f "$next"
                tried="$tried(full)"
                continue
            fi
            file=$next
            echo "dbdyno send"
            head -c "$bytes" >"$file" || { echo "dbdyno full $place"; exit 1; }
            if [ "$(sha256sum <"$file" | cut -d" " -f1)" != "$sum" ]; then
                echo "dbdyno damaged $place"
                exit 1
            fi
        else
            cat "$file" >"$next" 2>/dev/null || { rm -f "$next"; continue; }
            rm -f "$file"
            file=$next
        fi
        chmod 700 "$file"
        if "$file" --version >/dev/null 2>&1; then
            exec 3<"$file"
            rm -f "$file"
            echo "dbdyno starts"
            exec /proc/self/fd/3
        fi
    done
    echo "dbdyno refused$tried|$other"
}
dbdyno_main
"""


class _Login(NamedTuple):
    host: str
    user: str | None


def login(text: str) -> _Login:
    """``[user@]host``. Raises :class:`UsageError`."""
    user, _, host = text.rpartition("@")
    if not host or host.startswith("-") or user.startswith("-") or any(c.isspace() for c in text):
        raise UsageError(
            f"--server-ssh {text!r}: not a host",
            "name it as for ssh: [USER@]HOST",
        )
    return _Login(host, user or None)


def machine(where: str, command: str = "ssh") -> RemoteMachine:
    """The host ``where`` (``[user@]host``), until it is closed. ``command``: the ssh client, with options.

    Raises :class:`UsageError`, :class:`TargetError` with ssh's own words, and :class:`NotAvailable`.
    """
    found = login(where)
    words = shlex.split(command)
    if not words:
        raise UsageError("--ssh-command is empty", "--ssh-command 'ssh -p 2222'")
    return RemoteMachine(lambda again: _opened(words, where, again=again), found.host, found.user)


def _opened(command: Sequence[str], where: str, *, again: bool) -> Agent:
    silent = ("-o", "BatchMode=yes") if again else ()
    way = _Way([*command, *silent, "-a", "-x", "-T", where, "/bin/sh"], where)
    try:
        way.begin()
        return Agent(way, login(where).host)
    except BaseException:
        way.close()
        raise


class _Way(ProcessChannel):
    """The bytes of ssh; what ssh itself says is kept for messages."""

    def __init__(self, words: Sequence[str], where: str) -> None:
        self._where, self._said, self._noise = where, bytearray(), b""
        if shutil.which(words[0]) is None:
            raise NotAvailable(f"{words[0]}: no such program", _NO_SSH)
        super().__init__([*_QUIET, *words], subprocess.PIPE)
        assert self._process.stderr is not None
        self._listening = threading.Thread(target=self._listen, name="dbdyno-ssh", daemon=True)
        self._listening.start()

    def begin(self) -> None:
        """Up to the agent, which then speaks. Raises what :func:`machine` raises."""
        self._give(_SCRIPT.encode())
        _, system, arch = [*self._line("host").split(), "?", "?"][:3]
        if system != "Linux":
            raise TargetError(
                f"{self._where} runs {system}: dbdyno observes servers on Linux", "leave out --server-ssh"
            )
        content = Path(program(arch)).read_bytes()
        self._give(f"take {hashlib.sha256(content).hexdigest()} {len(content)}\n".encode())
        word, _, rest = self._line("installed", "send", "refused").partition(" ")
        if word == "send":
            self._give(content)
            word, _, rest = self._line("starts", "full", "damaged", "refused").partition(" ")
        if word not in ("installed", "starts"):
            raise NotAvailable(*_not_started(self._where, word, rest))

    def _give(self, data: bytes) -> None:
        try:
            self.send(data)
        except OSError:  # ssh has ended
            raise self._failure() from None

    def _line(self, *words: str) -> str:
        """The next line of the script, without the mark."""
        line, noise = b"", 0
        while noise < _MOST_NOISE:
            byte = self._byte()
            if byte == b"":
                raise self._failure()
            noise += 1
            if byte != b"\n":
                line += byte
                continue
            if line.startswith(_MARK) and line[len(_MARK) :].split(b" ")[0].decode(errors="replace") in words:
                return line[len(_MARK) :].decode(errors="replace")
            line, self._noise = b"", line.strip() or self._noise
        raise TargetError(
            f"the shell of {self._where} prints more than it should before its first command",
            "let its start-up files print nothing where standard output is no terminal",
        )

    def _byte(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.read(1) or b""

    def _listen(self) -> None:
        assert self._process.stderr is not None
        while piece := self._process.stderr.read(1024):
            self._said += piece

    def _rest(self) -> bytes:
        """What was printed and not read yet, without waiting for more."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 0)
        return os.read(self._process.stdout.fileno(), _MOST_NOISE) if ready else b""

    def _failure(self) -> TargetError:
        """Why ssh ended before the agent began, in its own words."""
        status = self._process.wait()
        self._listening.join(1.0)
        said = bytes(self._said) or self._noise + b"\n" + self._rest()  # a shell may refuse on either
        lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
        told = lines[-1] if lines else f"ssh ended with status {status}"
        for sign, cure in _CURES.items():
            if any(sign in line for line in lines):
                return Unreachable(f"ssh {self._where}: {told}", cure.format(where=self._where))
        cure = f"ssh {self._where} /bin/sh -c true has to work by itself"
        return Unreachable(f"ssh {self._where}: {told}", cure)


_NO_SSH = "install OpenSSH's client (openssh-client), or name another: --ssh-command"
_CURES = {
    "Permission denied": "ssh {where} true has to work: load the key (ssh-add), or name the user: USER@HOST",
    "Host key verification failed": "check the host's key once by hand: ssh {where}",
    "Could not resolve hostname": "name the host as for ssh, or as a Host of ~/.ssh/config",
    "Connection refused": "look whether sshd runs there, and at the port: --ssh-command 'ssh -p PORT'",
    "Connection timed out": "look at the way there: a firewall, a jump host (ProxyJump of ~/.ssh/config)",
    "No route to host": "look at the way there: a firewall, a jump host (ProxyJump of ~/.ssh/config)",
}


def _not_started(where: str, word: str, rest: str) -> tuple[str, str]:
    """Message and cure."""
    if word == "full":
        return f"no room on {where} for the agent in {rest}", "free some megabytes there"
    if word == "damaged":
        return f"the agent arrived damaged on {where}", "try again; sha256sum has to be there"
    tried, _, installed = rest.partition("|")
    places = ", ".join(tried.split()) or "no directory was writable"
    other = f"; installed there is {installed}, this is {dbdyno.__version__}" if installed else ""
    return (
        f"no program can be started on {where} ({places}: full, or mounted noexec?){other}",
        "set TMPDIR there to a directory that is not, or install dbdyno-agent of this version in its PATH",
    )
