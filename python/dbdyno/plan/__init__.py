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
        check_comparable,
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

lazy(__name__)
