"""Checks whether settings can be put in force, without changing anything: the server itself judges each
value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql as pgsql

from dbdyno.engines.postgres import connect, sql, versions
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.facts import visibility
from dbdyno.engines.postgres.settings import values
from dbdyno.engines.postgres.settings.values import PRELOADING, Guc, Site
from dbdyno.model.errors import NotAvailable, NotPrivileged, ServerBusy, UsageError, did_you_mean
from dbdyno.model.units import counted, format_size

_OWN_CONNECTIONS = 3  # control, activity, calibration
_LISTED = "the statement SHOW ALL lists all settings"
_HUGE = ("huge_pages", "shared_buffers")
_SETTABLE = ("user", "superuser")  # contexts of settings that can be set in a session, and so in a trial
_NOT_TRIED = ("log_timezone", "primary_slot_name")  # do not ignore a line's end behind the value
_FIXED = dict.fromkeys(
    ("data_directory", "config_file", "hba_file", "ident_file", "external_pid_file", "cluster_name"),
    "it says where the server's files are, or what it is called",
) | dict.fromkeys(
    ("listen_addresses", "port", "unix_socket_directories", "unix_socket_group", "unix_socket_permissions"),
    "connections would no longer find the server",
)
_COMMANDS = ("archive_command", "restore_command", "archive_cleanup_command", "recovery_end_command")
_FIXED |= dict.fromkeys(
    ("primary_conninfo", "ssl_passphrase_command", *_COMMANDS),
    "it may hold a secret, and what a variant sets is recorded with the run",
)
_FIXED["allow_alter_system"] = "what is set could not be put back"
# Sources that override a file, with explanations (PostgreSQL, "pg_settings", column source).
_OVERRIDING = {
    "command line": "it stands on the server's command line",
    "database": "ALTER DATABASE ... SET wins for this database",
    "user": "ALTER ROLE ... SET wins for this role",
    "database user": "ALTER ROLE ... IN DATABASE ... SET wins for this role here",
    "client": "the connection's own options (DSN, PGOPTIONS) win",
}


@dataclass(frozen=True)
class Asked:
    """A setting that can be put in force."""

    name: str  # as the server spells it
    value: str
    guc: Guc | None  # None for a setting of a library that is not yet loaded
    expected: str | None = None  # the server's form of the value, from a trial

    @property
    def at_start(self) -> bool:
        return self.guc is not None and self.guc.context == "postmaster"

    def is_in_force(self, now: Mapping[str, Guc]) -> bool:
        guc = now.get(self.name.lower())
        if guc is None:
            return False
        if self.expected is not None and guc.reset_val == self.expected:
            return True
        return values.same(guc, self.value, guc.reset_val)


def check(site: Site, settings: Mapping[str, str]) -> list[Asked]:
    """Returns the settings if they can be put in force. Raises :class:`UsageError` and
    :class:`NotPrivileged`, with the cure."""
    if not settings:
        return []
    if len({name.lower() for name in settings}) < len(settings):
        raise UsageError("a setting is given twice, in other letters", "names of settings have no case")
    for name, value in settings.items():
        if any(c in value for c in "\n\r\0"):
            raise UsageError(f"setting {name}: its value has more than one line", "write it in one")
    with connect.connect(site.dsn) as trial:
        trial.execute(sql.text("quiet").encode())
        _load_libraries(trial, settings)
        known = values.read(trial)
        asked = [_check_name(known, settings, name, value) for name, value in settings.items()]
        _check_rights(site, trial, asked)
        asked = [_try(trial, a) for a in asked]
    wanting = [a for a in asked if not a.is_in_force(known)]
    _check_not_hidden(site, wanting)
    _check_connections(site, asked)
    _check_huge_pages(site, asked, known)
    _check_restart(site, [a for a in wanting if a.at_start])
    return asked


def _check_name(known: Mapping[str, Guc], settings: Mapping[str, str], name: str, value: str) -> Asked:
    guc = known.get(name.lower())
    if guc is None:
        return _check_library_setting(known, settings, name, value)
    if guc.context == "internal":
        raise UsageError(
            f"setting {name} cannot be changed: the server was built or made with {guc.shown}",
            "it is fixed when the server is built or its data directory is made (initdb)",
        )
    if (why := _FIXED.get(guc.name)) is not None:
        raise UsageError(f"setting {name} is no matter of a variant: {why}", "leave it out")
    values.canonical(guc, value)
    return Asked(guc.name, value, guc)


def _check_library_setting(
    known: Mapping[str, Guc], settings: Mapping[str, str], name: str, value: str
) -> Asked:
    """Accepts a setting of a library that the same variant loads; it is verified once the library is
    loaded."""
    loaded = {
        element.rsplit("/", 1)[-1].removesuffix(".so")
        for list_name in PRELOADING
        for element in values.elements(list_name, settings.get(list_name, ""))
    }
    prefix = name.partition(".")[0]
    if "." in name and prefix in loaded:
        return Asked(name, value, None)
    if "." in name:
        raise UsageError(
            f"unknown server setting {name!r}: no library that is loaded has it",
            f"load that in the same variant: shared_preload_libraries = {prefix!r}; "
            f"or {did_you_mean(name, known, _LISTED)}",
        )
    raise UsageError(f"unknown server setting {name!r}", did_you_mean(name, known, _LISTED))


def _load_libraries(trial: Connection, settings: Mapping[str, str]) -> None:
    """Loads each library into the trial's session, to check that it exists and to learn its settings."""
    for list_name in PRELOADING:
        for library in values.elements(list_name, settings.get(list_name, "")):
            plain = list_name.startswith("local") and "/" not in library
            path = f"$libdir/plugins/{library}" if plain else library
            try:
                trial.execute(pgsql.SQL("load {}").format(pgsql.Literal(path)))
            except psycopg.errors.UndefinedFile as e:
                raise UsageError(
                    f"setting {list_name}: {e.diag.message_primary}",
                    "install the library on the server, or fix its name",
                ) from None
            except psycopg.Error:
                if trial.closed:
                    raise
                continue  # it exists, but must be loaded at the start, or by a superuser


def _check_rights(site: Site, trial: Connection, asked: Sequence[Asked]) -> None:
    """Raises :class:`NotPrivileged` with every statement that would grant a missing right."""
    role = site.role()
    missing = [
        f"GRANT ALTER SYSTEM ON PARAMETER {a.name} TO {role}" for a in asked if not _may_alter(trial, a.name)
    ]
    lacking_superuser = bool(missing) and versions.major(trial) < versions.PRIVILEGES_ON_PARAMETERS
    if missing and (service := visibility(trial).service) is not None:
        wanted = ", ".join(f"{a.name} = {a.value}" for a in asked)
        raise NotPrivileged(
            f"{wanted}: {service.name} lets no role change settings of the server",
            f"set one value after the other in {service.settings}, run each time, and dbdyno compare RUN RUN",
        )
    missing += [row[0] for row in trial.execute(sql.text("rights_to_configure").encode()).fetchall()]
    if lacking_superuser:
        raise NotPrivileged(
            f"role {role} may not change settings of the server: before PostgreSQL 15 only a superuser may",
            "connect as a superuser",
        )
    if missing:
        raise NotPrivileged(
            f"role {role} may not change these settings of the server and put them back",
            f"connect as a superuser, or let one say: {'; '.join(missing)};",
        )


def _may_alter(trial: Connection, name: str) -> bool:
    """Returns whether this role may alter the setting. Asks, since trying would change it."""
    if versions.major(trial) < versions.PRIVILEGES_ON_PARAMETERS:
        cursor = trial.execute("select rolsuper from pg_catalog.pg_roles where rolname = current_user")
    else:
        cursor = trial.execute(sql.text("may_alter_system").encode(), (name,))
    row = cursor.fetchone()
    return row is not None and bool(row[0])


def _try(trial: Connection, asked: Asked) -> Asked:
    """Lets the server judge the value. Sets a session's setting in a transaction that is rolled back,
    except timeouts, which could end that transaction."""
    expected = None
    if asked.guc is not None and asked.guc.context in _SETTABLE and not asked.name.endswith("_timeout"):
        try:
            with trial.transaction(force_rollback=True):
                trial.execute("select pg_catalog.set_config(%s, %s, true)", (asked.name, asked.value))
                expected = _setting(trial, asked.name)
        except psycopg.errors.InsufficientPrivilege:
            pass  # not in a session; ALTER SYSTEM is a separate right, which was checked
        except psycopg.Error as e:
            raise _refused(trial, asked, e) from None
    try:
        _alter_nothing(trial, asked)
    except psycopg.Error as e:
        if _is_verdict(asked, e, tried=expected is not None):
            raise _refused(trial, asked, e) from None
    return Asked(asked.name, asked.value, asked.guc, expected)


def _alter_nothing(trial: Connection, asked: Asked) -> None:
    """Runs ALTER SYSTEM with a value that is always refused, so that nothing is written. The server checks
    right, name and value first, and only then refuses a value of two lines. Raises :class:`psycopg.Error`
    in any case."""
    trial.execute(statement(asked.name, f"{asked.value}\n", whole=True))


def _is_verdict(asked: Asked, error: psycopg.Error, *, tried: bool) -> bool:
    """Returns whether the error is about the value (or the name), not about the appended line's end."""
    if asked.guc is None:
        return False
    if error.diag.source_function == "AlterSystemSetConfigFile":
        return error.sqlstate != "22023"  # invalid_parameter_value: more than one line
    if tried or asked.name in _NOT_TRIED:
        return False
    return asked.guc.vartype in ("integer", "real", "string")  # enum and bool allow no white space


def statement(name: str, value: str | None, *, whole: bool = False) -> pgsql.Composed:
    """Returns ALTER SYSTEM for a value as in a file; None removes the entry. ``whole``: does not split a
    list."""
    full = pgsql.Identifier(*name.split("."))
    if value is None:
        return pgsql.SQL("alter system reset {}").format(full)
    pieces = [value] if whole else values.elements(name, value)
    listed = pgsql.SQL(", ").join(pgsql.Literal(piece) for piece in pieces or [""])
    return pgsql.SQL("alter system set {} = {}").format(full, listed)


def _setting(trial: Connection, name: str) -> str | None:
    row = trial.execute("select setting from pg_catalog.pg_settings where name = %s", (name,)).fetchone()
    return None if row is None else row[0]


def _refused(trial: Connection, asked: Asked, error: psycopg.Error) -> Exception:
    if trial.closed:
        return error
    hint = error.diag.message_detail or error.diag.message_hint
    words = (error.diag.message_primary or str(error)).replace("\n", "")
    return UsageError(f"the server refuses {asked.name} = {asked.value!r}: {words}", hint or "fix the value")


def _check_not_hidden(site: Site, wanting: Sequence[Asked]) -> None:
    """Raises :class:`UsageError` if a source that overrides our file sets a setting."""
    now = values.read(site.connection())
    for a in wanting:
        if (guc := now.get(a.name.lower())) is not None and (why := hidden_by(site, guc)):
            raise UsageError(
                f"setting {a.name} would stay {guc.in_words}: {why}",
                "take that away first, or measure as another role or database",
            )


def hidden_by(site: Site, guc: Guc) -> str | None:
    """Returns why our file would not change the setting, None if it would."""
    if site.instance is not None and (guc.sourcefile or "").endswith("/postgresql.auto.conf"):
        return f"ALTER SYSTEM has set it; ALTER SYSTEM RESET {guc.name} removes that"
    return _OVERRIDING.get(guc.source)


def _check_connections(site: Site, asked: Sequence[Asked]) -> None:
    if site.instance is None:
        return
    least = site.instance.sessions + _OWN_CONNECTIONS
    for a in asked:
        if a.name == "max_connections" and a.guc and float(values.canonical(a.guc, a.value)) < least:
            raise UsageError(
                f"max_connections = {a.value} leaves no room for "
                f"{counted(site.instance.sessions, 'session')}",
                f"{least} or more",
            )


def _check_huge_pages(site: Site, asked: Sequence[Asked], known: Mapping[str, Guc]) -> None:
    """Checks that the kernel has enough free huge pages. Only for an embedded server: another one on this
    host may be in a container."""
    wanted = {a.name: values.canonical(a.guc, a.value) for a in asked if a.guc and a.name in _HUGE}
    if site.instance is None or wanted.get("huge_pages") != "on":
        return
    size = wanted.get("shared_buffers", known["shared_buffers"].setting)
    row = site.connection().execute("select pg_catalog.current_setting('block_size')::bigint").fetchone()
    needed = int(float(size or 0)) * int(row[0] if row else 0)
    free, page = _huge_pages(Path("/proc/meminfo").read_text())
    if free * page >= needed:
        return
    count = -(-needed * 11 // 10 // page) if page else 0
    raise NotAvailable(
        f"huge_pages = on: the kernel has {free} free huge pages, and a cache of {format_size(needed)} needs "
        f"{-(-needed // page) if page else 'some'} or more",
        f"reserve them first: sysctl vm.nr_hugepages={count}" if page else "a kernel with huge pages",
    )


def _huge_pages(meminfo: str) -> tuple[int, int]:
    """Returns the number of free huge pages, and the bytes of one (proc_meminfo(5)), 0 if the kernel has
    none."""
    lines = (line.split() for line in meminfo.splitlines())
    figures = {words[0]: int(words[1]) for words in lines if words and words[0].startswith("Huge")}
    return figures.get("HugePages_Free:", 0), figures.get("Hugepagesize:", 0) * 1024


def _check_restart(site: Site, wanting: Sequence[Asked]) -> None:
    if not wanting:
        return
    settings = ", ".join(f"{a.name} = {a.value}" for a in wanting)
    if site.instance is None:
        alter = "; ".join(statement(a.name, a.value).as_string(None) for a in wanting)
        raise NotAvailable(
            f"{settings} needs a restart, and dbdyno restarts only servers that it started itself",
            f"say {alter}; restart the server, and run twice: dbdyno compare RUN RUN. "
            "Or leave out --dsn: the embedded server may be restarted",
        )
    if site.instance.stays and (others := site.strangers()):
        raise ServerBusy(
            f"{settings} needs a restart, but others are connected to this server: {'; '.join(others)}",
            "let them disconnect first",
        )
