"""Shell completion: ``dbdyno completion``, and the completions of options and arguments.

These are names of files and directories, so that nothing is parsed and no large library is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from dbdyno import engines, store
from dbdyno.cli import topics
from dbdyno.cli.app import app
from dbdyno.cli.config import find_config
from dbdyno.model.text.visible import one_line
from dbdyno.store.listing import Listed, list_runs

VARIABLE = "_DBDYNO_COMPLETE"
"""Variable that the shell's function sets to request completions: ``bash_complete``."""
_SHELLS = ("bash", "zsh", "fish")

_Names = Callable[[click.Context], Iterable[str]]
_Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def _from(names: _Names, *, or_files: bool = False) -> _Completer:
    """Completes to names that begin with the typed text; ``or_files``: and to files, which the shell adds."""

    def complete(
        context: click.Context, _parameter: click.Parameter, typed: str
    ) -> list[CompletionItem[str]]:
        # the shell prints the names: none with control characters
        matching = (n for n in names(context) if n.startswith(typed) and n == one_line(n))
        items = [CompletionItem(name) for name in matching]
        # bash needs files first
        return [CompletionItem(typed, type="file"), *items] if or_files else items

    return complete


def _runs(context: click.Context) -> Iterable[str]:
    """Returns names, then ids, the newest first."""
    runs = list_runs(_root(context))[::-1]
    return ["last", *_names(runs), *(run.id for run in runs)]


def _names(runs: Sequence[Listed]) -> Iterable[str]:
    return dict.fromkeys(run.document["name"] for run in runs if run.document.get("name"))


def _root(context: click.Context) -> Path:
    root = context.params.get("store")
    if root is None and (config := find_config()) is not None:
        own = config.document.get(context.info_name or "", {})
        root = own.get("store", config.document.get("store"))
    return store.default_root() if root is None else Path(root).expanduser()


def _snapshots(context: click.Context) -> Iterable[str]:
    """Returns names, then ids, the newest first."""
    from dbdyno.store.snapshot_catalog import DIRECTORY, names

    named = names(_root(context) / DIRECTORY)
    return ["last", *dict.fromkeys(n for _, n in named if n), *(i for i, _ in reversed(named))]


def _toml(folder: str) -> _Names:
    files = resources.files("dbdyno").joinpath(folder)
    return lambda _context: sorted(f.name[:-5] for f in files.iterdir() if f.name.endswith(".toml"))


def _suites() -> dict[str, str]:
    """Returns the suites' names and the texts of their files, which are not parsed: see :func:`_claims`."""
    folders = (e.joinpath("suite_files") for e in resources.files("dbdyno").joinpath("engines").iterdir())
    files = (f for folder in folders if folder.is_dir() for f in folder.iterdir() if f.name.endswith(".toml"))
    return {f.name[:-5]: f.read_text("utf-8") for f in files}


def _benchmarks(context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem[str]]:
    """Completes the last name of a list."""
    known = _suites()
    chosen = known.get(str(context.params.get("suite")))
    text = chosen or "\n".join(known.values())
    names = re.findall(r'^\[\[benchmarks\]\]\s+name = "([\w-]+)"', text, re.MULTILINE)
    before, comma, last = typed.rpartition(",")
    more = (n for n in names if n.startswith(last) and n not in before.split(","))
    return [CompletionItem(f"{before}{comma}{name}") for name in more]


def _claims(_context: click.Context) -> Iterable[str]:
    """Returns the heads of the catalogue's tables by a regular expression: parsing takes three times as long
    as all the rest."""
    files = resources.files("dbdyno").joinpath("conclude", "catalogue").iterdir()
    texts = (f.read_text("utf-8") for f in files if f.name.endswith(".toml"))
    return sorted(name for text in texts for name in re.findall(r"^\[([\w-]+)\]", text, re.MULTILINE))


def _topics(_context: click.Context) -> Iterable[str]:
    return sorted({*topics.files(), *app.list_commands(_context)})


RUNS = _from(_runs)
RUNS_OR_FILES = _from(_runs, or_files=True)
RUN_NAMES = _from(lambda context: _names(list_runs(_root(context))[::-1]))
SNAPSHOTS = _from(_snapshots)
WORKLOADS = _from(_toml("workloads"))
WORKLOADS_OR_FILES = _from(_toml("workloads"), or_files=True)
RECIPES = _from(_toml("recipes"))
RECIPES_OR_FILES = _from(_toml("recipes"), or_files=True)
CLAIMS = _from(_claims)
SUITES = _from(lambda _context: sorted(_suites()))
BENCHMARKS = _benchmarks
TOPICS = _from(_topics)
ENGINES = _from(lambda _context: engines.names())


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, workloads, recipes, suites, runs and claims.

    \b
    Examples:
      eval "$(dbdyno completion bash)"          in ~/.bashrc
      eval "$(dbdyno completion zsh)"           in ~/.zshrc, after compinit
      dbdyno completion fish | source           in ~/.config/fish/config.fish
      dbdyno completion bash > ~/.local/share/bash-completion/completions/dbdyno
    """
    source = _shell(shell).source()
    # fish: a list of names has commas, too
    click.echo(source.replace('string split ","', 'string split --max 1 ","'), nl=False)


def _shell(name: str) -> ShellComplete:
    shell_class = get_completion_class(name)
    if shell_class is None:
        raise LookupError(name)
    return shell_class(app, {}, "dbdyno", VARIABLE)


def answer() -> None:
    """Prints the requested completions; nothing on an error, which would disturb the command line being
    typed."""
    with suppress(Exception):
        print(_shell(os.environ[VARIABLE].partition("_")[0]).complete())
