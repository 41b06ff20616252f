"""JSON Schema of recipes (draft 2020-12), for editors that check and complete TOML by one."""

from __future__ import annotations

from typing import Any

from dbdyno.model.plan import Experiment

SCHEMA_FILE = "recipe.schema.json"


def recipe_schema() -> dict[str, Any]:
    """From the very model that reads recipes: what it refuses, the schema refuses."""
    schema = Experiment.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "A recipe of dbdyno",
        "description": "An experiment: workload, ladder, variants. Units in texts: 10s, 300ms, 2%.",
    }
