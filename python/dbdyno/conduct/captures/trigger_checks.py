"""Checks before a measurement that its triggers can fire and their commands be started."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from dbdyno.model.engine.protocols import Server
from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.plan import Experiment
from dbdyno.plan.triggers import Action, Triggers, triggers_of

_EXPANDED = frozenset("$`*?[~={}()<>|&;!#")
"""Characters in a first word that the shell expands or reads as an operator: it is no name of a program."""


def check_triggers(server: Server, experiment: Experiment) -> None:
    """Raises :class:`UsageError` for a condition on a class of waits that no session can be in, and for a
    command whose program does not exist."""
    planned = triggers_of(experiment)
    _check_waits(server, planned)
    for action in (action for trigger in planned.all for action in trigger.actions):
        if action.name == "exec":
            _check_command(action)


def _check_waits(server: Server, planned: Triggers) -> None:
    known = sorted({label.partition("/")[0] for label in server.wait_families.root})
    lower = {name.lower() for name in known}
    for figure in planned.figures():
        name = figure.argument.partition("/")[0]
        if figure.name == "wait" and lower and name.lower() not in lower:
            raise UsageError(f"--when: {figure.key}: no such class of waits", did_you_mean(name, known))


def _check_command(action: Action) -> None:
    """Checks the first word of a command. A word that the shell would expand is left to the shell."""
    lexer = shlex.shlex(action.command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        program = next(iter(list(lexer)), "")
    except ValueError as e:
        raise UsageError(f"--do {action.text!r}: {e}", "quote the command as for sh -c") from e
    if not program or _EXPANDED & set(program):
        return
    if "/" in program:
        path = Path(program)
        if not path.is_file():
            raise UsageError(
                f"--do {action.text!r}: there is no program {program}", f"looked for {path.absolute()}"
            )
        if not os.access(path, os.X_OK):
            raise UsageError(
                f"--do {action.text!r}: {program} may not be executed", f"chmod +x {shlex.quote(program)}"
            )
    elif shutil.which(program) is None and not _of_the_shell(program):
        raise UsageError(
            f"--do {action.text!r}: there is no program {program} in PATH", "install it, or give its path"
        )


def _of_the_shell(word: str) -> bool:
    """Returns whether a word is a keyword or builtin of the shell."""
    asked = ("sh", "-c", 'command -v -- "$1"', "sh", word)
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0
