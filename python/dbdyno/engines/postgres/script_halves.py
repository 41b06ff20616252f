"""The PostgreSQL part of a workload made of scripts: ``workloads/NAME/half.toml`` with ``[[scripts]]``."""

from __future__ import annotations

import tomllib
from collections import ChainMap
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dbdyno.engines.postgres import suite_files
from dbdyno.engines.postgres.suite_files import MODE
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import PlannedScript

FOLDER = resources.files("dbdyno.engines.postgres") / "workloads"


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HalfScript(_Data):
    """A script of the mix. ``modes`` are the values of the parameter ``mode`` with which it is used; empty
    means all. ``session`` are settings of sessions that run it."""

    file: str
    weight: int = Field(default=1, ge=0)
    modes: tuple[str, ...] = ()
    session: dict[str, str] = Field(default_factory=dict)


class ScriptHalf(_Data):
    """Contents of ``half.toml``. Unknown keys are errors.

    ``load`` is the file that describes its tables (docs/loader.md). ``checks`` are files of one query each,
    with columns name, expected, actual value. ``counts`` is a file with a query of commits by script that
    changes rows: (script, count).
    """

    version: int
    scripts: tuple[HalfScript, ...]
    checks: tuple[str, ...] = ()
    counts: str | None = None
    load: str | None = None
    session: dict[str, str] = Field(default_factory=dict)  # settings of its sessions


@cache
def script_half(name: str) -> ScriptHalf | None:
    """Returns the PostgreSQL part of a workload. None if it is not made of scripts, or unknown."""
    if of_suite := suite_files.of_workload(name):
        scripts = (HalfScript(file=b.file, modes=(b.name,), session=b.session) for b in of_suite)
        return ScriptHalf(version=1, scripts=tuple(scripts), load="load.toml")
    file = FOLDER / name / "half.toml"
    data = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return ScriptHalf.model_validate(data) if "scripts" in data else None


def _chosen(name: str, params: Mapping[str, Any]) -> list[HalfScript]:
    """Returns the scripts for these parameters. Raises :class:`UsageError` if there are none."""
    half, mode = script_half(name), params.get(MODE)
    chosen = [s for s in half.scripts if not s.modes or mode in s.modes] if half else []
    if not chosen:
        raise UsageError(f"workload {name} has no script with {MODE}={mode}", f"dbdyno workload list: {name}")
    return chosen


def session_of(name: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of sessions of a workload with these parameters."""
    half = script_half(name)
    common = {} if half is None else half.session
    return dict(ChainMap(*(s.session for s in _chosen(name, params)), common))


def scripts_of(name: str, params: Mapping[str, Any]) -> tuple[PlannedScript, ...]:
    """Returns the mix of a workload with these parameters. Raises :class:`UsageError` if no script is
    selected."""
    return tuple(
        PlannedScript(
            name=s.file.removesuffix(".sql"), text=text_of(name, s.file), weight=s.weight, builtin=True
        )
        for s in _chosen(name, params)
    )


def text_of(name: str, file: str) -> str:
    """Returns the text of a file in the workload's folder."""
    return (FOLDER / name / file).read_text(encoding="utf-8")
