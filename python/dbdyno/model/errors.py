"""The one error tree. Every message says what is wrong and, after it, the cure.

::

    DbdynoError                 exit 1   a defect of ours, or something nobody foresaw
    +-- UsageError              exit 2   wrong option, recipe, workload, script
    |   +-- RecipeError
    |   +-- ScriptError                  with line, column and the text around
    +-- TargetError             exit 3   the database server
    |   +-- Unreachable
    |   +-- AuthenticationFailed
    |   +-- NoSuchDatabase
    |   +-- NotPrivileged
    |   +-- TooFewConnections
    |   +-- ServerBusy                   another run holds this server
    |   +-- ServerLost                   it went away while we measured
    +-- StoreError              exit 4   the run store
        +-- NoSuchRun
        +-- SchemaTooNew
        +-- StoreFull

A run that was cut short but left a readable report ends with exit 5, a self-test whose ledger is
off with 6; Ctrl-C with 130.
"""

from __future__ import annotations

EXIT_CUT_SHORT = 5
EXIT_OFF = 6
EXIT_INTERRUPTED = 130


class DbdynoError(Exception):
    """Base of all errors a user may see: ``message`` and ``cure``, both plain sentences."""

    exit_code = 1

    def __init__(self, message: str, cure: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        return self.message if self.cure is None else f"{self.message}\n  {self.cure}"


class UsageError(DbdynoError):
    exit_code = 2


class RecipeError(UsageError):
    pass


class ScriptError(UsageError):
    pass


class TargetError(DbdynoError):
    exit_code = 3


class Unreachable(TargetError):
    pass


class AuthenticationFailed(TargetError):
    pass


class NoSuchDatabase(TargetError):
    pass


class NotPrivileged(TargetError):
    pass


class TooFewConnections(TargetError):
    pass


class ServerBusy(TargetError):
    pass


class ServerLost(TargetError):
    pass


class StoreError(DbdynoError):
    exit_code = 4


class NoSuchRun(StoreError):
    pass


class SchemaTooNew(StoreError):
    pass


class StoreFull(StoreError):
    pass
