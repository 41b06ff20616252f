"""Finds the scripts that recipes and options name: files, and the engine's own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Mapping
from pathlib import Path

from dbdyno import engines
from dbdyno.model.errors import ScriptError, UsageError, did_you_mean, nearest
from dbdyno.model.plan.plan import Experiment, PlannedScript, ScriptSpec
from dbdyno.store.files import decoded, read_limited

_STDIN = Path("/dev/stdin")


def with_directory(experiment: Experiment, directory: Path) -> Experiment:
    """Returns the experiment with relative paths of its scripts below ``directory``."""

    def under(specs: tuple[ScriptSpec, ...]) -> tuple[ScriptSpec, ...]:
        return tuple(
            s if s.file is None else s.model_copy(update={"file": str(directory / s.file)}) for s in specs
        )

    variants = {
        name: v.model_copy(update={"scripts": under(v.scripts)}) for name, v in experiment.variants.items()
    }
    own = None if experiment.script is None else str(directory / experiment.script)
    changed = {"script": own, "scripts": under(experiment.scripts), "variants": variants}
    return experiment.model_copy(update=changed)


def read(experiment: Experiment) -> Mapping[ScriptSpec, PlannedScript]:
    """Reads every script of the experiment and its variants. Raises :class:`UsageError`."""
    specs = [*experiment.mix, *(s for v in experiment.variants.values() for s in v.scripts)]
    if specs and not experiment.mix:
        raise UsageError("scripts of variants, and none of the experiment", "add [[scripts]] before them")
    for mix in (experiment.mix, *(v.scripts for v in experiment.variants.values())):
        if mix and not any(s.weight for s in mix):
            raise UsageError("no script has a weight above 0", "give one a weight of 1: FILE@1")
    return {spec: _read(spec, experiment.engine) for spec in specs}


def with_protocol(
    experiment: Experiment, scripts: Mapping[ScriptSpec, PlannedScript]
) -> tuple[Experiment, str | None]:
    """Returns the experiment with the simple protocol if scripts need it and the user chose none, and the
    reason."""
    if not scripts or experiment.driver.protocol is not None:
        return experiment, None
    given = [*experiment.variables, *(name for v in experiment.variants.values() for name in v.variables)]
    why = engines.needs_simple(experiment.engine, list(scripts.values()), given)
    if why is None:
        return experiment, None
    driver = experiment.driver.model_copy(update={"protocol": "simple"})
    return experiment.model_copy(update={"driver": driver}), why


_BLANK = re.compile(r"(?:[\s;]|--[^\n]*)*")
_BLOCK = re.compile(r"/\*|\*/")


def _has_statement(text: str) -> bool:
    """Returns whether a script has more than blanks, semicolons and SQL comments, whose blocks nest."""
    at, depth = 0, 0
    for mark in [*_BLOCK.finditer(text), None]:
        if depth == 0:
            blank = _BLANK.match(text, at)
            assert blank is not None  # the pattern matches an empty text, too
            if mark is None or blank.end() < mark.start() or mark[0] == "*/":
                return blank.end() < len(text)
            if blank.end() > mark.start():
                continue  # inside a line that is a comment
        if mark is not None:
            depth, at = depth + (1 if mark[0] == "/*" else -1), mark.end()
    return False


def _read(spec: ScriptSpec, engine: str) -> PlannedScript:
    if spec.file is not None:
        path = _STDIN if spec.file == "-" else Path(spec.file)
        text = read_text(path, "script")
        if not _has_statement(text):
            raise ScriptError(
                f"the script {path.name} has no statement: it is empty, or comments only",
                "write at least one statement",
            )
        return PlannedScript(name=path.name, text=text, weight=spec.weight)
    name = _builtin(spec.builtin or "", engine)
    text = engines.scripts(engine)[name]
    return PlannedScript(name=name, text=text, weight=spec.weight, builtin=True)


def builtin_scripts(engine: str) -> list[str]:
    """Returns the names of the engine's own scripts."""
    return sorted(engines.scripts(engines.checked(engine)))


def builtin_of(name: str, engine: str, workloads: Container[str]) -> str | None:
    """Returns the engine's own script of this name if no workload has the name; else None."""
    return name if name not in workloads and name in engines.scripts(engine) else None


def _builtin(name: str, engine: str) -> str:
    """Returns the full name of an engine's own script. Raises :class:`UsageError`."""
    known = engines.scripts(engine)
    matching = [name] if name in known else [n for n in known if name and n.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(f"several built-in scripts begin with {name!r}", " or ".join(sorted(matching)))
    raise UsageError(f"no built-in script {name!r}", did_you_mean(name, known))


def read_text(path: Path, what: str) -> str:
    """Raises :class:`UsageError`."""
    try:
        return decoded(read_limited(path), str(path))
    except UsageError as e:
        raise UsageError(f"cannot read the {what} {e.message}", e.cure) from e
    except OSError as e:
        cure = _near_file(path) if isinstance(e, FileNotFoundError) else "name a file that can be read"
        raise UsageError(f"cannot read the {what} {path}: {e.strerror}", cure) from e


def _near_file(path: Path) -> str:
    """Returns a file with a similar name in the same directory."""
    with contextlib.suppress(OSError):
        alike = [p.name for p in path.parent.iterdir() if p.suffix == path.suffix and p.name != path.name]
        if (near := nearest(path.name, alike)) is not None:
            return f"did you mean {str(path.with_name(near))!r}?"
    return "check the path"
