"""The tree of all errors that users see. Every message describes the fault, followed by the remedy.

::

    DbdynoError                 exit 1   a defect of dbdyno, or an unforeseen case
    +-- UsageError              exit 2   wrong option, recipe, workload, script
    |   +-- RecipeError
    |   +-- ScriptError                  with line, column and context
    |   +-- NotAvailable                 missing on this machine or server
    |   |   +-- NotInstalled             an extra of this installation
    |   +-- MachineBusy                  other processes use the CPUs (--wait-quiet)
    +-- TargetError             exit 3   the database server
    |   +-- Unreachable
    |   +-- AuthenticationFailed
    |   +-- NoSuchDatabase
    |   +-- NotPrivileged
    |   +-- TooFewConnections
    |   +-- ServerBusy                   another run holds this server
    |   +-- ServerLost                   connection lost during a measurement
    |   +-- HostLost                     connection to a measuring host lost
    +-- StoreError              exit 4   the run store
        +-- NoSuchRun
        +-- NoSuchSnapshot
        +-- SchemaTooNew
        +-- StoreFull

A run that was cut short or whose calls all failed, but left a readable report, ends with exit code 5. A
self-test whose ledger is wrong ends with 6, a gate of ``--fail-on`` that failed with 7, and Ctrl-C with 130.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

EXIT_CUT_SHORT = 5
EXIT_OFF = 6
EXIT_GATE = 7
EXIT_INTERRUPTED = 130


class DbdynoError(Exception):
    """Base of all errors that a user may see. ``message`` and ``cure`` are plain sentences."""

    exit_code = 1

    def __init__(self, message: str, cure: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        return self.message if self.cure is None else f"{self.message}\n  {self.cure}"

    def of_variant(self, name: str) -> Self:
        """Puts the name of the variant in front of the message, unless one is there. Returns the error."""
        if not self.message.startswith("variant "):
            self.message = f"variant {name}: {self.message}"
            self.args = (self.message,)
        return self


class UsageError(DbdynoError):
    exit_code = 2


class RecipeError(UsageError):
    pass


class ScriptError(UsageError):
    pass


class NotAvailable(UsageError):
    pass


class NotInstalled(NotAvailable):
    pass


class MachineBusy(UsageError):
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


class HostLost(TargetError):
    """The connection to another host failed. ``host`` is its name, ``why`` the symptom, ``cure`` the
    remedy."""

    def __init__(self, host: str, why: str, cure: str = "look whether it is up, and the way to it") -> None:
        super().__init__(f"host {host} is lost: {why}", cure)
        self.host, self.why = host, why


class StoreError(DbdynoError):
    exit_code = 4


class NoSuchRun(StoreError):
    pass


class NoSuchSnapshot(StoreError):
    pass


class SchemaTooNew(StoreError):
    pass


class StoreFull(StoreError):
    pass


# Suggestions of the nearest name, for errors that offer a remedy.

_MOST_NAMES = 40  # nobody reads a longer list
_NEAR = 0.65  # by difflib: one letter of three differs ("lia", "lio"), or two of three are swapped


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Returns the name most similar to ``word``; None if none is similar. The hyphens of an option do not
    count."""
    by_word = {name.lstrip("-"): name for name in names}
    matches = difflib.get_close_matches(word.lstrip("-"), by_word, n=1, cutoff=_NEAR)
    return by_word[matches[0]] if matches else None


def did_you_mean(word: str, names: Iterable[str], listed: str = "") -> str:
    """Returns a sentence with the nearest name. If none is near, returns all names, or ``listed``, the place
    that lists them, if there are many."""
    known = sorted(names)
    near = nearest(word, known)
    if near is not None:
        return f"did you mean {near!r}?"
    if len(known) > _MOST_NAMES:
        return listed or f"none of the {len(known)} known names is similar"
    return f"known: {', '.join(known)}" if known else "there are none"


_SIMILAR = 0.75  # of a whole name or of its words, by difflib: two letters of eight differ
_MOST_OFFERED = 3


def near_names(word: str, names: Iterable[str]) -> str:
    """Returns a sentence with the names, three at most, that are spelled like ``word`` or have its words;
    "" if there is none. Case, hyphens and underscores do not count, and names that differ only in them are
    one."""
    wanted = _plain(word)
    scores: dict[str, tuple[float, float, str]] = {}
    for name in names:
        plain = _plain(name)
        whole = difflib.SequenceMatcher(None, wanted, plain).ratio()
        score = max(whole, 0.95 * _shared_words(wanted.split(), plain.split()))
        if score >= _SIMILAR and plain not in scores:
            scores[plain] = (score, whole, name)
    best = [name for _, _, name in sorted(scores.values(), key=lambda s: (-s[0], -s[1], s[2]))]
    quoted = [repr(name) for name in best[:_MOST_OFFERED]]
    return (
        f"did you mean {' or '.join(filter(None, [', '.join(quoted[:-1]), *quoted[-1:]]))}?" if quoted else ""
    )


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _shared_words(wanted: list[str], words: list[str]) -> float:
    """Returns how similar the words of ``wanted`` are to the nearest of ``words``, on average: 0 to 1."""
    best = (max((difflib.SequenceMatcher(None, w, x).ratio() for x in words), default=0.0) for w in wanted)
    return sum(best) / len(wanted) if wanted else 0.0


# Requests to stop, made by a signal and obeyed by code that waits for a server. Signals belong to the
# process, and so does this counter.


class Interrupted(Exception):
    """The user requested a stop. ``kept`` is the id of a run whose measurements are all saved."""

    def __init__(self, *_: object, kept: str | None = None) -> None:
        super().__init__("stopped by the user")
        self.kept = kept


class Abandoned(ServerLost, Interrupted):
    """The user requested a stop before the server answered. The connection cannot be used any more."""

    def __init__(self) -> None:
        ServerLost.__init__(self, "stopped by the user")


@contextmanager
def naming(variant: str | None) -> Iterator[None]:
    """Names the variant in errors of its server; not if it is None."""
    try:
        yield
    except Abandoned:
        raise
    except DbdynoError as e:
        if variant is not None:
            e.of_variant(variant)
        raise


class _Requests:
    count = 0


_requests = _Requests()


def request() -> None:
    """Counts one more signal."""
    _requests.count += 1


def reset() -> None:
    """Starts an operation for which no stop has been requested."""
    _requests.count = 0


def requests() -> int:
    """Returns the number of signals so far. An operation that starts after a signal is one that restores the
    server or reads a last time."""
    return _requests.count
