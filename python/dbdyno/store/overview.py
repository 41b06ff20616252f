"""Outlines runs for lists, and finds a run by an id, a name, or ``last``.

An outline is read from the JSON files of a run once, and cached in a file beside the runs until these
change.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dbdyno.model.errors import NoSuchRun, StoreError
from dbdyno.model.text.visible import shortened
from dbdyno.model.units import format_rate
from dbdyno.store import files
from dbdyno.store.listing import Listed, has_run, list_run, listed_of, run_ids

INDEX = ".index.json"
_VERSION = 4
_STAMPED = ("run.json", "plan.json", "environment.json", "derived/manifest.json")
_BACK = re.compile(r"(.+)~(\d{1,6})")
_LAST = "last"
_MOST_SHOWN = 200  # characters of a name in a message
_NEAR = 0.6
"""Likeness, by difflib, from which on a name or an id is proposed."""


@dataclass(frozen=True)
class Outline:
    """The outline of a run; fields are empty if they cannot be read."""

    workload: str = ""
    sessions: Sequence[int] = ()
    peak: str = ""
    """The highest of its workloads and variants: ``26.4 k LIO/s``; ``500/s kept`` for paced load."""
    peak_calls_per_s: float | None = None
    peak_sessions: int | None = None
    target: str = ""
    """``embedded`` or ``db1:5432``."""
    server: str = ""
    """Engine and version."""
    variants: int = 0
    """How many variants are planned, to be compared with each other; phases are not."""


@dataclass(frozen=True)
class Overview:
    run: Listed
    outline: Outline

    def record(self) -> dict[str, Any]:
        """Returns JSON-ready data: the keys of ``run.json``, then those of the outline."""
        return {**self.run.document, **asdict(self.outline)}


def overviews(root: Path) -> list[Overview]:
    """Returns all runs, oldest first; an unreadable one has the status ``broken`` and the reason."""
    kept = _kept(root)
    listed, index = [], {}
    for run_id in run_ids(root):
        path = root / run_id
        stamp = _stamp(path)
        old = kept.get(run_id)
        cached = _from_record(path, old) if old is not None and old.get("stamp") == stamp else None
        overview = overview_of(path) if cached is None else cached
        listed.append(overview)
        if overview.run.status not in ("running", "broken"):
            index[run_id] = old if cached is not None else _record(overview, stamp)
    if index != kept and root.is_dir():
        content = json.dumps({"version": _VERSION, "runs": index}, allow_nan=False).encode()
        with contextlib.suppress(StoreError):  # a read-only store
            files.write_atomic(root / INDEX, content)
    return listed


def overview_of(path: Path) -> Overview:
    """Returns the run at ``path``; an unreadable one has the status ``broken`` and the reason."""
    return Overview(list_run(path), outline(path))


def outline(path: Path) -> Outline:
    """Returns the outline from the JSON files of a run; a missing or damaged one leaves its fields empty."""
    plan, environment, claims = (
        _part(path / name) for name in ("plan.json", "environment.json", "derived/findings.json")
    )
    fields: dict[str, Any] = {}
    parts = ((_planned, (plan,)), (_server, (environment, claims)), (_peak, (claims,)))
    for make, documents in parts:
        with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):
            fields |= make(*documents)
    return Outline(**fields)


def _planned(plan: Any) -> dict[str, Any]:
    experiment = plan["experiment"]
    mix = [{"file": experiment.get("script")}, *experiment.get("scripts", ())]
    script = " ".join(
        Path(s.get("builtin") or s["file"]).name for s in mix if s.get("builtin") or s.get("file")
    )
    observed = "observation" if experiment.get("observation") else ""
    workload = experiment.get("workload") or script or observed
    sessions = sorted({int(cell["sessions"]) for cell in plan["cells"]})
    named = {v["name"] for v in plan["variants"]} or {cell["variant"] for cell in plan["cells"]}
    variants = 0 if experiment.get("phases") else len(named)
    return {"workload": str(workload), "sessions": sessions, "variants": variants}


def _server(environment: Any, claims: Any) -> dict[str, Any]:
    server = environment["server"]
    where = str(server["where"]).partition(", database ")[0].removeprefix("socket ").replace(", port ", ":")
    target = "embedded" if server["embedded"] else where
    cut_short = [c["said"]["unmeasured"] for c in claims or () if c["id"] == "variants-unmeasured"]
    servers = environment.get("servers") or {}
    named = [one for variant, one in servers.items() if variant not in {*chain(*cut_short)}]
    versions = dict.fromkeys(str(one["version"]) for one in (*named, *([] if named else [server])))
    return {"target": target, "server": f"{server['engine']} {', '.join(versions)}"}


def _peak(claims: Any) -> dict[str, Any]:
    peaks = [c for c in claims or () if c["id"] == "peak" and c.get("value")]
    if not peaks:
        return _delivered(claims)
    best = max(peaks, key=lambda c: float(c["value"]["value"]))
    values = best.get("said") or {}
    calls = float(values.get("calls", best["value"]["value"]))  # older runs: the claim's value
    rate, at = str(values.get("rate") or f"{format_rate(calls)} calls/s"), values.get("sessions")
    sessions = int(at) if at is not None else None
    at_least = ">= " if "disturbed" in best.get("case", "") else ""
    return {
        "peak": at_least + re.split(r", | \(", rate)[0],
        "peak_calls_per_s": calls,
        "peak_sessions": sessions,
    }


def _delivered(claims: Any) -> dict[str, Any]:
    """Returns the highest delivered rate of paced load."""
    capacities = [c for c in claims or () if c["id"] == "paced-capacity" and c.get("value")]
    if not capacities:
        return {}
    best = max(capacities, key=lambda c: float(c["value"]["value"]))
    rate, at = float(best["value"]["value"]), (best.get("said") or {}).get("sessions")
    sessions = int(at) if at is not None else None
    return {"peak": f"{format_rate(rate)}/s kept", "peak_calls_per_s": rate, "peak_sessions": sessions}


def _part(path: Path) -> Any:
    try:
        return files.from_json(files.read(path))
    except (StoreError, ValueError):
        return None


# The index: an entry is valid as long as size, time and inode of the run's files are the same.


def _stamp(path: Path) -> list[list[int] | None]:
    return [_stat(f"{path}/{name}") for name in _STAMPED]


def _stat(path: str) -> list[int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  faster than pathlib, for thousands of files
    except (OSError, ValueError):
        return None
    return [status.st_mtime_ns, status.st_size, status.st_ino]


def _kept(root: Path) -> dict[str, Any]:
    index = _part_plain(root / INDEX)
    usable = isinstance(index, dict) and index.get("version") == _VERSION
    runs = index.get("runs") if usable else None
    return runs if isinstance(runs, dict) else {}


def _part_plain(path: Path) -> Any:
    try:
        return json.loads(files.read(path)) if path.is_file() else None
    except (StoreError, ValueError, OSError, RecursionError):
        return None


def _record(overview: Overview, stamp: list[list[int] | None]) -> dict[str, Any]:
    return {"stamp": stamp, "run": dict(overview.run.document), "outline": asdict(overview.outline)}


def _from_record(path: Path, record: Any) -> Overview | None:
    try:
        outline = Outline(**record["outline"])
        texts = (outline.workload, outline.peak, outline.target, outline.server)
        numbers = (*outline.sessions, outline.variants)
        if not all(isinstance(t, str) for t in texts) or not all(type(n) is int for n in numbers):
            return None
        peak = outline.peak_calls_per_s
        if peak is not None and not (isinstance(peak, int | float) and math.isfinite(peak)):
            return None
        return Overview(listed_of(path, record["run"]), outline)
    except (StoreError, TypeError, KeyError, AttributeError):
        return None


def directory_stamps(root: Path) -> dict[str, tuple[int, int]]:
    """Returns, for each directory of the store, a pair that differs as soon as a file in it was replaced: its
    time of change in nanoseconds since 1970, and its inode.

    All files of a run are replaced, so one system call a run says whether it is still as it was read.
    """
    stamps = {}
    with files.guard(root), contextlib.suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # removed meanwhile, or a link to itself
                if not entry.name.startswith(".") and entry.is_dir():
                    status = entry.stat()
                    stamps[entry.name] = status.st_mtime_ns, status.st_ino
    return stamps


def find_run(root: Path, wanted: str) -> Path:
    """Returns the directory of a run by its id, a name, a unique beginning or end of an id, or ``last``.

    A name stands for its newest run. ``~1`` after ``last`` or a name is the run before, and so on. Raises
    :class:`NoSuchRun`.
    """
    if has_run(root, wanted):
        return root / wanted
    ids = run_ids(root)
    directory = bool(wanted) and os.path.isdir(wanted)  # noqa: PTH112 (no error for a name that is too long)
    if not ids and not directory:
        raise NoSuchRun(f"no runs in {root}", "make one: dbdyno run lio")
    name, back = _parsed(wanted)
    shown = shortened(wanted, _MOST_SHOWN)
    names = _names(root) if name != _LAST else {}
    runs = ids if name == _LAST else names.get(name, [])
    if runs:
        if back < len(runs):
            return root / runs[-1 - back]
        what = "the store has" if name == _LAST else f"{name!r} names"
        plural = "run" if len(runs) == 1 else "runs"
        raise NoSuchRun(f"no run {shown!r}: {what} {len(runs)} {plural}", "list them: dbdyno runs")
    matching = [i for i in ids if wanted and (i.startswith(wanted) or i.endswith(f"-{wanted}"))]
    if len(matching) == 1:
        return root / matching[0]
    if matching:
        raise NoSuchRun(
            f"{len(matching)} runs begin with {shown!r}", f"give more of the id: {', '.join(matching[-5:])}"
        )
    if directory:
        raise NoSuchRun(
            f"{wanted} is a directory, and no run in {root}",
            "name a file, a run (dbdyno runs), or --store DIR",
        )
    raise NoSuchRun(f"no run {shown!r} in {root}", _nearest(wanted, ids, list(names)))


def find_group(root: Path, wanted: str) -> Sequence[Path]:
    """Returns the directories of runs that were observed together, oldest first; empty if it is no group.

    ``wanted`` is the id of the group, a unique beginning or end of it; or a name or ``last`` whose run
    belongs to a group.
    """
    try:
        path = find_run(root, wanted)
    except NoSuchRun:
        groups = {_group(one.run) for one in overviews(root)} - {""}
        matching = [g for g in groups if wanted and (g.startswith(wanted) or g.endswith(f"-{wanted}"))]
        group = matching[0] if len(matching) == 1 else ""
    else:
        by_id = path.name.startswith(wanted) or path.name.endswith(f"-{wanted}")
        group = "" if by_id else _group(list_run(path))
    return [one.run.path for one in overviews(root) if _group(one.run) == group] if group else []


def _group(run: Listed) -> str:
    return str(run.document["group"])


def _parsed(wanted: str) -> tuple[str, int]:
    match = _BACK.fullmatch(wanted)
    return (match[1], int(match[2])) if match else (wanted, 0)


def _names(root: Path) -> Mapping[str, list[str]]:
    """Returns the ids of runs by name, oldest first."""
    ids: dict[str, list[str]] = {}
    for overview in overviews(root):
        if name := overview.run.document["name"]:
            ids.setdefault(name, []).append(overview.run.id)
    return ids


def _nearest(wanted: str, ids: Sequence[str], names: Sequence[str]) -> str:
    if near := difflib.get_close_matches(wanted, [*names, *ids], n=3, cutoff=_NEAR):
        return f"did you mean {' or '.join(near)}? all runs: dbdyno runs"
    latest = f"the latest is {ids[-1]}; " if ids else ""
    return f"{latest}dbdyno runs lists them, --store DIR names another directory of runs"
