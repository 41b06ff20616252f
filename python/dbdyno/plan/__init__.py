"""Recipe -> resolved plan -> cells. Pure: texts and numbers in, values out; no file, no engine, no clock."""

from dbdyno.plan.ladder import default_ladder, parse_ladder
from dbdyno.plan.observing import OBSERVED, duration_of, observed_cell, resolve_observation, window_of
from dbdyno.plan.params import parse_params
from dbdyno.plan.planner import cell_expected_ns, resolve, switch_ns, until_share
from dbdyno.plan.recipe import parse_recipe, refusal
from dbdyno.plan.schema import SCHEMA_FILE, recipe_schema
from dbdyno.plan.variants import texts

__all__ = [
    "OBSERVED",
    "SCHEMA_FILE",
    "cell_expected_ns",
    "default_ladder",
    "duration_of",
    "observed_cell",
    "parse_ladder",
    "parse_params",
    "parse_recipe",
    "recipe_schema",
    "refusal",
    "resolve",
    "resolve_observation",
    "switch_ns",
    "texts",
    "until_share",
    "window_of",
]
