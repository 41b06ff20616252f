#!/usr/bin/env python3
"""Checks that a tag is that of this tree's version and in CHANGELOG.md; prints the version's changes.

usage: python3 tools/check_tag.py v1.2.3
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def changes(changelog: str, version: str) -> str:
    """Returns the text of a version in CHANGELOG.md. Raises :class:`ValueError` if it has no such version."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise ValueError(f"CHANGELOG.md has no version {version}: rename [Unreleased], and add the date")
    return found[1].strip()


def main(tag: str, root: Path = ROOT) -> int:
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if tag != f"v{version}":
        print(f"the tag is {tag}, and pyproject.toml has version {version}: tag v{version}", file=sys.stderr)
        return 1
    try:
        print(changes((root / "CHANGELOG.md").read_text("utf-8"), version))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
