"""Compares what two checkouts make of the same stored runs.

usage: python tools/same.py OLD [NEW] [--keep DIRECTORY]
       python tools/same.py --image DIRECTORY
       python tools/same.py --golden [PART]

OLD and NEW (default: the checkout of this file) are checkouts that were built with `make build`. Each derives
the runs of tests/golden/corpus again and writes all that users see of them: derived tables, JSON, text at 80
and 160 columns, page, Markdown, workbook, and the help of every command. What differs is printed, at most 40
lines for each file; then the exit code is 1. With --image, only this checkout's files are written. With
--golden, the texts at 80 columns become those of tests/golden/screens, by which `make test` judges the tree;
of PART alone where it is given: help, cases, or the directory of a stored run.

The program runs inside one process, by tests/in_process.py of each checkout: 700 starts of it would take half
an hour.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "1"  # sums in several threads differ in their last digit
ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "golden" / "corpus"
SCREENS = ROOT / "tests" / "golden" / "screens"
WIDTHS = (80, 160)
_SHOWN = 40  # lines of a file's differences
_WIDEST = 300  # characters of such a line


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("old", type=Path, nargs="?")
    arguments.add_argument("new", type=Path, nargs="?", default=ROOT)
    arguments.add_argument("--keep", type=Path, help="directory for both images")
    arguments.add_argument("--image", type=Path, help="write this checkout's image alone")
    arguments.add_argument(
        "--golden", nargs="?", const="", metavar="PART", help="write tests/golden/screens anew"
    )
    options = arguments.parse_args()
    if options.golden:
        write_part(options.golden, SCREENS, CORPUS, screens=True)
        return 0
    if options.golden is not None:
        shutil.rmtree(SCREENS, ignore_errors=True)
        write_image(SCREENS, CORPUS, screens=True)
        return 0
    if options.image:
        write_image(options.image.resolve(), CORPUS)
        return 0
    if not options.old:
        arguments.error("OLD or --image or --golden is missing")
    with tempfile.TemporaryDirectory() as temporary:
        kept = (options.keep or Path(temporary)).resolve()
        checkouts = {"old": options.old.resolve(), "new": options.new.resolve()}
        with ThreadPoolExecutor(2) as both:
            list(both.map(lambda side: image_of(checkouts[side], kept / side), checkouts))
        differing = differences(kept / "old", kept / "new")
    for name, lines in differing.items():
        print(f"== {name}", *lines, sep="\n")
    print(f"{len(differing)} files differ" if differing else "no file differs")
    return 1 if differing else 0


def image_of(checkout: Path, into: Path) -> None:
    """Writes a checkout's image by its own interpreter. Raises :class:`subprocess.CalledProcessError`."""
    shutil.rmtree(into, ignore_errors=True)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import same; from pathlib import Path; "
    program += "same.write_image(*map(Path, sys.argv[2:]))"
    paths = map(str, (ROOT / "tools", into, CORPUS))
    path = os.pathsep.join((str(checkout), str(checkout / "tests" / "entry_points")))
    python = checkout / ".venv" / "bin" / "python"
    subprocess.run(
        [python, "-c", program, *paths], check=True, cwd=checkout, env={**os.environ, "PYTHONPATH": path}
    )


def differences(old: Path, new: Path) -> dict[str, list[str]]:
    """Returns unified differences by file, shortened; a single line for a file that only one side has."""
    files = [f.relative_to(side) for side in (old, new) for f in side.rglob("*") if f.is_file()]
    names = sorted(set(map(str, files)))
    differing = {}
    for name in names:
        if not (old / name).exists() or not (new / name).exists():
            differing[name] = [f"only {'new' if (new / name).exists() else 'old'}"]
        elif (old / name).read_bytes() != (new / name).read_bytes():
            differing[name] = _difference((old / name).read_text("utf-8"), (new / name).read_text("utf-8"))
    return differing


def _difference(old: str, new: str) -> list[str]:
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "old", "new", lineterm="", n=0))[2:]
    more = [f"... and {len(lines) - _SHOWN} more lines"] if len(lines) > _SHOWN else []
    return [line[:_WIDEST] for line in lines[:_SHOWN]] + more


def write_image(into: Path, corpus: Path, *, screens: bool = False) -> None:
    """Writes everything that this checkout's program shows of the corpus, a file per view and run.

    Refusals are views, too. ``screens`` writes only texts at 80 columns. Raises :class:`RuntimeError` if a
    command ends with an internal error.
    """
    for part in parts(corpus):
        write_part(part, into, corpus, screens=screens)


def parts(corpus: Path) -> list[str]:
    """Returns the parts of an image that can be written separately: the stored runs, the commands of
    cases.toml (``cases``), and all texts of ``--help`` (``help``)."""
    with tarfile.open(corpus / "runs.tar.xz") as archive:
        plans = [Path(name) for name in archive.getnames() if Path(name).name == "plan.json"]
    return [*sorted(plan.parts[0] for plan in plans if len(plan.parts) == 2), "cases", "help"]


def write_part(part: str, into: Path, corpus: Path, *, screens: bool) -> None:
    """Writes one of :func:`parts` of the corpus, as :func:`write_image` does."""
    with tempfile.TemporaryDirectory(prefix="dbdyno-same-") as temporary:
        Image(into, corpus, Path(temporary), part, screens=screens).write(part)


class Image:
    """Writes the views of a corpus into a directory."""

    def __init__(self, into: Path, corpus: Path, work: Path, part: str, *, screens: bool) -> None:
        self._into, self._work, self._corpus, self._screens = into, work, corpus, screens
        with tarfile.open(corpus / "runs.tar.xz") as archive:
            needed = [m for m in archive if part == "cases" or Path(m.name).parts[:1] == (part,)]
            archive.extractall(work / "store", needed, filter="data")  # takes longer than to show a run
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(("DBDYNO_", "PG", "XDG_"))} | {
            "HOME": str(work),
            "DBDYNO_CONFIG": "",
            "NO_COLOR": "1",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def write(self, part: str) -> None:
        if part == "help":
            self._help(())
        elif part == "cases":
            cases = tomllib.loads((self._corpus / "cases.toml").read_text("utf-8"))
            for name, case in cases.items():
                self._case(name, case["words"])
        else:
            self._run(part)

    def _views(self) -> list[str]:
        """Returns the options of ``show`` that select views and take no value."""
        text = self._output("show", "--help")
        names = re.findall(r"^  --([a-z-]+)  +[A-Z]", text, re.MULTILINE)
        return [name for name in names if name not in ("json", "help")]

    def _run(self, run: str) -> None:
        stored = f"--store={self._work / 'store'}"
        kind = json.loads((self._work / "store" / run / "run.json").read_text("utf-8")).get("name") or run
        self._save(f"{kind}/rebuild.txt", self._output("rebuild", run, stored))
        for view in (None, *self._views()):
            option = [f"--{view}"] if view else []
            self._texts(f"{kind}/show-{view or 'all'}-{{}}.txt", "show", run, *option, stored)
            if not self._screens:
                name = f"{kind}/show-{view or 'all'}.json"
                self._save(name, self._output("show", run, *option, "--json", stored))
        if self._screens:
            self._output("show", run, "--json", stored)  # which is validated
            return
        for table in sorted((self._work / "store" / run / "derived").glob("*.parquet")):
            self._save(f"{kind}/derived/{table.stem}.ndjson", _rows(table))
        for medium in ("html", "md", "xlsx"):
            self._report(f"{kind}/report.{medium}", "report", run, stored)

    def _case(self, name: str, words: Sequence[str]) -> None:
        """Runs a command of cases.toml. ``{store}`` and ``{corpus}`` stand for paths."""
        whole = [w.format(store=self._work / "store", corpus=self._corpus) for w in words]
        self._texts(f"{name}/text-{{}}.txt", *whole)
        printed = self._output(*whole, "--json")
        if self._screens:
            return
        self._save(f"{name}/out.json", printed)
        for medium in ("html", "md", "xlsx"):
            self._report(f"{name}/report.{medium}", *whole)

    def _texts(self, name: str, *words: str) -> None:
        """Saves the output of a command under ``name``, in which braces stand for the width."""
        for width in WIDTHS[:1] if self._screens else WIDTHS:
            self._save(name.format(width), self._output(*words, width=width))

    def _report(self, name: str, *words: str) -> None:
        path = self._work / Path(name).name
        path.unlink(missing_ok=True)
        refusal = self._output(*words, "-o", str(path))
        if not path.exists():
            self._save(f"{name}.txt", refusal)
        elif path.suffix == ".xlsx":
            for member, text in _members(path):
                self._save(f"{name}/{member}", text)
        else:
            self._save(name, path.read_text("utf-8").replace("><", ">\n<"))

    def _help(self, command: tuple[str, ...]) -> None:
        text = self._output(*command, "--help")
        name = "-".join(command) or "dbdyno"
        self._save(f"help/{name}.txt", text)
        if "  --help-all " in text:
            self._save(f"help/{name}-all.txt", self._output(*command, "--help-all"))
        for name in _subcommands(command):
            self._help((*command, name))

    def _output(self, *words: str, width: int = 100) -> str:
        from tests.in_process import dbdyno

        done = dbdyno(words, {**self._env, "COLUMNS": str(width)}, self._work)
        if done.returncode == 1:
            raise RuntimeError(f"dbdyno {' '.join(words)}: internal error\n{done.stderr}")
        refused = f"\n-- exit code {done.returncode}\n" if done.returncode else ""
        return done.stdout + refused + _PROGRESS.sub("", done.stderr)

    def _save(self, name: str, text: str) -> None:
        path = self._into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(str(self._work), "WORK").replace(str(self._corpus), "CORPUS"), "utf-8")


def _subcommands(command: tuple[str, ...]) -> list[str]:
    """Returns the names of a command's own commands, hidden ones included."""
    import click

    from dbdyno.cli.app import app

    place: click.Command | None = app
    for name in command:
        assert isinstance(place, click.Group)
        place = place.get_command(click.Context(place), name)
    return place.list_commands(click.Context(place)) if isinstance(place, click.Group) else []


_PROGRESS = re.compile(r"^Deriving run \S+: \d+ of \d+\n", re.MULTILINE)
"""Output that appears only if deriving takes longer than two seconds."""


def _rows(table: Path) -> str:
    import polars as pl

    frame = pl.read_parquet(table)
    heads = ", ".join(f"{name}: {kind}" for name, kind in frame.schema.items())
    return f"{heads}\n{frame.write_ndjson()}"


def _members(workbook: Path) -> Iterator[tuple[str, str]]:
    """Yields the XML parts of a workbook, one tag per line, without the part that has the time of writing."""
    with zipfile.ZipFile(workbook) as parts:
        for name in sorted(parts.namelist()):
            if name != "docProps/core.xml":
                yield name, parts.read(name).decode("utf-8").replace("><", ">\n<")


if __name__ == "__main__":
    sys.exit(main())
