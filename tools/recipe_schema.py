"""Writes the JSON Schema of recipes, for editors: python/dbdyno/recipes/recipe.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

from dbdyno.plan import SCHEMA_FILE, recipe_schema

if __name__ == "__main__":
    target = Path(__file__).parents[1] / "python/dbdyno/recipes" / SCHEMA_FILE
    target.write_text(json.dumps(recipe_schema(), indent=1) + "\n", encoding="utf-8")
