"""Reads a recipe, a TOML text that describes an experiment, and checks and completes the parameters of its
workload.

A recipe has no conditions, arithmetic or templates. Unknown keys are errors.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dbdyno.model.errors import UsageError, did_you_mean
from dbdyno.model.plan.plan import Experiment, Parameter, Strict, Workload
from dbdyno.model.text.visible import shortened
from dbdyno.plan import phases
from dbdyno.plan.recipe_lines import (
    MOST_FAULTS,
    MOST_TOML_BYTES,
    EscapedPathError,
    Fault,
    Path,
    key_lines,
    line_of,
    read_toml,
    recipe_error,
    syntax_error,
)


def parse_recipe(
    text: str, name: str, file: str | None = None, check_claim: Callable[[str], object] = str
) -> Experiment:
    """Returns the experiment that ``text`` describes. ``name`` is its name if the text has none.

    ``check_claim`` raises :class:`UsageError` for an id that no claim has. Raises :class:`RecipeError` with
    file and line of each error, and the nearest key for an unknown one.
    """
    where = file or f"recipe {name}"
    try:
        data = read_toml(text)
    except ValueError as e:
        line, words = syntax_error(text, e)
        raise recipe_error(where, [Fault(line, _toml_words(words), _toml_cure(words, text, line, e))]) from e
    lines = key_lines(text)
    _check_variants(where, data.get("variants", {}), lines)
    try:
        experiment = Experiment.model_validate({"name": name, **data})
    except ValidationError as e:
        faults = [Fault(line_of(lines, loc), *words) for loc, words in refusals(e)]
        raise recipe_error(where, faults) from e
    if wrong := list(phases.faults(experiment.phases)):
        at = [("phases", str(f.number), *([f.key] if f.key else [])) for f in wrong]
        faults = [Fault(line_of(lines, a), f.message, f.cure) for a, f in zip(at, wrong, strict=True)]
        raise recipe_error(where, faults)
    for claim in experiment.answer:
        try:
            check_claim(claim)
        except UsageError as e:
            fault = Fault(line_of(lines, ("answer",)), f"answer: {e.message}", e.cure)
            raise recipe_error(where, [fault]) from e
    return experiment


def refusal(error: ValidationError) -> tuple[str, str]:
    """Returns the first error of an experiment with its remedy."""
    return refusals(error)[0][1]


def refusals(error: ValidationError) -> list[tuple[tuple[int | str, ...], tuple[str, str]]]:
    """Returns (place, (error, remedy)) for each error of an experiment. If pydantic tried several types for
    a value, only the first of its errors is kept."""
    some = error.errors()[: 2 * MOST_FAULTS]  # each looks for the nearest key
    return list({_known_place(e["loc"]): _refusal(e) for e in reversed(some)}.items())[::-1]


def _known_place(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Returns the place without the type that pydantic tried: ``params.blocks.int`` -> ``params.blocks``."""
    maps = [n for n, part in enumerate(loc) if part in ("params", "settings")]
    return loc[: maps[0] + 2] if maps else loc


def _refusal(e: ErrorDetails) -> tuple[str, str]:
    where = ".".join(str(p) for p in _known_place(e["loc"]))
    if e["type"] == "extra_forbidden":
        known = _fields_at(Experiment, e["loc"][:-1])
        return f"unknown key {where}", did_you_mean(str(e["loc"][-1]), known)
    if e["type"] == "float_parsing":
        cure = "a number of CPUs, such as 0.5" if e["loc"][-1:] == ("quota",) else "a number, such as 0.5"
        return f"{where}: {_short(e['input'])} is not a number", cure
    words = e["msg"][:1].lower() + e["msg"][1:]
    return f"{where}: {words.replace('input should be', 'must be')}", f"it is {_short(e['input'])}"


def _short(value: Any) -> str:
    """Returns the value as it is written, shortened for a message."""
    text = f"{len(value):,} entries" if isinstance(value, list | dict | tuple) else repr(value)
    return shortened(text, 200)


def _fields_at(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Returns the keys of the table at ``path`` below ``model``."""
    for step in path:
        field = model.model_fields.get(str(step))
        inner = None if field is None else _model_in(field.annotation)
        model = inner or model  # the name of a variant: its table's model is known already
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Returns the model in ``Model``, ``Model | None`` or ``dict[str, Model]``."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _toml_words(words: str) -> str:
    """Returns tomllib's ``Cannot declare ('variants', 'a') twice`` in terms of recipes, and any other
    message unchanged."""
    twice = re.search(r"Cannot declare \('variants', '([^']+)'\) twice(.*)", words)
    return f"two variants of the same name: {twice[1]}{twice[2]}" if twice else words


def _toml_cure(words: str, text: str, line: int, error: ValueError) -> str:
    if isinstance(error, EscapedPathError):
        return error.cure
    if path := re.search(r'"([^"]*\\[^"]*)"', "".join(text.splitlines()[line - 1 : line])):
        return f"in double quotes a backslash begins an escape: write single quotes, '{path[1]}'"
    if words.startswith("it "):
        return f"a recipe is at most {MOST_TOML_BYTES >> 20} MiB, and needs four levels"
    if "twice" in words or "overwrite" in words:
        return "each name may be given once: rename one of them"
    return "the format is TOML: key = value, texts in quotes"


def _check_variants(where: str, variants: Any, lines: Mapping[Path, int]) -> None:
    wrong: list[Path] = [] if isinstance(variants, dict) else [("variants",)]
    if isinstance(variants, dict):
        wrong = [("variants", name) for name, v in variants.items() if not isinstance(v, dict)]
    if wrong:
        cure = "write [variants.NAME] and its keys below"
        raise recipe_error(where, [Fault(line_of(lines, w), "variants must be tables", cure) for w in wrong])


# -- JSON Schema of recipes (draft 2020-12), for editors that check and complete TOML by one --

SCHEMA_FILE = "recipe.schema.json"


def recipe_schema() -> dict[str, Any]:
    """Returns the JSON Schema of recipes. It is derived from the model that reads recipes, so both refuse
    the same texts."""
    schema = Experiment.model_json_schema()
    for name, of in {"Experiment": schema, **schema["$defs"]}.items():
        for field, doc in _field_docs(_MODELS[name]).items():
            field = _MODELS[name].model_fields[field].alias or field
            described = of["properties"][field] | {"description": doc}
            of["properties"][field] = dict(sorted(described.items()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "A recipe of dbdyno",
        "description": "An experiment: workload, ladder, variants. Units in texts: 10s, 300ms, 2%.",
    }


_STRICT: list[type[BaseModel]] = [*Strict.__subclasses__(), Experiment]
_MODELS = {model.__name__: model for model in _STRICT}


def _field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Returns the docstring below each field. pydantic's ``use_attribute_docstrings`` does the same, but at
    each start."""
    (class_node,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(class_node, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, below in pairwise(class_node.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


Value = str | int | float | bool


def parse_params(
    texts: Iterable[str], option: str = "--param", example: str = "tables=own"
) -> dict[str, Value]:
    """Returns the parameters of ``name=value`` texts: ``["tables=own"]`` -> ``{"tables": "own"}``. Raises
    :class:`UsageError`."""
    params: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                f"{option} {text}: not of the form name=value", f"for example {option} {example}"
            )
        params[name.strip()] = value.strip()
    return params


def typed(workload: Workload, given: Mapping[str, Value]) -> dict[str, Value]:
    """Returns all parameters of ``workload``: the given values, checked and converted, and defaults for the
    rest."""
    for name in given:
        if name not in workload.parameters:
            raise UsageError(
                f"workload {workload.name} has no parameter {name!r}", did_you_mean(name, workload.parameters)
            )
    return {n: _typed(n, p, given.get(n, p.default)) for n, p in workload.parameters.items()}


def _typed(name: str, parameter: Parameter, value: Value) -> Value:
    try:
        result = _CONVERT[parameter.type](value)
    except (ValueError, KeyError) as e:
        raise UsageError(f"parameter {name}: {value!r} is not of type {parameter.type}", parameter.doc) from e
    if parameter.choices and result not in parameter.choices:
        raise UsageError(
            f"parameter {name}: {value!r} is none of {', '.join(parameter.choices)}",
            did_you_mean(str(value), parameter.choices),
        )
    if parameter.minimum is not None and isinstance(result, int | float) and result < parameter.minimum:
        raise UsageError(f"parameter {name}: {value} is less than {parameter.minimum:g}", parameter.doc)
    if parameter.maximum is not None and isinstance(result, int | float) and result > parameter.maximum:
        raise UsageError(f"parameter {name}: {value} is more than {parameter.maximum:,.12g}", parameter.doc)
    return result


def _bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    return {
        "true": True,
        "on": True,
        "yes": True,
        "1": True,
        "false": False,
        "off": False,
        "no": False,
        "0": False,
    }[str(value).lower()]


def _int(value: Value) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(value)
    return int(value)


_CONVERT: dict[str, Callable[[Any], Value]] = {"int": _int, "float": float, "choice": str, "bool": _bool}
