"""Compares the settings of servers: their values and defaults, and what makes defaults the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dbdyno.engines.postgres.settings.values import Guc
from dbdyno.model.engine.choosing import SettingValue

_FIXED = "internal"
"""Context of settings that are decided when the server is built, or the data directory is made."""
_SECRET_OR_PLACE = (
    "primary_conninfo",
    "primary_slot_name",
    "archive_command",
    "restore_command",
    "archive_cleanup_command",
    "recovery_end_command",
    "ssl_passphrase_command",
)
_ITSELF = ("server_version", "server_version_num", "port", "cluster_name", "lc_messages", "application_name")
"""Settings that name the server or the client, and differ without meaning anything."""


def setting_values(gucs: Mapping[str, Guc]) -> dict[str, SettingValue]:
    """Returns the settings without those that name places, may hold secrets, or name the server itself."""
    return {
        guc.name: SettingValue(guc.in_words, _default(guc))
        for guc in gucs.values()
        if guc.name not in (*_SECRET_OR_PLACE, *_ITSELF)
        and "/" not in f"{guc.in_words}{guc.boot_val}"
        and "." not in guc.name
    }


def _default(guc: Guc) -> str | None:
    if guc.boot_val is None or guc.boot_val == guc.setting:
        return guc.shown if guc.boot_val is not None else None
    return f"{guc.boot_val}{guc.unit or ''}" if not (guc.unit or "")[:1].isdigit() else _times(guc)


def _times(guc: Guc) -> str:
    return f"{guc.boot_val} x {guc.unit}"


def older_defaults(oldest: Mapping[str, Guc], servers: Sequence[Mapping[str, Guc]]) -> dict[str, str]:
    """Returns the defaults of ``oldest`` for the settings that all ``servers`` have with different defaults,
    and for which all of them take its value."""
    same: dict[str, str] = {}
    for name, guc in sorted(oldest.items()):
        others = [known[name] for known in servers if name in known]
        value = guc.boot_val
        if value is None or guc.context == _FIXED or len(others) < len(servers) or "/" in value:
            continue
        differ = any((o.boot_val, o.unit) != (value, guc.unit) for o in others)
        if differ and all(_takes(o, guc) for o in others):
            same[name] = value
    return same


def _takes(other: Guc, guc: Guc) -> bool:
    """Returns whether a server takes the value of another one's default."""
    if other.vartype == "enum":
        return guc.boot_val in (other.enumvals or ())
    return (other.vartype, other.unit, other.context != _FIXED) == (guc.vartype, guc.unit, True)
