"""Writes the public address of the repository wherever a file needs it.

usage: python tools/repository_address.py https://HOST/OWNER/dbdyno

That is in pyproject.toml (urls, which a package index shows), CITATION.cff and the examples of docs/gates.md.
All other links within the repository are relative. A second call replaces the first address.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ADDRESS = re.compile(r"https://[\w.-]+/(?P<owner>[\w.-]+)/(?P<name>[\w.-]+)")
_URLS = re.compile(
    r"^\[project\.urls\]\n(?:\w+ = .*\n)*\n|^(?=\[project\.optional-dependencies\]$)", re.MULTILINE
)
_CODE = re.compile(r"^repository-code: .*\n|^(?=license: )", re.MULTILINE)
_USES = re.compile(r"(?<=uses: )[\w.-]+/[\w.-]+(?=@v1$)", re.MULTILINE)


def pyproject(text: str, address: str) -> str:
    pages = {
        "Repository": "",
        "Documentation": "/tree/main/docs",
        "Changelog": "/blob/main/CHANGELOG.md",
        "Issues": "/issues",
        "Security": "/security",
    }
    lines = "".join(f'{name} = "{address}{page}"\n' for name, page in pages.items())
    return _URLS.sub(f"[project.urls]\n{lines}\n", text, count=1)


def citation(text: str, address: str) -> str:
    return _CODE.sub(f"repository-code: {address}\n", text, count=1)


def examples(text: str, address: str) -> str:
    """Replaces the repository of the action in a page: ``OWNER/dbdyno@v1``."""
    found = _ADDRESS.fullmatch(address)
    assert found is not None
    return _USES.sub(f"{found['owner']}/{found['name']}", text)


FILES = {"pyproject.toml": pyproject, "CITATION.cff": citation, "docs/gates.md": examples}


def main(address: str, root: Path = ROOT) -> int:
    address = address.rstrip("/")
    if not _ADDRESS.fullmatch(address):
        print(f"{address}: not an address of a repository, https://HOST/OWNER/NAME", file=sys.stderr)
        return 2
    for name, change in FILES.items():
        path = root / name
        path.write_text(change(path.read_text("utf-8"), address), encoding="utf-8")
        print(name)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
