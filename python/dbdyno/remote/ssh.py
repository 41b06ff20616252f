"""An agent on another host over the user's own OpenSSH client; nothing is installed there or left behind.

``ssh`` runs a shell there, which reads the script below from its standard input. The script runs in
lockstep: neither side sends before the other has answered. It reports the host, receives the agent's program
unless the same is installed, checks its hash, opens it, removes it, and executes it. Configuration, keys,
key agent, jump hosts and known hosts are the user's; ssh may ask for a password on the terminal.

Each step has a time limit, and Ctrl-C ends it at once with all processes of ssh. The time limit stands still
while ssh has the terminal open, as it does while it asks: a human may have to look for a password.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import dbdyno
from dbdyno.engines import DEFAULT, without_secrets
from dbdyno.kernel import processes
from dbdyno.model.errors import Abandoned, NotAvailable, TargetError, Unreachable, UsageError, requests
from dbdyno.model.text.visible import shortened
from dbdyno.remote.agent import Agent
from dbdyno.remote.channels import STALL_S, ProcessChannel
from dbdyno.remote.machine import RemoteMachine
from dbdyno.remote.program import program

_MARK = b"dbdyno "
"""Marks each line that the script prints: the shell's start-up files may print, too."""
_MOST_NOISE = 64 << 10
_KEPT_NOISE, _LONGEST_WORDS = 4096, 500
LOGIN_S = 60.0
"""From the start of ssh to the first line of the script, without the time of questions at the terminal."""
_TRANSFER_S, _START_S = 600.0, 120.0
"""For 8 MB of program (14 kB/s), and from its last byte to its start, since ssh buffers up to 2 MB."""
_STEP_S, _LOOK_S, _END_S = 0.1, 1.0, 5.0  # wait for a byte, look whether ssh asks, wait for its end
_QUIET = ("sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh")
"""Ignores Ctrl-C in ssh: the measurement ends in order after its calls, over this connection."""
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
    """Reads ``[user@]host``. Raises :class:`UsageError`."""
    user, _, host = text.rpartition("@")
    if not host or host.startswith("-") or user.startswith("-") or any(c.isspace() for c in text):
        raise UsageError(
            f"--server-ssh {text!r}: not a host",
            "name it as for ssh: [USER@]HOST",
        )
    return _Login(host, user or None)


def machine(where: str, command: str = "ssh") -> RemoteMachine:
    """Connects to the host ``where`` (``[user@]host``). ``command``: the ssh client, with options.

    Raises :class:`UsageError`, :class:`TargetError` with the message of ssh, and :class:`NotAvailable`.
    """
    target = login(where)
    argv = shlex.split(command)
    if not argv:
        raise UsageError("--ssh-command is empty", "--ssh-command 'ssh -p 2222'")
    return RemoteMachine(lambda again: _open(argv, where, again=again), target.host, target.user)


def _open(command: Sequence[str], where: str, *, again: bool) -> Agent:
    silent = ("-o", "BatchMode=yes") if again else ()
    way = _SshChannel([*command, *silent, "-a", "-x", "-T", where, "/bin/sh"], where)
    try:
        way.begin()
        return Agent(way, login(where).host)
    except BaseException:
        way.kill()
        raise


class _Patience:
    """The time limit of one step.

    It starts anew whenever ssh is seen asking at the terminal, and stands still while dbdyno itself is
    stopped.
    """

    def __init__(self, channel: _SshChannel, seconds: float, what: str) -> None:
        self._way, self._seconds, self._what = channel, seconds, what
        self._left_s, self._before = seconds, requests()
        self._last_s = self._looked_s = time.monotonic()

    def check(self) -> None:
        """Raises :class:`Unreachable` when the time is over, :class:`Abandoned` after Ctrl-C."""
        if requests() > self._before:
            raise Abandoned
        now_s = time.monotonic()
        self._left_s -= min(now_s - self._last_s, 2 * _STEP_S)
        self._last_s = now_s
        if now_s - self._looked_s > _LOOK_S or self._left_s <= 0:
            self._looked_s = now_s
            if self._way.asks():
                self._left_s = self._seconds
        if self._left_s <= 0:
            raise self._way.late(f"{self._what} within {self._seconds:g} s")


class _SshChannel(ProcessChannel):
    """The channel through ssh; keeps the end of its error output for messages."""

    def __init__(self, words: Sequence[str], where: str) -> None:
        self._where, self._error_output, self._noise, self._ahead = where, b"", b"", b""
        if shutil.which(words[0]) is None:
            raise NotAvailable(f"{words[0]}: no such program", _NO_SSH)
        environment = without_secrets(DEFAULT, os.environ)  # SendEnv would send them to that host
        super().__init__([*_QUIET, *words], subprocess.PIPE, environment)
        assert self._process.stderr is not None
        self._listening = threading.Thread(target=self._listen, name="dbdyno-ssh", daemon=True)
        self._listening.start()

    def begin(self) -> None:
        """Runs the script up to the start of the agent. Raises what :func:`machine` raises."""
        patience = _Patience(self, LOGIN_S, "no shell answered")
        self._give(_SCRIPT.encode(), patience)
        _, system, arch = [*self._line(patience, "host").split(), "?", "?"][:3]
        if system != "Linux":
            raise TargetError(
                f"{self._where} runs {shortened(system, 40)}: dbdyno observes servers on Linux",
                "leave out --server-ssh",
            )
        if not re.fullmatch(r"\w{1,40}", arch, re.ASCII):
            raise TargetError(
                f"{self._where} has a processor called {shortened(arch, 40)}",
                "uname -m there has to be a word",
            )
        content = Path(program(arch)).read_bytes()
        transfer = _Patience(self, _TRANSFER_S, "the agent was not taken")
        self._give(f"take {hashlib.sha256(content).hexdigest()} {len(content)}\n".encode(), transfer)
        word, _, rest = self._line(self._start(), "installed", "send", "refused").partition(" ")
        if word == "send":
            self._give(content, transfer)
            word, _, rest = self._line(self._start(), "starts", "full", "damaged", "refused").partition(" ")
        if word not in ("installed", "starts"):
            raise NotAvailable(*_not_started(self._where, word, shortened(rest, _LONGEST_WORDS)))

    def _start(self) -> _Patience:
        return _Patience(self, _START_S, "the shell printed nothing more")

    def asks(self) -> bool:
        """Returns whether ssh or one of its children has the terminal open by name: then it asks."""
        for pid in processes.tree(self.pid):
            with suppress(OSError):
                if any(d.readlink() == Path("/dev/tty") for d in Path(f"/proc/{pid}/fd").iterdir()):
                    return True
        return False

    def late(self, what: str) -> Unreachable:
        lines = self._lines(self._error_output.rpartition(b"\n")[0] or self._error_output)
        message = f"; ssh says: {lines[-1]}" if lines else ""
        return Unreachable(
            f"ssh {self._where}: {what}{message}",
            f"ssh {self._where} /bin/sh -c true has to end by itself: look at the way there, at that host, "
            "and at what its start-up files wait for",
        )

    def _give(self, data: bytes, patience: _Patience) -> None:
        try:
            self.write(data, patience.check)
        except TimeoutError:
            raise self.late(f"nothing of the agent was taken for {STALL_S:g} s") from None
        except OSError:  # ssh has ended
            raise self._failure() from None

    def _line(self, patience: _Patience, *words: str) -> str:
        """Returns the next line of the script that begins with one of ``words``, without the mark."""
        line, noise = b"", 0
        while noise < _MOST_NOISE:
            byte = self._byte(patience)
            if byte == b"":
                raise self._failure()
            noise += 1
            if byte != b"\n":
                line += byte
                continue
            if line.startswith(_MARK) and line[len(_MARK) :].split(b" ")[0].decode(errors="replace") in words:
                return line[len(_MARK) :].decode(errors="replace")
            line, self._noise = b"", line.strip()[:_KEPT_NOISE] or self._noise
        raise TargetError(
            f"the shell of {self._where} prints more than it should before its first command",
            "let its start-up files print nothing where standard output is no terminal",
        )

    def _byte(self, patience: _Patience) -> bytes:
        if not self._ahead:
            while not self._readable(_STEP_S):
                patience.check()
            patience.check()
            self._ahead = super().receive()
        byte, self._ahead = self._ahead[:1], self._ahead[1:]
        return byte

    def receive(self) -> bytes:
        """Returns what arrived together with the last line of the script first."""
        ahead, self._ahead = self._ahead, b""
        return ahead or super().receive()

    def _readable(self, seconds: float) -> bool:
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _listen(self) -> None:
        """Keeps the end of the error output of ssh and the host, and drains the rest."""
        assert self._process.stderr is not None
        while piece := self._process.stderr.read(1024):
            self._error_output = (self._error_output + piece)[-_KEPT_NOISE:]

    def _rest(self) -> bytes:
        """Returns the unread output without waiting for more."""
        return (self.receive() if self._ahead or self._readable(0) else b"")[:_KEPT_NOISE]

    @staticmethod
    def _lines(text: bytes) -> list[str]:
        lines = (line.strip() for line in text.decode(errors="replace").splitlines())
        return [shortened(line, _LONGEST_WORDS) for line in lines if line]

    def _failure(self) -> TargetError:
        """Returns the error of ssh that ended before the agent began, with its own message."""
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:  # the shell closed its output, and goes on
            return self.late("the shell closed its output")
        self._listening.join(1.0)
        # a shell may refuse on either stream
        lines = self._lines(self._error_output or self._noise + b"\n" + self._rest())
        message = lines[-1] if lines else f"ssh ended with status {status}"
        for sign, cure in _CURES.items():
            if any(sign in line for line in lines):
                return Unreachable(f"ssh {self._where}: {message}", cure.format(where=self._where))
        cure = f"ssh {self._where} /bin/sh -c true has to work by itself"
        return Unreachable(f"ssh {self._where}: {message}", cure)


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
    """Returns message and cure."""
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
