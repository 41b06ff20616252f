"""The program in this process, for tests of its output rather than of the process: it loads once."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, getsignal, signal
from typing import TextIO
from unittest import mock

from dbdyno.cli import main
from dbdyno.model import errors
from tests import json_schema


def dbdyno(
    words: tuple[str, ...], env: Mapping[str, str], cwd: Path, terminal: TextIO | None = None
) -> subprocess.CompletedProcess[str]:
    """Returns what :func:`subprocess.run` of the program would. Restores what the program sets.

    What ``--json`` prints is validated. ``terminal``: where both outputs go instead.
    """
    out, err = io.StringIO(), io.StringIO()
    handlers = {s: getsignal(s) for s in (SIGINT, SIGTERM, SIGHUP)}
    code: object = 0
    try:
        with (
            mock.patch.dict(os.environ, env, clear=True),
            mock.patch.object(sys, "argv", ["dbdyno", *words]),
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(terminal or out),
            contextlib.redirect_stderr(terminal or err),
            warnings.catch_warnings(),
            mock.patch("dbdyno.cli.app.left_behind", return_value=False),  # which ends the process
        ):
            main()
    except SystemExit as e:
        code = e.code
    finally:
        errors.reset()
        for number, handler in handlers.items():
            signal(number, handler)
    json_schema.check(words, out.getvalue())
    return subprocess.CompletedProcess(["dbdyno", *words], int(code or 0), out.getvalue(), err.getvalue())  # type: ignore[call-overload]
