"""Becomes the server: run as ``python -I -S launch.py UID GID PARENT[:SIGNAL] PROGRAM ...``, stdlib only.

A process of its own, because a forked Python with threads must not do these things between fork and exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(uid: int, gid: int, parent: int, program: list[str], sign: int = signal.SIGINT) -> None:
    """``parent`` not 0: the server is asked to stop (``sign``; SIGINT is fast) when that process dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if parent:
        # After the change of user, which clears it. The parent may be dead already: look again.
        libc.prctl(PR_SET_PDEATHSIG, sign, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the process that started the server is gone")
    os.execv(program[0], program)


if __name__ == "__main__":
    parent, _, sign = sys.argv[3].partition(":")
    main(int(sys.argv[1]), int(sys.argv[2]), int(parent), sys.argv[4:], int(sign or signal.SIGINT))
