"""Parsing of settings' values; tests/db compares it with the server."""

from __future__ import annotations

from typing import Any

import pytest

from dbdyno.engines.postgres.embedded.account import cure_for
from dbdyno.engines.postgres.settings.check import statement
from dbdyno.engines.postgres.settings.values import Guc, canonical, elements, same
from dbdyno.model.errors import UsageError


def guc(**given: Any) -> Guc:
    usual = dict.fromkeys(Guc._fields)
    usual |= {"name": "x", "context": "sighup", "source": "default", "pending_restart": False}
    return Guc(**(usual | given))  # type: ignore[arg-type]


BLOCKS = guc(vartype="integer", unit="8kB", min_val="16", max_val="1073741823")
SECONDS = guc(vartype="integer", unit="s", min_val="1", max_val="86400")
COST = guc(vartype="real", unit="ms", min_val="-1", max_val="100")
SWITCH = guc(vartype="bool")
CHOICE = guc(vartype="enum", enumvals=["off", "on", "try"])
CASED = guc(vartype="enum", enumvals=["", "TLSv1.2", "TLSv1.3"])


@pytest.mark.parametrize(
    ("row", "value", "parsed"),
    [
        (BLOCKS, "128MB", 16384.0),
        (BLOCKS, "16384", 16384.0),
        (BLOCKS, "0x4000", 16384.0),
        (BLOCKS, "040", 32.0),
        (BLOCKS, "1.5GB", 196608.0),
        (BLOCKS, " 130 kB ", 16.0),  # 16.25 blocks
        (SECONDS, "2min", 120.0),
        (SECONDS, "0.5h", 1800.0),
        (SECONDS, "1d", 86400.0),
        (SECONDS, "1600ms", 2.0),
        (COST, "2.5", 2.5),
        (COST, "500us", 0.5),
        (COST, "1e1", 10.0),
        (SWITCH, "TRUE", "on"),
        (SWITCH, "of", "off"),
        (SWITCH, "1", "on"),
        (CHOICE, "Try", "try"),
        (CHOICE, "yes", "on"),
        (CASED, "tlsv1.3", "TLSv1.3"),
    ],
)
def test_values_are_read_as_the_manual_says(row: Guc, value: str, parsed: str | float) -> None:
    assert canonical(row, value) == parsed


@pytest.mark.parametrize(
    ("row", "value", "words"),
    [
        (BLOCKS, "64kB", "16 to 1073741823 (in units of 8kB)"),
        (BLOCKS, "1 mb", "one of B, kB, MB, GB, TB"),  # units have their case
        (BLOCKS, "5s", "one of B, kB, MB, GB, TB"),
        (SECONDS, "1MB", "one of us, ms, s, min, h, d"),
        (SECONDS, "2d", "1 to 86400"),
        (SECONDS, "", "a number"),
        (SWITCH, "o", "on or off"),
        (SWITCH, "", "on or off"),
        (CHOICE, "maybe", "'off', 'on', 'try'"),
        (guc(vartype="integer", min_val="1", max_val="9"), "5kB", "without a unit"),
    ],
)
def test_an_impossible_value_is_refused_with_possible_ones(row: Guc, value: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        canonical(row, value)
    assert words in str(caught.value.cure)
    assert "variant" not in str(caught.value.cure)


@pytest.mark.parametrize(("row", "value"), [(SWITCH, "on,off"), (CHOICE, "on,off"), (BLOCKS, "1GB,2GB")])
def test_several_values_are_refused_with_the_way_to_compare_them(row: Guc, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        canonical(row, value)
    assert "variant of a recipe: dbdyno help variants" in str(caught.value.cure)


@pytest.mark.parametrize(
    "line",
    [
        'LOG:  invalid value for parameter "wal_compression": "on,off"',
        'LOG:  parameter "jit" requires a Boolean value',
    ],
)
def test_the_embedded_server_refuses_them_with_the_same_cure(line: str) -> None:
    assert "variant of a recipe: dbdyno help variants" in (cure_for(line) or "")
    assert cure_for('LOG:  invalid value for parameter "wal_level": "maximal"') is None


@pytest.mark.parametrize(
    ("name", "value", "cut"),
    [
        ("search_path", '"$user", Public ,"Own ""x"", y"', ["$user", "public", 'Own "x", y']),
        ("shared_preload_libraries", "Auto_explain,$libdir/x", ["Auto_explain", "$libdir/x"]),
        ("search_path", '""', [""]),
        ("search_path", "", []),
        ("log_destination", "stderr,csvlog", ["stderr,csvlog"]),
    ],
)
def test_lists_are_cut_as_the_server_cuts_them(name: str, value: str, cut: list[str]) -> None:
    assert elements(name, value) == cut


def test_lists_are_the_same_however_they_are_written() -> None:
    path = guc(name="search_path", vartype="string")
    assert same(path, "A,b", 'a, "b"')
    assert not same(path, "b,a", "a, b")


def test_alter_system_is_quoted_whatever_the_value() -> None:
    assert (
        statement("x.y", "it's \\ so").as_string(None) == "alter system set \"x\".\"y\" =  E'it''s \\\\ so'"
    )
    assert (
        statement("search_path", 'a, "B c"').as_string(None)
        == "alter system set \"search_path\" = 'a', 'B c'"
    )
    assert statement("search_path", None).as_string(None) == 'alter system reset "search_path"'
