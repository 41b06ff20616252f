"""Server settings of the fake engine: the keys of its DSN, over the law that it was opened with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dbdyno.model.errors import UsageError, did_you_mean
from tests.fake_engine.dsn import KEYS, parse_law
from tests.fake_engine.law import Law

NEED_RESTART = ("cpus", "maximum")
RESTART_NS = 1_000_000_000  # virtual


def law_with(dsn: str | None, settings: Mapping[str, str]) -> Law:
    """Returns the law of ``dsn`` with these keys in place of its own. Raises :class:`UsageError`."""
    for name, value in settings.items():
        if name not in KEYS:
            raise UsageError(f"fake server: unknown setting {name!r}", did_you_mean(name, KEYS))
        if "," in value:
            raise UsageError(f"fake server: {name}={value!r} holds a comma", "give each setting by itself")
    changes = ",".join(f"{name}={value}" for name, value in settings.items())
    return parse_law(",".join(filter(None, (dsn or "fake:", changes))))


def needing_restart(before: Mapping[str, str], wanted: Mapping[str, str]) -> Sequence[str]:
    """Returns names of settings that need a restart from ``before`` to ``wanted``. A missing key is as in
    the law."""
    return [name for name in NEED_RESTART if before.get(name) != wanted.get(name)]
