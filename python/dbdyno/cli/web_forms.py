"""``run`` and ``observe`` as forms of the lab: which of their options a browser may set, and how its values
become a command line.

An option that is named nowhere here is not in the browser. A browser's value is always the rest of one word,
``--option=VALUE``, and the command has to understand the words as these options and no other.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dbdyno import conduct, engines, present
from dbdyno.cli import app, config
from dbdyno.cli.flags import Command, by_group
from dbdyno.cli.source_options import OptionalValue
from dbdyno.conclude.catalogue import worded
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.flags import OBSERVE, RUN
from dbdyno.model.plan.servers import is_dsn, listed
from dbdyno.model.schema.data_sources import options as optional_sources
from dbdyno.plan import all_jobs
from dbdyno.present.document.document import Block, Column, Document, Row, Table, word
from dbdyno.web.forms import VALUE, Field, Form, Given, Group, Kind, Offer, WrongField

WORKLOAD = "workload"
PLAIN = frozenset(
    {
        *("dsn", "engine", "name", "tags", "note", "recipe"),
        *("waits", "sample_hz", "snapshots", "memory", *(o.key for o in optional_sources())),
        *("params", "builtins", "scale", "protocol", "reconnect", "max_tries", "limits", "log_calls"),
        *("sessions", "target", "rungs", "rate", "rates", "arrivals", "latency_limit", "think"),
        *("call_target", "recalibrate", "measure", "settle", "repeats", "until", "budget", "cool_down"),
        *("order", "reset", "expect", "baseline", "server_settings", "seed", "all_variants"),
        *("wait", "wait_quiet", "observe"),
        *("duration", "window", "user", "database", "application", "pids"),
    }
)
"""Parameters whose options load, watch and name: they run no program, read no file of the browser's choice
and send no SQL of its own."""
COMMANDS = frozenset(
    {
        *("files", "variables", "driver", "settings", "allow_shell"),  # SQL, and settings that are commands
        *("commands", "command_names", "jobs", "once", "runs", "orders", "warmup", "setup", "cleanup"),
        *("prepare", "conclude", "shell", "input", "directory", "env", "timeout", "verify", "work_bytes"),
        *("work_regex", "work_unit", "keep_output", "hide_args", "bin_dir", "server_ssh", "ssh_command"),
        *("servers", "address", "cluster", "drivers", "per_driver", "spread", "server_node", "degrade"),
    }
)
"""Parameters whose options need ``--allow-commands``."""
_FILE = "opens an address, or writes a file"
_TRIGGER = "each belongs to the one before it; a recipe has [[triggers]]"
LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("output", "open_page"), "the run has its page here"),
    **dict.fromkeys(("as_json", "by_command", "refresh", "lines"), "changes what the terminal shows"),
    "dry_run": "Show the plan does it",
    "store": "runs are kept in the store of this lab",
    "fail_on": "sets an exit code",
    **dict.fromkeys(("suite", "only", "list_suite"), "a suite is many runs, which a start does not follow"),
    **dict.fromkeys(("metrics", "metrics_file", "metrics_open", "metrics_token_file"), _FILE),
    **dict.fromkeys(("when", "do", "trigger_cool_down", "trigger_secrets"), _TRIGGER),
    **dict.fromkeys(("clients", "seconds", "select_only", "skip_some_updates"), "another option does it"),
    **dict.fromkeys(("random_seed", "lists", "scans", "step"), "another option does it"),
}
"""Parameter -> why its option is on the command line alone."""
_MOST_CHARACTERS, _MOST_LINES, _MOST_ERRORS = 2_000, 100, 5
_EMPTY = '""'
"""How a browser writes the empty value that some options take."""
_DEFAULT = re.compile(r"\s\s\[default: (.*)\]$", re.DOTALL)
_BY_FLAG = re.compile(r"(--?[\w-]+)")
_ALLOW = "start the server with --allow-start --allow-commands, or use the command line"


class CommandForms:
    """See :class:`dbdyno.web.forms.CommandLine`. ``store``: where runs are kept. ``commands``: whether a
    browser may choose what is executed."""

    names = (RUN, OBSERVE)

    def __init__(self, store: Path, *, commands: bool) -> None:
        self._store, self._commands = store, commands
        self._alone = threading.Lock()  # plans may be large

    def form(self, name: str) -> Form:
        with _context(name) as context:
            shown = by_group(context.command, context)
            groups = [
                Group(group, [self._field(o, context) for o in options if self._allows(o)])
                for group, options in shown.items()
            ]
            words = context.command.get_short_help_str(limit=1_000)
        if name == RUN:
            groups[0] = Group(groups[0].title, [_workload(), *groups[0].fields])
        options = [o for some in shown.values() for o in some]
        left_out = {flag_of(o): LEFT_OUT[str(o.name)] for o in options if o.name in LEFT_OUT}
        further = [flag_of(o) for o in options if o.name in COMMANDS and not self._commands]
        return Form(name, words, [g for g in groups if g.fields], left_out, further, self._about(name))

    def words(self, name: str, given: Given) -> Sequence[str]:
        for text in _lines(given.get("dsn", "")):  # before all else, for forms with an error are shown again
            self._check_dsn("dsn", text, given.get("engine", ""))
        for text in filter(is_dsn, listed(given.get("servers", ""))):
            self._check_dsn("servers", text, given.get("engine", ""))
        fields = {f.name: f for f in self.form(name).fields()}
        for key in given.keys() - fields.keys() - {f"{n}{VALUE}" for n in fields}:
            raise WrongField(key, f"{key} cannot be set from the browser", _ALLOW)
        options = [w for f in fields.values() if f.name != WORKLOAD for w in _words(f, given)]
        workload = ["--", *_values(fields[WORKLOAD], given)] if given.get(WORKLOAD) else []
        # an observation may print a line for each window, for days
        quiet = ["--quiet"] if name == OBSERVE else []
        return [*quiet, name, f"--store={self._store}", *options, *workload]

    def plan(self, name: str, given: Given) -> Document:
        try:
            return self._plan(name, given)
        except WrongField as e:
            e.others = [*self._further_errors(name, given, e.field)]
            raise

    def _further_errors(self, name: str, given: Given, wrong: str) -> Iterator[WrongField]:
        """Yields the errors of other fields, each as the command has it without those that are wrong."""
        for _ in range(_MOST_ERRORS):
            given = {k: v for k, v in given.items() if k.removesuffix(VALUE) != wrong}
            try:
                self._plan(name, given)
            except WrongField as e:
                if e.field not in given:
                    return  # of something that is missing now
                wrong = e.field
                yield e
            except DbdynoError:
                return
            else:
                return

    def _plan(self, name: str, given: Given) -> Document:
        words = [*self.words(name, given)]
        with self._alone, _errors_at_fields(self.form(name)):
            with _context(name, words[words.index(name) + 1 :]) as context:
                self._check_understood(context, given)
                if name == RUN:
                    from dbdyno.cli.run import dry_run
                else:
                    from dbdyno.cli.observe import dry_run
                plan, remarks = dry_run(dict(context.params))
            return present.plan_document(worded(plan), remarks)

    def _allows(self, option: click.Option) -> bool:
        return option.name in PLAIN or (self._commands and option.name in COMMANDS)

    def _field(self, option: click.Option, context: click.Context) -> Field:
        """Returns the option as a field, with its own help and default."""
        name, text = str(option.name), option.help or ""
        default, of_file = _DEFAULT.search(text), (context.default_map or {}).get(name)
        choices = self._choices(option, str(context.info_name))
        kind = _kind(option, has_choices=bool(choices))
        return Field(
            name,
            flag_of(option),
            _DEFAULT.sub("", text),
            kind,
            _shown(of_file) if of_file is not None else default[1] if default else "",
            str(option.metavar or ""),
            choices,
            bool(getattr(option, "common", False)),
            of_file is True and kind == "switch",
            name not in COMMANDS,
        )

    def _choices(self, option: click.Option, command: str) -> Sequence[Offer]:
        if option.name == "recipe":
            return [Offer(n, doc) for n, doc in self._recipes(command)] if not self._commands else []
        if option.name == "engine":
            known = engines.names() if self._commands else [engines.DEFAULT]
            return [Offer(engine) for engine in known]
        if option.secondary_opts:
            return [Offer(option.opts[0], "yes"), Offer(option.secondary_opts[0], "no")]
        return [Offer(str(c)) for c in option.type.choices] if isinstance(option.type, click.Choice) else []

    def _recipes(self, command: str) -> list[tuple[str, str]]:
        """Returns the recipes of dbdyno for a command, and their questions."""
        return [
            (name, recipe.doc)
            for name, recipe in _shipped_recipes().items()
            if (recipe.observation is not None) == (command == OBSERVE)
            and (self._commands or not all_jobs(recipe))
        ]

    def _about(self, name: str) -> Sequence[Block]:
        """Returns tables of workloads and recipes."""
        recipes = [Row([word(n), word(doc)]) for n, doc in self._recipes(name)]
        tables = [Table("Recipes", (Column("recipe"), Column("question", wraps=True)), recipes)]
        if name == RUN:
            columns = (Column("workload"), Column("a call", wraps=True), Column("parameters", wraps=True))
            rows = [
                Row(
                    [
                        word(w.name),
                        word(w.doc),
                        word("; ".join(f"{n}={p.default}: {p.doc}" for n, p in named)),
                    ]
                )
                for w in _workloads().values()
                for named in [w.parameters.items()]
            ]
            tables.insert(0, Table("Workloads", columns, rows))
        return [t for t in tables if t.rows]

    def _check_dsn(self, field: str, dsn: str, engine: str) -> None:
        """Raises :class:`WrongField` for a password, which every user could see, for keywords that do more
        than name a server, and for what cannot be read, which may hold either."""
        if dsn == _EMPTY:
            return
        try:
            engine = engines.checked(engine or str(_defaults(RUN).get("engine", "")))
        except UsageError as e:
            raise WrongField(field, f"--{field} cannot be checked: {e.message}", e.cure) from e
        if (cure := engines.secret_in(engine, dsn)) is not None:
            seen = f"every user of this machine could see the password in --{field} while dbdyno runs (ps)"
            raise WrongField(field, seen, cure)
        try:
            beyond = engines.beyond_address(engine, dsn)
        except UsageError as e:
            raise WrongField(field, f"--{field}: {e.message}", e.cure) from e
        if beyond != [] and not self._commands:
            named = "a string of this engine" if beyond is None else ", ".join(beyond)
            message = f"--{field} with {named}: it may be more than the address of a server"
            raise WrongField(field, message, f"a service file, or {_ALLOW}")

    def _check_understood(self, context: click.Context, given: Given) -> None:
        """Raises :class:`UsageError` unless exactly the options that were given are set."""
        command = context.command
        names = {str(p.name) for p in command.params}
        given_by_words = {n for n in names if context.get_parameter_source(n) is ParameterSource.COMMANDLINE}
        meant = {key.removesuffix(VALUE) for key, value in given.items() if value} | {"store"}
        if not given_by_words <= meant:
            raise UsageError(f"not understood: {', '.join(sorted(given_by_words - meant))}", _ALLOW)


def flag_of(option: click.Option) -> str:
    """Returns the long name."""
    return next(name for name in option.opts if name.startswith("--"))


def _workload() -> Field:
    names = sorted({*_workloads(), *conduct.builtin_scripts("")})
    help = "What each session does again and again. A recipe names its own."
    return Field(WORKLOAD, WORKLOAD, help, "choice", choices=[Offer(n) for n in names], common=True)


@cache
def _workloads() -> Mapping[str, Any]:
    return conduct.workloads()


@cache
def _shipped_recipes() -> Mapping[str, Any]:
    return conduct.recipes()


def _kind(option: click.Option, *, has_choices: bool) -> Kind:
    if option.is_flag and not option.secondary_opts:
        return "switch"
    if option.multiple:
        return "lines"
    if isinstance(option, OptionalValue):
        return "optional"
    if has_choices:
        return "choice"
    numbers = click.types.IntParamType | click.types.FloatParamType
    return "number" if isinstance(option.type, numbers) else "text"


def _shown(value: Any) -> str:
    """Returns a value of the configuration file."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# What a browser gave, as words.


def _words(field: Field, given: Given) -> list[str]:
    """Returns the words of one option. Raises :class:`WrongField`."""
    values = _values(field, given)
    if field.kind == "switch":
        return [field.flag] * len(values)
    if field.kind == "optional":
        number = given.get(f"{field.name}{VALUE}", "").strip()
        if number and not re.fullmatch(r"[0-9][0-9A-Za-z.]{0,20}", number):
            raise WrongField(field.name, f"{field.flag} {number[:40]!r}: not a number", "99, or leave it out")
        return [f"{field.flag}={number}" if number else field.flag] if values or number else []
    if field.kind == "choice" and field.choices[0].value.startswith("--"):
        return values
    return [f"{field.flag}={'' if value == _EMPTY else value}" for value in values]


def _values(field: Field, given: Given) -> list[str]:
    """Returns the values of a field, none for an empty one. Raises :class:`WrongField`."""
    text = given.get(field.name, "")
    values = _lines(text) if field.kind == "lines" else [text.strip()] if text.strip() else []
    if len(values) > _MOST_LINES:
        raise WrongField(field.name, f"{field.flag}: too many values", f"at most {_MOST_LINES}")
    for value in values:
        if len(value) > _MOST_CHARACTERS:
            cure = f"at most {_MOST_CHARACTERS:,} characters"
            raise WrongField(field.name, f"{field.flag}: the value is too long", cure)
        if not value.isprintable():
            raise WrongField(
                field.name, f"{field.flag}: the value has characters that cannot be seen", "type it"
            )
        known = [o.value for o in field.choices]
        if field.kind == "choice" and value not in known:
            cure = f"one of {', '.join(known)}"
            raise WrongField(field.name, f"{field.flag} {value[:80]!r} is not one of the choices", cure)
    return values


def _lines(text: str) -> list[str]:
    return [line for part in text.replace("\r", "\n").split("\n") if (line := part.strip())]


# The command, without calling it.


@contextmanager
def _context(name: str, words: Sequence[str] | None = None) -> Iterator[click.Context]:
    """Yields a context of a command, with the defaults of the configuration file as it is now. ``words``:
    what follows the command's name; None for a context that has read nothing."""
    parent = click.Context(app.app, info_name="dbdyno", **app.app.context_settings)
    parent.invoked_subcommand = name
    config.apply(parent)
    command = app.app.get_command(parent, name)
    assert isinstance(command, Command)
    if words is None:
        yield click.Context(command, parent, info_name=name)
        return
    # not that of the command's own class, which may set variables of the environment
    with click.Command.make_context(command, name, [*words], parent=parent) as context:
        yield context


def _defaults(name: str) -> Mapping[str, Any]:
    with _context(name) as context:
        return context.default_map or {}


@contextmanager
def _errors_at_fields(form: Form) -> Iterator[None]:
    """Raises errors of a command as errors of the field whose option they name, if they name one."""
    try:
        yield
    except WrongField:
        raise
    except click.ClickException as e:
        message, cure = app.words_of(e)
        parameter = getattr(e, "param", None)
        raise WrongField("" if parameter is None else str(parameter.name), message, cure) from e
    except UsageError as e:
        begin = _BY_FLAG.match(e.message)
        fields = [f.name for f in form.fields() if begin is not None and f.flag == begin[1]]
        raise WrongField(fields[0] if fields else "", e.message, e.cure) from e
