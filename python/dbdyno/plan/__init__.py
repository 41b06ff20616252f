"""Turns a recipe into a resolved plan with cells. Its functions are pure: they use no file, no engine and no
clock."""

from typing import TYPE_CHECKING

from dbdyno.lazy import lazy

if TYPE_CHECKING:
    from dbdyno.plan.adaptive import capped, grown, next_rung, repeated, so_far
    from dbdyno.plan.adaptive_search import QUANTILES, Done, Findings, Next, Seen
    from dbdyno.plan.job_rules import all_jobs
    from dbdyno.plan.job_words import parse_bytes, values_of
    from dbdyno.plan.jobs import ONCE_NS, Commands, commands_of, names, spread, threads_axis
    from dbdyno.plan.ladder import default_ladder, parse_ladder
    from dbdyno.plan.observing import (
        OBSERVED,
        duration_of,
        observed_cell,
        resolve_observation,
        sampled_for,
        window_of,
    )
    from dbdyno.plan.phases import whole
    from dbdyno.plan.planner import (
        begins,
        cell_expected_ns,
        deriving_ns,
        resolve,
        switch_ns,
        until_share,
        without,
    )
    from dbdyno.plan.rates import fewer_sessions
    from dbdyno.plan.recipe import SCHEMA_FILE, parse_params, parse_recipe, recipe_schema, refusal, typed
    from dbdyno.plan.recipe_lines import Fault, key_lines, line_of, read_toml, recipe_error, syntax_error
    from dbdyno.plan.resets import supposed, with_resets
    from dbdyno.plan.variants import texts


lazy(
    __name__,
    {
        "ONCE_NS": "dbdyno.plan.jobs",
        "parse_bytes": "dbdyno.plan.job_words",
        "Commands": "dbdyno.plan.jobs",
        "all_jobs": "dbdyno.plan.job_rules",
        "commands_of": "dbdyno.plan.jobs",
        "names": "dbdyno.plan.jobs",
        "spread": "dbdyno.plan.jobs",
        "threads_axis": "dbdyno.plan.jobs",
        "values_of": "dbdyno.plan.job_words",
        "Done": "dbdyno.plan.adaptive_search",
        "Findings": "dbdyno.plan.adaptive_search",
        "Next": "dbdyno.plan.adaptive_search",
        "OBSERVED": "dbdyno.plan.observing",
        "SCHEMA_FILE": "dbdyno.plan.recipe",
        "QUANTILES": "dbdyno.plan.adaptive_search",
        "Seen": "dbdyno.plan.adaptive_search",
        "begins": "dbdyno.plan.planner",
        "capped": "dbdyno.plan.adaptive",
        "cell_expected_ns": "dbdyno.plan.planner",
        "default_ladder": "dbdyno.plan.ladder",
        "deriving_ns": "dbdyno.plan.planner",
        "duration_of": "dbdyno.plan.observing",
        "fewer_sessions": "dbdyno.plan.rates",
        "grown": "dbdyno.plan.adaptive",
        "next_rung": "dbdyno.plan.adaptive",
        "observed_cell": "dbdyno.plan.observing",
        "parse_ladder": "dbdyno.plan.ladder",
        "parse_params": "dbdyno.plan.recipe",
        "Fault": "dbdyno.plan.recipe_lines",
        "key_lines": "dbdyno.plan.recipe_lines",
        "line_of": "dbdyno.plan.recipe_lines",
        "read_toml": "dbdyno.plan.recipe_lines",
        "recipe_error": "dbdyno.plan.recipe_lines",
        "syntax_error": "dbdyno.plan.recipe_lines",
        "parse_recipe": "dbdyno.plan.recipe",
        "recipe_schema": "dbdyno.plan.recipe",
        "refusal": "dbdyno.plan.recipe",
        "repeated": "dbdyno.plan.adaptive",
        "resolve": "dbdyno.plan.planner",
        "resolve_observation": "dbdyno.plan.observing",
        "sampled_for": "dbdyno.plan.observing",
        "so_far": "dbdyno.plan.adaptive",
        "switch_ns": "dbdyno.plan.planner",
        "texts": "dbdyno.plan.variants",
        "typed": "dbdyno.plan.recipe",
        "until_share": "dbdyno.plan.planner",
        "whole": "dbdyno.plan.phases",
        "window_of": "dbdyno.plan.observing",
        "supposed": "dbdyno.plan.resets",
        "with_resets": "dbdyno.plan.resets",
        "without": "dbdyno.plan.planner",
    },
)
