"""Forged stores, recipes and files of numbers lead to clear errors and never out of the store."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner
from tests.fakery import climb

from dbdyno.cli.app import app
from dbdyno.conduct.derive.rebuild import conclude
from dbdyno.model.errors import DbdynoError, StoreError
from dbdyno.model.schema.derived import REGISTERED
from dbdyno.store import Run, RunStore

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run with the parts that it was derived from."""
    climbed = climb("fake:cpu=50ms,wait=IO/Read:10ms", [1, 2])
    run = RunStore(tmp_path_factory.mktemp("whole")).create(climbed.plan, workloads=climbed.info.workloads)
    run.write_environment(climbed.environment)
    for cell in climbed.cells:
        run.write_cell(cell)
    conclude(run)
    run.finish("complete")
    return run.path


@pytest.fixture
def run(complete_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the complete run in a store of its own, which the commands use."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path / "store"))
    return Path(shutil.copytree(complete_run, tmp_path / "store" / complete_run.name))


class Done(NamedTuple):
    exit_code: int
    output: str


def dbdyno(*words: str) -> Done:
    """Runs a command and returns its exit code and text; raises any error that is not dbdyno's."""
    try:
        done = CliRunner().invoke(app, words, catch_exceptions=False, standalone_mode=False)
        return Done(done.exit_code, done.output)
    except DbdynoError as error:
        return Done(error.exit_code, str(error))


def rename(run: Path, identity: str) -> None:
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"id": identity}))


@pytest.mark.parametrize(
    "identity",
    ["../../escaped", "/tmp/dbdyno-escaped", "20260101-000000-lio-beef", ".", "", "x" * 10_000, "a\x1b[2Jb"],
)
def test_an_id_that_is_not_the_directory_s_name_is_refused(run: Path, identity: str, tmp_path: Path) -> None:
    rename(run, identity)
    before = sorted(tmp_path.rglob("*"))
    for words in (
        ("show", run.name),
        ("report", run.name),
        ("rebuild", run.name),
        ("compare", run.name),
        ("export", run.name, "--to", "csv"),
        ("export", run.name, "--to", "json"),
        ("show", run.name, "--profile"),
    ):
        done = dbdyno(*words)
        assert done.exit_code == 4, words
        assert "the id in run.json" in done.output and len(done.output) < 600
    assert sorted(tmp_path.rglob("*")) == before
    assert "broken" in dbdyno("runs").output
    assert dbdyno("rm", "--yes", run.name).output == f"removed {run.name}\n"
    assert not run.exists()


def test_a_directory_of_a_name_that_is_no_id_is_refused(run: Path) -> None:
    odd = run.rename(run.with_name("20260101-000000-a b;c-beef"))
    rename(odd, odd.name)
    assert "the id in run.json" in dbdyno("show", odd.name).output


def test_rm_of_a_link_removes_the_link(run: Path, tmp_path: Path) -> None:
    target = run.rename(tmp_path / "precious")
    run.symlink_to(target)
    assert dbdyno("rm", "--yes", run.name).exit_code == 0
    assert not run.is_symlink() and (target / "run.json").exists()


def test_links_in_a_run_are_replaced_and_not_followed(run: Path, tmp_path: Path) -> None:
    victim, away = tmp_path / "victim", tmp_path / "away"
    victim.write_text("precious")
    away.mkdir()
    (away / "kept").write_text("precious")
    shutil.rmtree(run / "derived")
    (run / "derived").symlink_to(away)
    (run / "report.html").symlink_to(victim)
    writer = f"{os.getpid()}-{threading.get_native_id()}"
    planted = {run / f".report.html.tmp-{writer}", run / f".tmp-derived-{writer}"}
    for link in planted:
        link.symlink_to(away if "derived" in link.name else victim)
    assert dbdyno("rebuild", run.name).exit_code == 0
    assert victim.read_text() == "precious" and (away / "kept").read_text() == "precious"
    assert not (run / "derived").is_symlink() and not (run / "report.html").is_symlink()
    # a thread of another number may have written
    assert {p for p in run.iterdir() if ".tmp-" in p.name} <= planted


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 42)


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


def other_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\x00\xfe" * 100)


DAMAGES = [fifo, zero, directory, huge, nested, other_bytes]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name", ["run.json", "plan.json", "environment.json", "derived/manifest.json", "derived/rungs.parquet"]
)
def test_what_is_no_regular_file_in_a_run_is_an_error_or_derived_anew(
    run: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(run / name)
    done = dbdyno("show", run.name)
    assert done.exit_code == (0 if name.startswith("derived") else 4), done.output  # derived anew
    assert dbdyno("runs").exit_code == 0
    assert dbdyno("rm", "--yes", run.name).exit_code == 0


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["manifest.json", "cell.json", "samples.parquet"])
def test_a_cell_with_what_is_no_regular_file_is_left_out(
    run: Path, name: str, damage: Callable[[Path], None]
) -> None:
    cells = sorted((run / "cells").iterdir())
    damage(cells[0] / name)
    sound, damaged = Run(run).read_cells()
    assert ([c.id for c in sound], [d.id for d in damaged]) == ([cells[1].name], [cells[0].name])


def write_signed(run: Path, part: str, name: str, content: bytes) -> None:
    """Writes a file of a run and its checksum into the manifest."""
    (run / part / name).write_bytes(content)
    manifest = json.loads((run / part / "manifest.json").read_text())
    manifest[name] = hashlib.sha256(content).hexdigest()
    (run / part / "manifest.json").write_text(json.dumps(manifest))


def _broken_parquet(content: bytes) -> dict[str, bytes]:
    buffer = io.BytesIO()
    pl.DataFrame({"sessions": ["x"], "nothing": [[1, 2]]}).write_parquet(buffer)
    middle = bytearray(content)
    for i in range(8, len(content) - 8, 13):
        middle[i] ^= 0x5A
    footer = bytearray(content)
    for i in range(max(4, len(content) - 600), len(content) - 8, 3):
        footer[i] ^= 0xFF
    return {
        "empty": b"",
        "text": b"no parquet",
        "cut": content[: len(content) // 2],
        "other columns": buffer.getvalue(),
        "noise in the middle": bytes(middle),
        "noise in the footer": bytes(footer),
        "footer of 4 GB": content[:-8] + b"\xff\xff\xff\xff" + content[-4:],
    }


@pytest.mark.parametrize("kind", _broken_parquet(b"x" * 100))
def test_parquet_that_is_forged_under_a_right_checksum_is_damaged(run: Path, kind: str) -> None:
    forged = _broken_parquet((run / "derived" / "rungs.parquet").read_bytes())[kind]
    write_signed(run, "derived", "rungs.parquet", forged)
    with pytest.raises(StoreError, match="are damaged"):
        Run(run).read_derived()
    cell = sorted((run / "cells").iterdir())[0]
    forged = _broken_parquet((cell / "samples.parquet").read_bytes())[kind]
    write_signed(run, f"cells/{cell.name}", "samples.parquet", forged)
    assert [d.id for d in Run(run).read_cells()[1]] == [cell.name]


def test_json_that_is_forged_under_a_right_checksum_is_damaged(run: Path) -> None:
    for content in (b"[" * 100_000, b"null", b'[{"id": 1}]', b"\xff"):
        write_signed(run, "derived", "findings.json", content)
        with pytest.raises(StoreError, match="are damaged"):
            Run(run).read_derived()


def test_figures_that_are_forged_under_a_right_checksum_are_unknown_or_damaged(run: Path) -> None:
    """Values that are no figures are unknown, or their table is damaged; in every column of every table."""
    values = cycle([float("nan"), float("inf"), -1e308, 1e29])
    sound: list[tuple[str, bytes]] = []
    original = Path(shutil.copytree(run / "derived", run.parent.parent / "kept"))
    for file, value in zip(sorted(original.glob("*.parquet")), values, strict=False):
        buffer = io.BytesIO()
        forged = pl.read_parquet(file).with_columns(pl.selectors.float() * 0 + value)
        forged.write_parquet(buffer)
        write_signed(run, "derived", file.name, buffer.getvalue())
        if _no_nonsense("show", "last") == 0:
            sound.append((file.name, buffer.getvalue()))
        shutil.rmtree(run / "derived")  # the command may have derived it anew
        shutil.copytree(original, run / "derived")
    for name, content in sound:  # a page takes ten times as long: one for all of them
        write_signed(run, "derived", name, content)
    _no_nonsense("report", "last")


NOT_ASKED_FOR = ("cpu_stacks", "sleep_code", "system_calls")


@pytest.mark.parametrize(
    "table", [t for t, r in REGISTERED.items() if r.sessions != "none" and t not in NOT_ASKED_FOR]
)
def test_parts_that_are_forged_under_a_right_checksum_are_damaged(run: Path, table: str) -> None:
    """Rows of single sessions are read only when they are shown: their table is damaged or has no
    nonsense."""
    (part,) = (run / "parts").iterdir()
    file = part / f"{table}.sessions.parquet"
    for content in _broken_parquet(file.read_bytes()).values():
        write_signed(run, f"parts/{part.name}", file.name, content)
        with pytest.raises(StoreError) as e:
            Run(run).parts.of_sessions(table)
        assert e.value.cure
    assert _no_nonsense("show", "last", "--microstates") == (4 if table == "microstates" else 0)


def _no_nonsense(*words: str) -> int:
    done = dbdyno(*words)
    assert done.exit_code in (0, 4) and "nan" not in done.output and "inf " not in done.output
    return done.exit_code


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e308", "9" * 400, "9" * 5000])
def test_numbers_that_are_forged_in_json_make_a_run_damaged(run: Path, number: str) -> None:
    for name in ("run.json", "environment.json", "plan.json"):
        text = (run / name).read_text()
        (run / name).write_text(re.sub(r"(: )(\d+)(,?\n)", rf"\g<1>{number}\3", text, count=1))
        assert number in (run / name).read_text()
        done = dbdyno("show", "last")
        assert done.exit_code == 4 and "is damaged" in done.output, name
        (run / name).write_text(text)


@pytest.mark.parametrize("name", ["run.json", "environment.json", "plan.json"])
def test_a_file_that_is_no_json_is_named_with_its_line_and_a_remedy_that_works(run: Path, name: str) -> None:
    (run / name).write_text('{\n "a": garbage')
    done = dbdyno("show", run.name)
    assert done.exit_code == 4
    assert name in done.output and "line 2, column 7" in done.output
    remedy = f"dbdyno rm {run.name}"
    assert remedy in done.output
    assert dbdyno(*remedy.split()[1:], "--yes").exit_code == 0 and not run.exists()


def test_a_manifest_that_names_a_file_elsewhere_is_refused(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    for name in ("../../../secret", str(secret), "..", "", "a\0b"):
        (run / "derived" / "manifest.json").write_text(json.dumps({name: digest}))
        with pytest.raises(StoreError):
            Run(run).read_derived()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "words",
    ["recipes check {}.toml", "run --dry-run --script {}.sql", "compare {}.txt {}2.txt", "analyze {}.csv"],
)
def test_a_file_of_the_user_that_is_no_regular_file_is_refused(
    run: Path, words: str, damage: Callable[[Path], None]
) -> None:
    del run  # the fixture sets the store and the directory
    for ending in (".toml", ".sql", ".txt", "2.txt", ".csv"):
        path = Path(f"odd{ending}")
        path.write_text("")
        damage(path)
    done = dbdyno(*words.replace("{}", str(Path.cwd() / "odd")).split())
    if damage is nested and "--script" in words:
        return  # without a server it may be SQL
    assert done.exit_code == 2, done.output


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "[a" + ".a" * 5_000 + "]", "a = " + "{a=" * 100_000]
)
def test_toml_that_is_nested_too_deep_is_refused(run: Path, text: str) -> None:
    del run
    Path("deep.toml").write_text(text)
    assert dbdyno("recipes", "check", "deep.toml").exit_code == 2
