"""A suite of equal variants, in which no row should differ, and suites with known differences."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EQUAL = "[variants.a]\n[variants.b]\n"
KNOWN = {
    "fsync off": '[variants.on]\n[variants.off]\nsettings = { fsync = "off" }\n',
    "statements and statistics logged": "[variants.plain]\n[variants.debug]\nsettings = { "
    + ", ".join(
        f'{name} = "{value}"'
        for name, value in (
            ("log_statement", "all"),
            *((f"log_{part}_stats", "on") for part in ("parser", "planner", "executor")),
        )
    )
    + " }\n",
}
ONLY = "point-select,insert,update-plain,savepoints,sort,sequential-scan"


def main(matrices: int, _seconds: float) -> None:
    """Prints the false differences of ``matrices`` suites, then what is found of each known difference."""
    rows = [row for _ in range(matrices) for row in _suite(EQUAL)["rows"]]
    for field, title in (("contrasts", "throughput"), ("cpu", "CPU per call")):
        verdicts = [c["verdict"] for r in rows for c in r[field]]
        false = sum(v in ("better", "worse") for v in verdicts)
        print(
            f"{title}: {false} false differences in {len(verdicts)} rows of {matrices} matrices", flush=True
        )
    for name, recipe in KNOWN.items():
        found = _suite(recipe, "--profile", "--only", ONLY)
        print(f"{name}:")
        for row in found["rows"]:
            for cause in row["causes"].values():
                print(f"  {cause['claim']['text']}", flush=True)


def _suite(recipe: str, *words: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "variants.toml")
        file.write_text(recipe, encoding="utf-8")
        command = [sys.executable, "-m", "dbdyno", "run", "--suite", "micro", "--recipe", str(file), "--json"]
        run = subprocess.run(
            [*command, "--store", str(Path(folder, "store")), *words], stdout=subprocess.PIPE, check=True
        )
        return dict(json.loads(run.stdout))
