"""Keeps what was planned of each suite, and what failed: its runs do not say that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dbdyno.store import files
from dbdyno.store.files import read_limited
from dbdyno.store.listing import list_run
from dbdyno.store.overview import find_group

_FILE, _MOST = ".suites.json", 200


def suite_records(root: Path) -> dict[str, Any]:
    """Returns the records of suites by their ids; empty if their file cannot be read."""
    try:
        records = files.from_json(read_limited(root / _FILE))
    except (OSError, ValueError):
        return {}
    return records if isinstance(records, dict) else {}


def remember_suite(root: Path, id: str, record: Mapping[str, Any]) -> None:
    """Adds or replaces the record of a suite; only the newest are kept."""
    records = suite_records(root) | {id: record}
    kept = {name: records[name] for name in sorted(records)[-_MOST:]}
    files.write_atomic(root / _FILE, json.dumps(kept, indent=1).encode())


def suite_by_id(root: Path, wanted: str) -> str | None:
    """Returns the id of the suite with this id, or a unique beginning or end of it."""
    known = suite_records(root)
    matching = [s for s in known if wanted and (s.startswith(wanted) or s.endswith(f"-{wanted}"))]
    return matching[0] if len(matching) == 1 else None


def find_suite(root: Path, wanted: str) -> str | None:
    """Returns the id of a suite that was run; None if ``wanted`` names something else.

    ``wanted`` is as for :func:`suite_by_id`, or a name or ``last`` whose run belongs to a suite."""
    if (by_id := suite_by_id(root, wanted)) is not None:
        return by_id
    documents = [list_run(path).document for path in find_group(root, wanted)[:1]]
    return next((str(d["group"]) for d in documents if d["benchmark"]), None)
