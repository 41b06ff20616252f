"""Installs a wheel and the locked packages for any processor, without running them; the time of a build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "runtime.lock"
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names of processors."""
_TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014")


def epoch() -> int:
    """Returns the time of all that a build writes, in seconds: the commit's, from the Makefile; else 1980."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))


def install(site: Path, wheel: Path, arch: str, python: str) -> None:
    """Installs into a folder of packages, for a processor and a version of Python."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    words += ["--target", str(site), "--no-deps", "--only-binary=:all:", "--python-version", python]
    for tag in _TAGS:
        words += ["--platform", f"{tag}_{arch}"]
    subprocess.run([*words, "--require-hashes", "-r", str(LOCK)], check=True)
    subprocess.run([*words, "--upgrade", str(wheel)], check=True)
