"""Keeps THIRD-PARTY-LICENSES.txt: ``python tools/licences.py`` writes its part on Rust crates anew.

The part on JavaScript, before it, is kept by hand; its versions are compared with those of the bundled
files. If a crate may be used under Apache-2.0, the licence of dbdyno itself, its name is enough; the texts of
other licences are read from the crates.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from crates import Crate, shipped_crates

ROOT = Path(__file__).resolve().parents[1]
FILE = "THIRD-PARTY-LICENSES.txt"
RULE = "-" * 100
CRATES = "The core and the agent hold code of Rust crates. Under Apache-2.0, as dbdyno itself (LICENSE):"
OWN = "Apache-2.0"
ALLOWED = {
    *(OWN, "MIT", "MIT-0", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "BSL-1.0", "CC0-1.0"),
    *("Unicode-3.0", "Unlicense"),
}
"""Licences that allow a program under Apache-2.0 to hold the code."""


class Part(NamedTuple):
    """Works that have one licence text, as ``name version``."""

    works: tuple[str, ...]
    licence: str
    text: str


def parts_of(text: str) -> list[Part]:
    """Returns the parts of a file of licences that a rule stands before."""
    parts = []
    for part in text.split(f"{RULE}\n")[1:]:
        works, licence, *lines = part.split(f"\n{CRATES}\n")[0].strip().splitlines()
        parts.append(Part(tuple(works.split(", ")), licence, "\n".join(lines).strip()))
    return parts


def alternatives(licence: str) -> list[set[str]]:
    """Returns the clauses of a licence expression, each with the licences to choose from."""
    return [set(re.sub(r"[()]", "", clause).split(" OR ")) for clause in licence.split(" AND ")]


def refused(licence: str) -> bool:
    """Returns whether there is a clause without an allowed licence."""
    return not all(clause & ALLOWED for clause in alternatives(licence))


def crates_text(crates: list[Crate]) -> str:
    """Returns the part on crates: names of those under Apache-2.0, then texts of the others."""
    foreign = sorted({c for c in crates if not c.ours}, key=lambda c: (c.name, c.version))
    plain = [f"{c.name} {c.version}" for c in foreign if all(OWN in a for a in alternatives(c.licence))]
    by_text: dict[tuple[str, str], list[str]] = defaultdict(list)
    for crate in foreign:
        for clause in alternatives(crate.licence):
            if OWN not in clause:
                chosen = min(clause & ALLOWED or clause)
                by_text[chosen, licence_text(crate, chosen)].append(f"{crate.name} {crate.version}")
    pieces = [f"{CRATES}\n{', '.join(plain)}\n"]
    pieces += [
        f"{', '.join(works)}\n{licence}\n\n{text}\n" for (licence, text), works in sorted(by_text.items())
    ]
    return f"\n{RULE}\n".join(pieces)


def licence_text(crate: Crate, licence: str) -> str:
    """Returns the text that comes with the crate, that of one licence if it has several.
    Raises ValueError if it has none."""
    files = sorted(
        p for p in crate.folder.iterdir() if re.match("licen[cs]e|copying|unlicense", p.name, re.I)
    )
    named = [p for p in files if licence.split("-")[0].lower() in p.name.lower()]
    texts = [p.read_text("utf-8", "replace").strip() for p in named or files if p.is_file()]
    if not texts:
        raise ValueError(f"{crate.name} {crate.version} comes without the text of its licence {licence}")
    return "\n\n".join(texts)


def renewed(text: str, crates: list[Crate]) -> str:
    """Returns the file with its part on crates written anew."""
    return f"{text.split(CRATES)[0].rstrip()}\n\n{crates_text(crates)}"


def bundled_versions(root: Path) -> dict[str, str]:
    """Returns versions of scripts that pages hold, as the files and their bundler say."""
    import vl_convert

    bundler = (root / "tools" / "bundle_charts.py").read_text("utf-8")
    (uplot,) = re.findall(r'^UPLOT = "(.+)"', bundler, re.MULTILINE)
    newest = max(vl_convert.get_vegalite_versions(), key=lambda v: tuple(map(int, re.findall(r"\d+", v))))
    return {
        "vega": vl_convert.get_vega_version(),
        "vega-embed": vl_convert.get_vega_embed_version(),
        "vega-themes": vl_convert.get_vega_themes_version(),
        "vega-lite": newest,
        "uPlot": uplot,
    }


def faults(root: Path, crates: list[Crate], bundled: dict[str, str]) -> list[str]:
    """Returns what is wrong with licences: of crates that may not be used, or out of date in the file."""
    text = (root / FILE).read_text("utf-8")
    works = dict(work.rsplit(" ", 1) for part in parts_of(text) for work in part.works)
    wrong = [
        f"{c.name} {c.version} has the licence {c.licence or 'unknown'}" for c in crates if refused(c.licence)
    ]
    wrong += [
        f"{FILE} has {name} {works.get(name, 'nowhere')}, and {version} is bundled"
        for name, version in bundled.items()
        if not works.get(name, "").startswith(version.rstrip("."))
    ]
    if renewed(text, crates) != text:
        wrong.append(f"the part of {FILE} on crates is out of date: python tools/licences.py")
    return wrong


def main() -> int:
    """With ``--check`` prints faults; else writes the file, and then prints them."""
    crates = list(shipped_crates(ROOT).values())
    if sys.argv[1:] != ["--check"]:
        file = ROOT / FILE
        file.write_text(renewed(file.read_text("utf-8"), crates), "utf-8")
    wrong = faults(ROOT, crates, bundled_versions(ROOT))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
