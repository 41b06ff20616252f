#!/usr/bin/env python3
"""Checks what a release needs: ``python tools/release_check.py [STEP]...``; without steps, all of them.

Each step prints one line: ok with what it looked at, or failed with the reason and the cure. A step that
needs another that failed is not run. Exit code 0: all are ok; 1: at least one failed; 2: there is no such
step. Needs only the standard library; steps that build need what ``make wheels`` needs.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ARCHES = ("x86_64", "aarch64")
AGENT = "dbdyno/remote/programs/dbdyno-agent-{}"


class Failed(Exception):
    """Why a step failed, and the cure."""

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(reason)
        self.cure = cure


class Step(NamedTuple):
    """A check: what it looks at, and the step that must not have failed before."""

    check: Callable[[Path], str]
    after: str | None = None


# -- what the tree says -----------------------------------------------------------------------------
def own_version(root: Path) -> str:
    """Returns the version of the workspace, which all others have to agree with."""
    document = tomllib.loads((root / "Cargo.toml").read_text("utf-8"))
    version: str = document["workspace"]["package"]["version"]
    return version


def versions_of(root: Path) -> Iterator[tuple[str, str]]:
    """Yields each place that states the version, and what it states."""
    yield "Cargo.toml", own_version(root)
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    yield "pyproject.toml", project["version"]
    text = (root / "python" / "dbdyno" / "__init__.py").read_text("utf-8")
    yield "python/dbdyno/__init__.py", _only(r'^__version__ = "(.+)"', text)
    for package in tomllib.loads((root / "Cargo.lock").read_text("utf-8"))["package"]:
        if "source" not in package:
            yield f"Cargo.lock, {package['name']}", package["version"]
    if (citation := root / "CITATION.cff").exists():
        yield "CITATION.cff", _only(r"^version:\s*[\"']?([^\"'\s]+)", citation.read_text("utf-8"))
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        for version in re.findall(r"\bdbdyno-(\d+\.\d+\.\d+)", page.read_text("utf-8")):
            yield str(page.relative_to(root)), version


def _only(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else "no version"


def check_versions(root: Path) -> str:
    version = own_version(root)
    others = [f"{place}: {value}" for place, value in versions_of(root) if value != version]
    if others:
        cure = "make them agree; Cargo.lock: cargo update --workspace"
        raise Failed(f"Cargo.toml has {version}; {'; '.join(others)}", cure)
    return f"{version} in {len(list(versions_of(root)))} places"


def check_changelog(root: Path) -> str:
    version = own_version(root)
    text = (root / "CHANGELOG.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    section = next((s for s in sections if s.startswith(f"[{version}]")), None)
    heading = f"## [{version}] - {datetime.date.today()}"
    if section is None:
        cure = f"write {heading} below an empty ## [Unreleased]"
        raise Failed(f"CHANGELOG.md has no section for {version}", cure)
    first = section.splitlines()[0]
    if not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", first):
        raise Failed(f"CHANGELOG.md: the heading ## {first} has no date", f"write {heading}")
    entries = len(re.findall(r"^- ", section, re.MULTILINE))
    if not entries:
        raise Failed(f"CHANGELOG.md has no entry for {version}", "say what users notice")
    unreleased = next((s for s in sections if s.startswith("[Unreleased]")), "")
    if re.search(r"^- ", unreleased, re.MULTILINE):
        cure = f"move them to [{version}], or raise the version"
        raise Failed("CHANGELOG.md has entries under Unreleased", cure)
    return f"{entries} entries for {version}"


def check_tree(root: Path) -> str:
    changed = _run(["git", "status", "--porcelain"], root).splitlines()
    if changed:
        reason = f"{len(changed)} files differ from the last commit: {changed[0].strip()}"
        raise Failed(reason, "git commit, or git stash")
    version = own_version(root)
    tagged = _run(["git", "tag", "--list", f"v{version}"], root).strip()
    if tagged and not _run(["git", "tag", "--list", "--points-at", "HEAD", tagged], root).strip():
        raise Failed(
            f"the tag {tagged} is of another commit", "raise the version: a release is never changed"
        )
    return f"commit {_run(['git', 'rev-parse', '--short', 'HEAD'], root).strip()}"


def check_licences(root: Path) -> str:
    text = (root / "LICENSE").read_text("utf-8") if (root / "LICENSE").exists() else ""
    if "Apache License" not in text:
        raise Failed("LICENSE is not the Apache License", "restore it: git checkout LICENSE")
    python = root / ".venv" / "bin" / "python"
    _run([python, "tools/licences.py", "--check"], root, "python tools/licences.py")
    return "LICENSE; crates and scripts agree with THIRD-PARTY-LICENSES.txt"


def check_advisories(root: Path) -> str:
    cure = "raise the version of the dependency; where something could not be compared, try again"
    return "; ".join(_run([sys.executable, "tools/audit.py"], root, cure).splitlines())


def check_docs(root: Path) -> str:
    if not re.search(r"^docs:", (root / "Makefile").read_text("utf-8"), re.MULTILINE):
        return "no target docs in the Makefile: nothing is built"
    _make(root, "docs")
    return "make docs"


# -- what is built ----------------------------------------------------------------------------------
def check_wheels(root: Path) -> str:
    _make(root, "wheels")
    return looked_at(root / "dist", own_version(root))


def looked_at(dist: Path, version: str) -> str:
    """Returns what a folder of a release holds. Raises Failed for what is missing or wrong."""
    named = {f"dbdyno-{version}.tar.gz", f"dbdyno-{version}.cdx.json"}
    wheels = [f"dbdyno-{version}-cp311-abi3-manylinux_2_28_{arch}.whl" for arch in ARCHES]
    files = {p.name for p in dist.iterdir()} if dist.is_dir() else set()
    if missing := sorted({*named, *wheels, "SHA256SUMS"} - files):
        raise Failed(f"dist lacks {', '.join(missing)}", "make wheels")
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    sums = dict(line.split(maxsplit=1)[::-1] for line in lines)
    for name in sorted(named | set(wheels)):
        if sums.get(name) != hashlib.sha256((dist / name).read_bytes()).hexdigest():
            raise Failed(f"SHA256SUMS does not fit {name}", "make wheels")
    for wheel in wheels:
        _check_wheel(dist / wheel, version)
    return f"{len(wheels)} wheels, sources, bill of materials, checksums"


def _check_wheel(wheel: Path, version: str) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    inside = f"dbdyno-{version}.dist-info"
    needed = [*(AGENT.format(arch) for arch in ARCHES), f"{inside}/sboms/dbdyno.cdx.json"]
    needed += [f"{inside}/licenses/LICENSE", f"{inside}/licenses/THIRD-PARTY-LICENSES.txt"]
    needed += ["dbdyno/present/assets/vega.js", "dbdyno/present/assets/uplot.js"]
    needed += [f"dbdyno-{version}.data/data/share/man/man1/dbdyno.1"]
    if missing := [name for name in needed if name not in names]:
        raise Failed(f"{wheel.name} lacks {', '.join(missing)}", "make wheels; uPlot needs npm")


def check_sources(root: Path) -> str:
    """Builds the sources in a clean environment, as pip does where there is no wheel."""
    (sources,) = (root / "dist").glob("dbdyno-*.tar.gz")
    with tempfile.TemporaryDirectory() as place:
        python = Path(place) / "venv" / "bin" / "python"
        _run([sys.executable, "-m", "venv", Path(place) / "venv"], root)
        _run(
            [python, "-m", "pip", "install", "--quiet", "--no-deps", sources],
            root,
            "see what the sources lack",
        )
        held = _run([python, "-c", "import dbdyno._core as core; print(core.__file__)"], Path(place))
    return f"{sources.name} builds: {Path(held.strip()).name}"


def check_trial(root: Path) -> str:
    """Installs each wheel in a clean environment and runs it; see tools/try_wheel.py."""
    wheels = sorted((root / "dist").glob("*.whl"))
    lines = [_run([sys.executable, "tools/try_wheel.py", wheel], root).splitlines()[-1] for wheel in wheels]
    return "; ".join(lines)


def check_reproducible(root: Path) -> str:
    """Builds everything again from the commit in another folder, and compares with dist byte by byte."""
    epoch = _run(["git", "log", "-1", "--format=%ct"], root).strip()
    with tempfile.TemporaryDirectory(prefix="dbdyno-again-") as place:
        tree = Path(place)
        _run(["sh", "-c", 'git archive HEAD | tar -x -C "$1"', "sh", tree], root)
        _make(tree, "wheels", f"SOURCE_DATE_EPOCH={epoch}", f"VENV={root / '.venv'}")
        return compared(root / "dist", tree / "dist")


def compared(dist: Path, again: Path) -> str:
    """Returns how many files are equal. Raises Failed with the members of an archive that differ."""
    names = sorted(p.name for p in again.glob("dbdyno-*") if p.suffix != ".deb")
    for name in names:
        a, b = dist / name, again / name
        if not a.exists() or a.read_bytes() != b.read_bytes():
            members = ", ".join(differing(a, b)) if a.suffix == ".whl" and a.exists() else "all of it"
            raise Failed(f"{name} differs when it is built again: {members}", "compare both with diffoscope")
    return f"{len(names)} files are the same, byte by byte, built in another folder"


def differing(a: Path, b: Path) -> list[str]:
    """Returns members of two archives that differ."""
    left, right = zipfile.ZipFile(a), zipfile.ZipFile(b)
    one, other = ({i.filename: i.CRC for i in archive.infolist()} for archive in (left, right))
    members = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    return members or ["times or order of members"]


def check_deb(root: Path) -> str:
    if shutil.which("dpkg-deb") is None:
        return "not built: no dpkg-deb here"
    return _make(root, "deb").splitlines()[-1]


STEPS: dict[str, Step] = {
    "tree": Step(check_tree),
    "versions": Step(check_versions),
    "changelog": Step(check_changelog),
    "licences": Step(check_licences),
    "advisories": Step(check_advisories),
    "docs": Step(check_docs),
    "wheels": Step(check_wheels),
    "sources": Step(check_sources, after="wheels"),
    "trial": Step(check_trial, after="wheels"),
    "reproducible": Step(check_reproducible, after="wheels"),
    "deb": Step(check_deb, after="wheels"),
}


# -- running ----------------------------------------------------------------------------------------
def _run(words: Sequence[str | Path], folder: Path, cure: str = "run it by hand") -> str:
    """Returns standard output. Raises Failed with the last line of the program's output if it fails."""
    done = subprocess.run([str(w) for w in words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise Failed(f"{' '.join(map(str, words[:4]))}: {lines[-1][:300]}", cure)
    return done.stdout


def _make(root: Path, target: str, *variables: str) -> str:
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # of the make that runs this program
        os.environ.pop(name, None)
    return _run(["make", target, *variables], root, f"make {target}")


def main(names: Sequence[str]) -> int:
    if unknown := [name for name in names if name not in STEPS]:
        print(f"no step {', '.join(unknown)}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    failed: set[str] = set()
    for name in names or STEPS:
        step = STEPS[name]
        try:
            if step.after in failed:
                raise Failed(f"not run, since {step.after} failed", f"first mend {step.after}")
            print(f"ok      {name}: {step.check(ROOT)}", flush=True)
        except Failed as fault:
            failed.add(name)
            print(f"failed  {name}: {fault}\n        {fault.cure}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
