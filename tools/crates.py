"""Crates whose code is in a wheel: in the core, or in the agent for other hosts.

``cargo metadata`` lists them. Crates of tests and build scripts are left out; macros count as code.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("dyno-py", "dyno-agent")
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


class Crate(NamedTuple):
    """A crate at one version. ``needs`` has the ids of crates that it uses."""

    name: str
    version: str
    licence: str
    folder: Path
    ours: bool
    needs: tuple[str, ...]


def shipped_crates(root: Path) -> dict[str, Crate]:
    """Returns crates by id, our own ones and the locked versions of all that they use."""
    words = ["cargo", "metadata", "--locked", "--format-version=1"]
    for platform in PLATFORMS:
        words += ["--filter-platform", platform]
    answer = json.loads(subprocess.run(words, cwd=root, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in answer["packages"]}
    needs = {
        node["id"]: tuple(d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"]))
        for node in answer["resolve"]["nodes"]
    }
    ahead = [name for name, package in packages.items() if package["name"] in PROGRAMS]
    crates: dict[str, Crate] = {}
    while ahead:
        name = ahead.pop()
        if name not in crates:
            crates[name] = _crate(packages[name], needs[name])
            ahead += needs[name]
    return crates


def _crate(package: dict[str, str], needs: tuple[str, ...]) -> Crate:
    folder = Path(package["manifest_path"]).parent
    licence = re.sub(r"\s*/\s*", " OR ", package["license"] or "")
    return Crate(
        package["name"], package["version"], licence, folder, package["source"] is None, tuple(sorted(needs))
    )
