"""Workloads and recipes as data: TOML files beside the code, or the user's own."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

from dbdyno.model.errors import RecipeError, UsageError
from dbdyno.model.plan import Experiment
from dbdyno.model.suggest import did_you_mean
from dbdyno.model.workload import Workload
from dbdyno.plan import parse_recipe
from dbdyno.store.reading import read_limited


def workloads() -> dict[str, Workload]:
    """All workloads that come with dbdyno, by name."""
    found = (Workload.model_validate(tomllib.loads(text)) for _, text in _toml("workloads"))
    return {w.name: w for w in found}


def workload(name: str) -> Workload:
    """Raises :class:`UsageError` with the nearest name."""
    known = workloads()
    if name not in known and name in recipes():
        raise UsageError(f"{name!r} is a recipe, not a workload", f"dbdyno run --recipe {name}")
    if name not in known:
        raise UsageError(
            f"no workload {name!r}", f"{did_you_mean(name, known)} `dbdyno workloads` lists them"
        )
    return known[name]


def recipes() -> dict[str, Experiment]:
    """All recipes that come with dbdyno, by name."""
    return {name: parse_recipe(text, name) for name, text in _toml("recipes")}


def find_recipe(name_or_path: str) -> tuple[Experiment, Path]:
    """A recipe by its name or its file, and the directory that its paths are relative to."""
    path = Path(name_or_path)
    if path.suffix == ".toml" or "/" in name_or_path:
        if not path.exists() and path.stem in dict(_toml("recipes")):
            raise UsageError(
                f"there is no file {path}", f"that recipe comes with dbdyno: dbdyno run --recipe {path.stem}"
            )
        return parse_recipe(_read(path, "recipe"), path.stem), path.parent
    known = recipes()
    if name_or_path not in known:
        raise RecipeError(
            f"no recipe {name_or_path!r}", f"{did_you_mean(name_or_path, known)} a file needs .toml"
        )
    return known[name_or_path], Path.cwd()


def recipe_text(name: str) -> str:
    """A recipe that comes with dbdyno, as it is written."""
    known = dict(_toml("recipes"))
    if name not in known:
        raise RecipeError(f"no recipe {name!r}", did_you_mean(name, known))
    return known[name]


def read_script(path: Path) -> str:
    """The text of an SQL file; raises :class:`UsageError`."""
    return _read(path, "script")


def _read(path: Path, what: str) -> str:
    try:
        return read_limited(path).decode()
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the {what} {path}: {reason}", "check the path") from e


def _toml(folder: str) -> list[tuple[str, str]]:
    files = sorted(resources.files("dbdyno").joinpath(folder).iterdir(), key=lambda f: f.name)
    return [
        (f.name.removesuffix(".toml"), f.read_text(encoding="utf-8"))
        for f in files
        if f.name.endswith(".toml")
    ]
