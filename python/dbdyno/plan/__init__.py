"""Recipe -> resolved plan -> cells. Pure: texts and numbers in, values out; no file, no engine, no clock."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.plan.adaptive import capped, grown, next_rung, repeated, so_far
    from dbdyno.plan.adaptive_findings import Done, Findings, Next, Seen
    from dbdyno.plan.ladder import default_ladder, parse_ladder
    from dbdyno.plan.observing import OBSERVED, duration_of, observed_cell, resolve_observation, window_of
    from dbdyno.plan.params import parse_params
    from dbdyno.plan.planner import cell_expected_ns, deriving_ns, resolve, switch_ns, until_share
    from dbdyno.plan.recipe import parse_recipe, refusal
    from dbdyno.plan.schema import SCHEMA_FILE, recipe_schema
    from dbdyno.plan.variants import texts

__all__ = [
    "OBSERVED",
    "SCHEMA_FILE",
    "Done",
    "Findings",
    "Next",
    "Seen",
    "capped",
    "cell_expected_ns",
    "default_ladder",
    "deriving_ns",
    "duration_of",
    "grown",
    "next_rung",
    "observed_cell",
    "parse_ladder",
    "parse_params",
    "parse_recipe",
    "recipe_schema",
    "refusal",
    "repeated",
    "resolve",
    "resolve_observation",
    "so_far",
    "switch_ns",
    "texts",
    "until_share",
    "window_of",
]

lazy(__name__)
