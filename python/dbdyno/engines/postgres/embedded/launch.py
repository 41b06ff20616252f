"""Drops root's rights for good, then executes a program or serves ``files`` and ``postmaster``.

Run as ``python -I -S launch.py UID GID PARENT[:SIGNAL] [PROGRAM ...]``. Needs only the standard library. It
is a process of its own because a forked Python with threads must not do these things between fork and exec,
and because the server's files must not be accessed with root's rights. It imports little: a start of the
server runs it several times, and importing ``signal``, ``json`` and ``pathlib`` took two thirds of the time
to execute a program.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SIGINT = 2
SIG_SETMASK = 2  # asm-generic/signal-defs.h
_NO_SIGNALS = bytes(128)  # sigset_t of the C library


def become(uid: int, gid: int, parent: int, sign: int) -> None:
    """Changes to this user for good. If ``parent`` is not 0, the kernel sends this process the signal
    ``sign`` when the parent dies. Raises :class:`OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        if _is_root_again():
            raise PermissionError(1, "root's rights do not end with the change of user")
    libc.prctl(
        PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0
    )  # else /proc of the server would be closed to us
    os.umask(0o077)
    libc.sigprocmask(SIG_SETMASK, _NO_SIGNALS, None)
    if parent:
        # After the change of user, which clears it. The parent may be dead already: look again.
        libc.prctl(PR_SET_PDEATHSIG, sign, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the process that started the server is gone")


def _is_root_again() -> bool:
    try:
        os.setuid(0)
    except OSError:
        return False
    return True


def serve(functions: dict[str, Callable[..., object]]) -> None:
    """Answers requests, one per line: [name, arguments]. An answer is {"done": ...} or {"failed": ...}."""
    import json

    answer: dict[str, object] = {"done": None}
    while True:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        name, arguments = json.loads(line)
        try:
            answer = {"done": functions[name](*arguments)}
        except OSError as e:
            answer = {"failed": [e.errno, e.strerror or str(e), e.filename]}


def main(uid: int, gid: int, parent: int, sign: int, program: list[str]) -> None:
    if program:
        become(uid, gid, parent, sign)
        os.execv(program[0], program)
    import json  # noqa: F401  imported while root, since the user may not be able to read the library
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent))
    modules = [__import__(name) for name in ("files", "postmaster")]
    become(uid, gid, parent, sign)
    os.chdir("/")
    serve({f"{m.__name__}.{name}": f for m in modules for name, f in vars(m).items() if callable(f)})


if __name__ == "__main__":
    parent, _, sign = sys.argv[3].partition(":")
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), int(parent), int(sign or SIGINT), sys.argv[4:])
    except OSError as e:
        sys.exit(f"dbdyno cannot start as user {sys.argv[1]}: {e}")
