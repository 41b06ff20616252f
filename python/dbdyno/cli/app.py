"""The group of commands, and the one place where errors become messages and exit codes.

A command's module is imported when the command is called, so that each command starts quickly. Earlier names
of options in :data:`RENAMED` are still accepted. A command in :data:`REPLACED` is an error that names
its replacement.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from dbdyno import __version__
from dbdyno.cli import config, surroundings
from dbdyno.cli.streams import guard, ignore_interrupts, interrupted, tolerate_hangups
from dbdyno.engines.attended import left_behind
from dbdyno.lazy import at_once
from dbdyno.model.errors import EXIT_INTERRUPTED, DbdynoError, UsageError, near_names, nearest
from dbdyno.model.text.visible import shortened

RENAMED = {
    "witness": "waits",
    "witnesses": "cross-check",
    "findings": "claims",
    "cell": "measurement",
    "rung": "sessions",
}
"""Earlier name of an option -> its name."""


def _renamed(word: str) -> str:
    """Returns the present name of an option; ``word`` itself if the command has an option of that name in the
    plural, which is meant then."""
    if word not in RENAMED:
        return word
    context = click.get_current_context(silent=True)
    options = () if context is None else (o for p in context.command.params for o in p.opts)
    return word if f"--{word}s" in options else RENAMED[word]


REPLACED = {
    "man": "dbdyno help TOPIC shows a page, dbdyno COMMAND --help the options of a command",
    "plan": "dbdyno recipes lists recipes, dbdyno run --recipe NAME --dry-run shows a plan",
    "profile": "dbdyno show RUN --profile",
    "recipe": "dbdyno recipes new, dbdyno recipes check, dbdyno recipes schema",
    "version": "dbdyno --version",
}
"""Earlier command, or one of similar programs -> its replacement."""


class Commands(click.Group):
    """A group of commands that are imported when called, and that suggests the nearest name for an unknown
    one.

    ``places``: command -> ``module:attribute``.
    """

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._places})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._places and cmd_name not in self.commands:
            module, _, attribute = self._places[cmd_name].partition(":")
            with at_once():
                self.add_command(getattr(import_module(module), attribute), cmd_name)
        command = super().get_command(ctx, cmd_name)
        return None if command is None else config.with_amount(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes whole sentences; click would cut them at the width of one line."""
        known = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(n, c.get_short_help_str(limit=1_000)) for n, c in known if c is not None and not c.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Completes names without help texts: these would need an import of each command's module."""
        from click.shell_completion import CompletionItem

        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [*map(CompletionItem, names), *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        known = ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None
        if name and not known:
            near = nearest(name, self.list_commands(ctx))
            meant = (
                f"{ctx.command_path} --help lists the commands" if near is None else f"did you mean {near!r}?"
            )
            cure = REPLACED.get(name, meant)
            raise UsageError(f"no command {ctx.command_path} {name}", cure)
        return super().resolve_command(ctx, args)


_HELP = """A dynamometer for databases: puts load on a real server with more and more sessions, counts
exactly, and shows where each second of each session went.

\b
Examples:
  dbdyno run lio                         logical I/O on the embedded PostgreSQL, up to 4 sessions per CPU
  dbdyno run cpu --sessions 1:8          a CPU loop with 1, 2, ... 8 sessions
  dbdyno run lio --dsn postgresql://app@db1/prod --sessions 1,4,16,64
  dbdyno run --script q.sql --measure 30s --repeats 3
  dbdyno noise lio                       how small a difference can be seen on this machine
  dbdyno observe --for 60s               an existing workload: live, and stored
  dbdyno snapshot --name before          a server's statistics now, to be compared with later ones
  dbdyno run --recipe limits             CPU binding or a CPU quota: which is better?
  dbdyno compare last                    its variants: ratios, intervals, verdicts, reasons
  dbdyno analyze ladder.csv              how a system scales, from sessions and throughput
  dbdyno trace-logins --role app --at 10,20,30
                                         the server logs what the 10th, 20th, 30th session does
  dbdyno cluster status                  nodes of a Ray cluster that can drive the load
  dbdyno topology                        sockets, NUMA nodes, cores, threads; which are usable
  dbdyno memory                          where a server's pages are, and which are held twice
  dbdyno doctor                          what can be measured here, and what enables the rest
  dbdyno show last                       the results of the last run
  dbdyno trend                           a figure over runs, and when it changed
  dbdyno web                             all runs in the browser
  dbdyno explain cpu-wait                what a claim means, and what to do
  dbdyno show last --profile             load profile and top ten events of the last run
  dbdyno hot last                        which functions and modules used the CPU (run --profile)
  dbdyno export last --to xlsx           an Excel workbook with charts
  dbdyno sql "from rungs"                query the tables of all runs

Defaults of options: ~/.config/dbdyno/config.toml, or the file that DBDYNO_CONFIG names. -q and -v may also
follow the command. NO_COLOR turns colours off. Shell completion: dbdyno completion bash|zsh|fish.

\b
Exit codes: 0 success; 1 internal error; 2 usage error; 3 server error; 4 run store error;
5 run cut short, or all its calls failed; 6 self-test or doctor --strict failed; 7 --fail-on: the gate
failed; 130 Ctrl-C.
"""


_ABOUT = (
    "Puts a calibrated load on a real database server, or observes an existing workload, and shows where "
    "each second of each session went."
)
_EXAMPLES = (
    ("dbdyno run lio", "logical I/O on the embedded PostgreSQL"),
    ("dbdyno run -f q.sql --dsn service=test", "your own SQL, more and more sessions"),
    ("dbdyno run --command 'xz -kc FILE'", "any command, without a database"),
    ("dbdyno observe --dsn service=prod", "an existing workload, live"),
)
_TASKS = {
    "Measure": {
        "demo": "a first report within a minute; needs no server",
        "run": "throughput and session time as sessions increase",
        "recipes": "prepared experiments, and the question each answers",
        "workload": "list workloads; make and remove their tables",
        "server": "start, stop and inspect the embedded PostgreSQL",
        "cluster": "nodes of a Ray cluster that can drive the load",
    },
    "Watch": {
        "observe": "where the time of an existing workload goes",
        "memory, metrics": "where a server's memory is; metrics for Prometheus",
        "snapshot": "a server's statistics now, to be compared later",
        "trace-logins": "trace what every tenth session of a role does",
    },
    "Read": {
        "runs, web": "stored runs: listed; shown in the browser, live too",
        "show, open": "the results of a run: on the screen, in the browser",
        "report": "write a page: of a run, or of two snapshots",
        "compare": "variants, runs or files: ratio, interval, verdict",
        "trend": "a figure over many runs, and when it changed",
        "analyze": "how a system scales: model, knee, peak, prediction",
        "hot, flame": "what used the CPU: a table, a flame graph",
        "explain": "a word of the output: its meaning, what to do",
    },
    "Check": {
        "doctor, noise": "what spoils measurements; which differences show",
        "topology": "sockets, NUMA nodes, cores, threads, usable CPUs",
        "selftest": "loads with known results, to check the figures",
    },
    "Store": {
        "label, rm": "name, tag or annotate runs; remove them",
        "export, import": "a run as CSV, Excel, JSON; snapshots of other tools",
        "sql, rebuild": "query the tables of all runs; derive a run's again",
        "clean": "restore what killed runs changed",
    },
}
"""Task -> command, or two -> what it is for, in a few words. The help lists them; ``workloads``, the same as
``workload list``, ``help`` and ``completion`` are not in it."""
_POINTERS = (
    "dbdyno COMMAND --help lists a command's options. dbdyno help lists the topics, pages of the "
    "documentation; dbdyno help TOPIC shows one (config: defaults, exit codes, completion). -q, -v print "
    "less, more; --version. dbdyno workloads is short for dbdyno workload list."
)


class Program(Commands):
    """The program: its help lists the commands by task, and fits a screen."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command; its help ends with the page of the documentation that has its name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and (_DOCS / f"{cmd_name}.md").is_file():
            command.epilog = f"Documentation: dbdyno help {cmd_name}"
        return command

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wrapped = partial(click.wrap_text, width=formatter.width)
        formatter.write(f"Usage: {ctx.command_path} COMMAND [OPTIONS] [ARGUMENTS]\n\n")
        formatter.write(f"{wrapped(_ABOUT)}\n\n")
        width = max(len(command) for command, _ in _EXAMPLES)
        formatter.write("".join(f"  {command:{width}}  {what}\n" for command, what in _EXAMPLES))
        indent = " " * 26
        formatter.write("\n")
        for task, commands in _TASKS.items():
            for n, (names, what) in enumerate(commands.items()):
                begin = f"{'' if n else task:9}{names:17}"
                formatter.write(f"{wrapped(what, initial_indent=begin, subsequent_indent=indent)}\n")
        formatter.write(f"\n{wrapped(_POINTERS)}\n")


_DOCS = Path(__file__).parents[1] / "docs"
_NOT_ONE_OF = re.compile(r"'([^']*)' is not one of (.*)")
_PLACES_CURE = (
    "name other places: DBDYNO_STORE for runs, DBDYNO_SERVER_DIR for the embedded server; in a container, "
    "docker run --user with a user that the image knows, or --env HOME=DIR"
)
_PLACES = {
    "demo": "demo:demo",
    "run": "run:run",
    "noise": "noise:noise",
    "observe": "observe:observe_command",
    "memory": "memory:memory",
    "metrics": "metrics:metrics",
    "snapshot": "snapshot:snapshot",
    "runs": "history:runs",
    "show": "runs:show",
    "open": "browser:open_command",
    "report": "runs:report_command",
    "export": "runs:export",
    "import": "snapshot_report:import_command",
    "rebuild": "runs:rebuild",
    "hot": "hot:hot",
    "flame": "hot:flame",
    "label": "history:label",
    "rm": "history:remove",
    "trend": "trend:trend",
    "web": "web:web",
    "sql": "sql:sql",
    "workload": "workload:workload",
    "workloads": "recipes:workloads",
    "recipes": "recipes:recipes",
    "server": "server:server",
    "selftest": "selftest:selftest",
    "analyze": "analyze:analyze",
    "compare": "compare:compare",
    "topology": "topology:topology",
    "doctor": "doctor:doctor",
    "trace-logins": "trace_logins:trace_logins",
    "explain": "explain:explain",
    "help": "help:help_command",
    "clean": "server:clean",
    "cluster": "cluster:cluster",
    "completion": "completion:completion",
}
"""Command -> ``module:attribute`` in this package."""


@click.group(
    "dbdyno",
    cls=Program,
    places={name: f"dbdyno.cli.{place}" for name, place in _PLACES.items()},
    help=_HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "token_normalize_func": _renamed,
    },
)
@click.version_option(__version__, prog_name="dbdyno")
@click.pass_context
def app(context: click.Context) -> None:
    surroundings.remark()
    config.apply(context)


app.params += config.amount_options(hidden=False)


def _check_directory() -> None:
    """Raises :class:`UsageError` if the current directory was removed: relative paths then lead nowhere."""
    try:
        os.getcwd()  # noqa: PTH109
    except OSError as e:
        raise UsageError(
            f"the current directory no longer exists: {e.strerror}", "change to another: cd"
        ) from e


def _print_unexpected(e: Exception) -> int:
    """Prints an unexpected exception and returns the exit code.

    A file that may not be written is a usage error, since the user chooses the place; anything else is a
    defect and prints a traceback.
    """
    if isinstance(e, OSError) and e.errno in (errno.EACCES, errno.EROFS) and e.filename is not None:
        return _print_error(f"cannot use {e.filename}: {e.strerror}", _PLACES_CURE, UsageError.exit_code)
    if isinstance(e, OSError) and e.errno == errno.ENAMETOOLONG:
        return _print_error(
            f"{e.strerror}: {shortened(str(e.filename), 100)}", "give a shorter name", UsageError.exit_code
        )
    import traceback

    sys.stderr.write(shortened(traceback.format_exc(), 20_000, 200) + "\n")
    return DbdynoError.exit_code


def _print_error(message: str, cure: str | None, code: int) -> int:
    """Prints the error in the one form that all errors have, and returns ``code``."""
    from dbdyno.cli import screen

    screen.error(message, cure)
    return code


# names of options in similar programs -> ours
_FOREIGN_OPTIONS = {
    "--duration": "--measure", "--seconds": "--measure", "--runtime": "--measure", "--warmup": "--settle",
    "--threads": "--sessions", "--clients": "--sessions", "--runs": "--repeats", "--tps": "--rate",
}  # fmt: skip


def _command_path(words: Sequence[str]) -> str:
    """Returns the command that ``words`` name. For an option that lacks its value, click does not say whose
    it is."""
    command: click.Command | None = app
    path = ["dbdyno"]
    for word in words:
        if word.startswith("-"):
            continue
        group = command if isinstance(command, click.Group) else None
        command = group.get_command(click.Context(group), word) if group is not None else None
        if command is None:
            break
        path.append(word)
    return " ".join(path)


_DURATION_APART = re.compile(r" (\d[\d.]*) (ms|s|min|h|d)(?= |$)")


def _print_click_error(e: click.ClickException) -> int:
    """Prints a usage error as :func:`_print_error` does; for a group without a command, prints its help."""
    if isinstance(e, click.exceptions.NoArgsIsHelpError):
        e.show()
        return e.exit_code
    message, cure = words_of(e, sys.argv[1:])
    return _print_error(message, cure, e.exit_code)


def words_of(e: click.ClickException, given: Sequence[str] = ()) -> tuple[str, str]:
    """Returns message and cure of an error of click. ``given``: the words after the program's name."""
    message, context = e.format_message(), getattr(e, "ctx", None)
    path = _command_path(given) if context is None else context.command_path
    cure = f"{path} --help lists arguments and options"
    if isinstance(e, click.NoSuchOption):
        message = f"no option {e.option_name}"
        ours = _FOREIGN_OPTIONS.get(e.option_name)
        options = [] if context is None else [o for p in context.command.params for o in p.opts]
        near = ours if ours in options else nearest(e.option_name, e.possibilities or ())
        if near is not None:
            cure = f"did you mean {near!r}? {cure}"
    elif duration := _DURATION_APART.search(" ".join(given)) if "extra argument" in message else None:
        cure = f"write {duration[1]}{duration[2]}"
    elif (wrong := _NOT_ONE_OF.search(message)) is not None:
        cure = near_names(wrong[1], re.findall(r"'([^']*)'", wrong[2])) or cure  # the message lists all
    message = re.sub(r"is not a valid integer( range)?", "is not a whole number", message)
    return message[:1].lower() + message[1:].removesuffix("."), cure


def _exit_code() -> int:
    try:
        _check_directory()
        return app(prog_name="dbdyno", standalone_mode=False) or 0
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.Abort:
        return _print_interrupted()
    except click.ClickException as e:
        return _print_click_error(e)
    except DbdynoError as e:
        return _print_error(e.message, e.cure, e.exit_code)
    except BaseException as e:
        if interrupted() or isinstance(e, KeyboardInterrupt):
            return _print_interrupted()
        if not isinstance(e, Exception):
            raise
        return _print_unexpected(e)


def _print_interrupted() -> int:
    sys.stderr.write("interrupted\n")
    return EXIT_INTERRUPTED


def main() -> None:
    """Entry point of the program ``dbdyno``."""
    if "_DBDYNO_COMPLETE" in os.environ:
        from dbdyno.cli import completion

        return completion.answer()
    tolerate_hangups()
    guard()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy would start an idle thread per CPU
    code = _exit_code()
    ignore_interrupts()
    if left_behind():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
