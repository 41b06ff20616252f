#!/usr/bin/env python3
"""Tries a wheel in a clean environment: ``python tools/try_wheel.py dist/dbdyno-...-x86_64.whl``.

It is installed with the locked packages, and ``--version``, ``analyze`` and ``run`` are run. One for another
processor runs on Debian's Python for that processor, under qemu-user (apt-get install qemu-user-static); its
packages are unpacked in build/try, and nothing is installed on this machine. Its load is on a server of this
machine, since qemu-user does not know the system call that starts commands (clone with a pidfd). Prints what
was tried.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import wheels

ROOT = wheels.ROOT
TABLE = "sessions,calls/s\n1,100\n2,190\n4,340\n8,520\n16,600\n"
SHIM = """#!/bin/sh
exec {qemu} -L {system} -0 "$0" {system}/usr/bin/python{version} "$@"
"""


def run(words: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Returns standard output. Ends the program if the command fails."""
    handed_on = ("PIP_", "SSL_", "LANG", "LC_", "PATH", "HOME")
    kept = {k: v for k, v in os.environ.items() if k.startswith(handed_on)}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def own_environment(place: Path, wheel: Path) -> Path:
    """Returns the Python of a virtual environment with the wheel, for this processor."""
    python = place / "venv" / "bin" / "python"
    run([sys.executable, "-m", "venv", place / "venv"], place)
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run([*install, "--require-hashes", "-r", wheels.LOCK], place)
    run([*install, "--no-deps", wheel], place)
    return python


def foreign_environment(place: Path, wheel: Path, arch: str) -> Path:
    """Returns the same for another processor: a program that starts its Python under qemu.

    Python takes the program for itself, so that processes that it starts with ``sys.executable`` run, too.
    """
    qemu = shutil.which(f"qemu-{arch}-static")
    if qemu is None:
        sys.exit(f"not tried: no qemu-{arch}-static: apt-get install qemu-user-static")
    system = foreign_system(arch)
    (versions,) = (system / "usr" / "lib").glob("python3.*")
    version = versions.name.removeprefix("python")
    python = place / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(SHIM.format(qemu=qemu, system=system, version=version))
    python.chmod(0o755)
    (place / "venv" / "pyvenv.cfg").write_text(f"home = {system}/usr/bin\nversion = {version}\n")
    site = place / "venv" / "lib" / f"python{version}" / "site-packages"
    wheels.install(site, wheel, arch, version)
    return python


def foreign_system(arch: str) -> Path:
    """Returns a folder with Debian's Python for the processor and the libraries that it needs."""
    system = ROOT / "build" / "try" / arch
    if (system / "usr" / "bin" / "python3").is_symlink():
        return system
    shutil.rmtree(system, ignore_errors=True)
    apt = system / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "none").mkdir()
    options = {
        "APT::Architecture": wheels.DEBIAN[arch],
        "APT::Architectures": wheels.DEBIAN[arch],
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
        "Dir::Etc::preferencesparts": apt / "none",
    }
    words = ["apt-get", "--quiet", "--assume-yes", *(f"--option={k}={v}" for k, v in options.items())]
    run([*words, "update"], ROOT)
    run([*words, "--download-only", "install", "python3", "libstdc++6"], ROOT)
    for package in sorted((apt / "archives").glob("*.deb")):
        run(["dpkg-deb", "--extract", package, system], ROOT)
    return system


@contextlib.contextmanager
def own_server(place: Path) -> Iterator[str]:
    """Yields how the embedded server of this tree is connected to."""
    dbdyno, homes = ROOT / ".venv" / "bin" / "dbdyno", {"HOME": str(place)}
    run([dbdyno, "server", "start"], place, **homes)
    try:
        yield json.loads(run([dbdyno, "server", "status", "--json"], place, **homes))["dsn"]
    finally:
        run([dbdyno, "server", "stop"], place, **homes)


def tried(python: Path, place: Path, load: Sequence[str]) -> list[str]:
    """Returns what of the program was run, with answers that are checked."""
    dbdyno = (python, "-m", "dbdyno")
    homes = {"HOME": str(place), "XDG_RUNTIME_DIR": str(place), "COLUMNS": "100"}
    version = run([*dbdyno, "--version"], place, **homes).strip()
    (place / "ladder.csv").write_text(TABLE)
    analysis = run([*dbdyno, "analyze", "ladder.csv"], place, **homes)
    if "16" not in analysis:
        sys.exit(f"analyze printed no ladder:\n{analysis}")
    words = ("run", *load, "--sessions", "1", "--measure", "1s", "--settle", "0s", "--json")
    rungs = run([*dbdyno, *words], place, **homes)
    if '"sessions": 1' not in rungs:
        sys.exit(f"run printed no load:\n{rungs}")
    return [version, "analyze", f"run {load[0]}"]


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    arch = wheel.stem.split("manylinux_2_28_")[-1]
    with tempfile.TemporaryDirectory(prefix="dbdyno-try-") as folder:
        place = Path(folder)
        if arch == platform.machine():
            python = own_environment(place, wheel)
            print(f"{arch}: {', '.join(tried(python, place, ('--command', 'true')))}")
            return
        python = foreign_environment(place, wheel, arch)
        with own_server(place) as dsn:
            print(f"{arch}, under qemu: {', '.join(tried(python, place, ('cpu', '--dsn', dsn)))}")


if __name__ == "__main__":
    main()
