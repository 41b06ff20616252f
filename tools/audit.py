#!/usr/bin/env python3
"""Compares the locked dependencies with published advisories, by pip-audit (PyPI) and cargo-audit (RustSec).

Exit code 0: none applies; 1: at least one does; 2: something could not be checked, and a message names it.
Needs the network.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "target" / "audit"  # pip-audit is no dependency of the product or its tests


def main() -> int:
    statuses = [python("runtime.lock"), python("dev.lock"), rust()]
    return 1 if 1 in statuses else max(statuses)


def python(lock: str) -> int:
    program = _pip_audit()
    if program is None:
        return _unchecked(lock, "pip-audit cannot be installed: no package index is reachable")
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        done = _run([program, "--requirement", ROOT / "requirements" / lock, *options, "--output", answer])
        try:
            packages = json.loads(answer.read_text())["dependencies"]
        except (OSError, ValueError, KeyError):
            return _unchecked(lock, _last(done.stderr) or "the index of advisories is not reachable")
    skipped = [p["name"] for p in packages if "skip_reason" in p]
    if len(skipped) == len(packages):
        return _unchecked(lock, "the index of advisories is not reachable: it knows none of the packages")
    bad = [(p, v) for p in packages for v in p.get("vulns", ())]
    for package, advisory in bad:
        fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
        print(f"{lock}: {package['name']} {package['version']}: {advisory['id']}; fixed in {fixed}")
    print(f"{lock}: {len(packages) - len(skipped)} packages compared, {len(bad)} advisories apply")
    if skipped and not bad:
        return _unchecked(lock, f"not known to the index: {', '.join(skipped)}")
    return int(bool(bad))


def rust() -> int:
    if shutil.which("cargo-audit") is None:
        return _unchecked("Cargo.lock", "cargo-audit is not installed: cargo install cargo-audit --locked")
    done = _run(["cargo", "audit", "--json", "--file", ROOT / "Cargo.lock"])
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return _unchecked("Cargo.lock", _last(done.stderr) or "the index of advisories is not reachable")
    bad = answer["vulnerabilities"]["list"]
    for one in bad:
        print(f"Cargo.lock: {one['package']['name']} {one['package']['version']}: {one['advisory']['id']}")
    count = answer["lockfile"]["dependency-count"]
    print(f"Cargo.lock: {count} crates compared, {len(bad)} advisories apply")
    return int(bool(bad))


def _pip_audit() -> Path | None:
    program = TOOLS / "bin" / "pip-audit"
    if not program.exists():
        venv.create(TOOLS, with_pip=True)
        _run([TOOLS / "bin" / "python", "-m", "pip", "install", "--quiet", "pip-audit>=2.7,<3"])
    return program if program.exists() else None


def _run(words: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _unchecked(lock: str, why: str) -> int:
    print(f"{lock}: NOT CHECKED: {why}", file=sys.stderr)
    return 2


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""


if __name__ == "__main__":
    sys.exit(main())
