"""Commands on workloads and recipes: list them, write a new recipe, check one, print the schema for
editors."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from shlex import quote

import click

from dbdyno import conduct, observe
from dbdyno.cli import completion, screen
from dbdyno.cli.app import Commands
from dbdyno.cli.options import engine_option, json_option, print_json
from dbdyno.model.errors import UsageError
from dbdyno.model.units import counted


@click.command()
@engine_option("System whose workloads are listed.")
@json_option
def workloads(engine: str | None, as_json: bool) -> None:
    """List the workloads that can be run: the same as dbdyno workload list.

    \b
    Examples:
      dbdyno workloads
      dbdyno workloads --json
    """
    all_workloads = conduct.workloads(engine or "")
    if as_json:
        print_json({name: w.model_dump(mode="json") for name, w in all_workloads.items()})
    else:
        screen.workloads_table(all_workloads)


@click.group(cls=Commands, invoke_without_command=True)
@json_option
@click.pass_context
def recipes(context: click.Context, as_json: bool) -> None:
    """List the recipes and the question that each answers.

    Its commands create and check your own.

    \b
    Examples:
      dbdyno recipes
      dbdyno run --recipe limits --dry-run
      dbdyno recipes new mine.toml
      dbdyno recipes --json | jq 'keys'
    """
    if context.invoked_subcommand is not None:
        return
    all_recipes = conduct.recipes()
    if as_json:
        print_json(
            {name: r.model_dump(mode="json", exclude_defaults=True) for name, r in all_recipes.items()}
        )
        return
    questions = [(name, recipe.doc) for name, recipe in all_recipes.items()]
    for line in screen.aligned(("recipe", "question"), questions, (False, False), screen.width()):
        click.echo(line)
    wide = max(map(len, all_recipes))
    click.echo(f"\n{'run one:':{wide}}  dbdyno run --recipe NAME; --dry-run shows its plan")
    click.echo(f"{'your own:':{wide}}  dbdyno recipes new FILE.toml")


@recipes.command("new")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--like",
    metavar="NAME",
    shell_complete=completion.RECIPES,
    help="Start from a copy of this recipe.  [default: a commented template]",
)
def recipe_new(file: Path, like: str | None) -> None:
    """Write a new recipe to FILE, and its JSON Schema beside it.

    Editors use the schema to complete and check recipes.

    \b
    Examples:
      dbdyno recipes new mine.toml
      dbdyno recipes new mine.toml --like limits
    """
    if file.suffix != ".toml":
        raise UsageError(
            f"{file}: a recipe's name ends in .toml", f"dbdyno recipes new {quote(str(file))}.toml"
        )
    from dbdyno.plan import SCHEMA_FILE

    schema = file.with_name(SCHEMA_FILE)
    text = conduct.recipe_text(like) if like else _template()
    text = text.replace("${schema}", f"./{SCHEMA_FILE}").replace("${file}", str(file))
    _write(file, text)
    schema.write_text(_schema_text(), encoding="utf-8")
    screen.say(f"wrote {file} and {schema}")
    screen.say(f"next:  dbdyno run {quote(str(file))} --dry-run")


@recipes.command("check")
@click.argument("file", type=click.Path(path_type=Path))
def recipe_check(file: Path) -> None:
    """Check a recipe: keys, workload, variants; nothing runs.

    \b
    Examples:
      dbdyno recipes check mine.toml
    """
    request = conduct.Request(recipe=str(file))
    plan, _ = conduct.planned(request, observe.host())
    cells = counted(len(plan.cells), "measurement") if plan.adaptive is None else "an auto ladder"
    parts = counted(len(plan.variants), "phase" if plan.experiment.phases else "variant")
    screen.say(f"{file}: valid: {cells}, {parts}")
    if any(v.settings for v in plan.variants):
        screen.say(f"settings need a server to check them: dbdyno run {quote(str(file))} --dry-run --dsn DSN")


@recipes.command("schema")
def recipe_schema_command() -> None:
    """Print the JSON Schema of recipes.

    \b
    Examples:
      dbdyno recipes schema > recipe.schema.json
    """
    click.echo(_schema_text(), nl=False)


def _schema_text() -> str:
    from dbdyno.plan import recipe_schema

    return json.dumps(recipe_schema(), indent=1) + "\n"


def _template() -> str:
    return (resources.files("dbdyno") / "templates" / "recipe.toml").read_text(encoding="utf-8")


def _write(file: Path, text: str) -> None:
    """Writes a new file. Raises UsageError if it exists."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(f"{file} already exists", "choose another name, or remove it") from None
    except OSError as e:
        raise UsageError(f"cannot write {file}: {e.strerror}", "choose another directory") from None
