"""Shows what differs between the servers that variants name: versions, programs, settings and defaults."""

from __future__ import annotations

from dbdyno.model.engine.environment import Environment, SettingDifference
from dbdyno.model.results.results import Results
from dbdyno.model.units import counted
from dbdyno.present.document.document import Block, Section, texts
from dbdyno.present.parts import Part

TITLE = "Differences between the servers"
_NOT_THERE, _EMPTY = "does not exist", "empty"


def blocks(environment: Environment) -> list[Block]:
    """Returns the servers and the settings whose values or defaults differ. Settings that only some servers
    have are folded, unless they matter for performance."""
    names, servers = list(environment.servers), list(environment.servers.values())
    rows = [
        ("version", *(s.name for s in servers)),
        ("in its own words", *(s.description for s in servers)),
        ("programs", *(environment.programs.get(name, "not started by dbdyno") for name in names)),
    ]
    matter = {name for server in servers for name in server.settings}
    first = [d for d in environment.differences if d.name in matter or None not in d.values.values()]
    some = [_row(d, names) for d in environment.differences if d not in first]
    heads = ("setting", *names)
    of_all = texts("", ("", *names), [*rows, *(_row(d, names) for d in first)])
    title = f"{counted(len(some), 'further setting')} that not all servers have"
    return [of_all, *([Section(title, [texts("", heads, some)], folded=True)] if some else [])]


def _row(difference: SettingDifference, names: list[str]) -> tuple[str, ...]:
    values, defaults = difference.values, difference.defaults
    return difference.name, *(_in_words(values.get(name), defaults.get(name)) for name in names)


def _in_words(value: str | None, default: str | None) -> str:
    """Returns the value, with the default if that is another."""
    if value is None:
        return _NOT_THERE
    shown = value or _EMPTY
    return shown if default in (None, value) else f"{shown} (default {default or _EMPTY})"


def _several(results: Results) -> bool:
    return len(results.environment.servers) > 1


PART = Part("servers", TITLE, lambda p: blocks(p.results.environment), _several, detail=True, name="Servers")
