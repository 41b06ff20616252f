"""What could be run: workloads, recipes, plans."""

from __future__ import annotations

import click

from dbdyno import conduct, observe
from dbdyno.cli import screen
from dbdyno.cli.commands import Commands
from dbdyno.cli.options import json_option, print_json


@click.command()
@json_option
def workloads(as_json: bool) -> None:
    """List the workloads with their parameters.

    \b
    Examples:
      dbdyno workloads
      dbdyno workloads --json
    """
    known = conduct.workloads()
    if as_json:
        print_json({name: w.model_dump(mode="json") for name, w in known.items()})
    else:
        screen.workloads_table(known)


@click.group(cls=Commands)
def plan() -> None:
    """Show recipes and resolved plans."""


@plan.command("show")
@click.argument("recipe")
@json_option
def plan_show(recipe: str, as_json: bool) -> None:
    """Show the resolved plan of a recipe: all defaults, every measurement.

    RECIPE is a recipe's name, a TOML file, or the name of a workload.

    \b
    Examples:
      dbdyno plan show demo
      dbdyno plan show my.toml --json
    """
    request = conduct.Request(recipe=recipe)
    if recipe in conduct.workloads() and recipe not in conduct.recipes():
        request = conduct.Request(workload=recipe)
    resolved, _ = conduct.make_plan(conduct.experiment_of(request), observe.host())
    if as_json:
        print_json(resolved.model_dump(mode="json"))
    else:
        screen.plan_table(resolved)


@plan.command("list")
@json_option
def plan_list(as_json: bool) -> None:
    """List the recipes that come with dbdyno.

    \b
    Examples:
      dbdyno plan list
    """
    known = conduct.recipes()
    if as_json:
        print_json({name: r.model_dump(mode="json") for name, r in known.items()})
    else:
        for name, recipe in known.items():
            click.echo(f"{name:12} {recipe.doc}")
