"""JSON Schema of recipes (draft 2020-12), for editors that check and complete TOML by one."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from dbdyno.model.plan import Experiment
from dbdyno.model.variant import Strict

SCHEMA_FILE = "recipe.schema.json"


def recipe_schema() -> dict[str, Any]:
    """From the very model that reads recipes: what it refuses, the schema refuses."""
    schema = Experiment.model_json_schema()
    for name, of in {"Experiment": schema, **schema["$defs"]}.items():
        for field, doc in _field_docs(_MODELS[name]).items():
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
    """Field -> the text below it (as pydantic's ``use_attribute_docstrings``, which each start would pay)."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(made, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in pairwise(made.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found
