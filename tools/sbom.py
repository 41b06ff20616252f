"""Writes a bill of materials in the CycloneDX format: ``build/release/bin/python tools/sbom.py FILE``.

It lists the crates of the core and the agent, the scripts that pages hold, and the locked Python packages;
``--bundled`` leaves the packages out: what is inside of a wheel. From the same sources and SOURCE_DATE_EPOCH
it writes the same bytes. Needs what requirements/release.lock has, and cargo.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from crates import Crate, shipped_crates
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from licences import FILE, parts_of
from packageurl import PackageURL
from wheels import epoch

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = SchemaVersion.V1_6
_LICENCES = LicenseFactory()


def component(kind: str, name: str, version: str, licence: str) -> Component:
    """Returns a library of an ecosystem (``kind`` as in package URLs)."""
    purl = PackageURL(kind, None, name, version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[_LICENCES.make_from_string(licence)] if licence else [],
    )


def scripts(text: str) -> Iterable[Component]:
    """Yields the JavaScript libraries that the file of licences names."""
    for part in parts_of(text):
        for work in part.works:
            name, version = work.rsplit(" ", 1)
            yield component("npm", name, version, part.licence)


def packages() -> Iterable[Component]:
    """Yields the locked Python packages, as cyclonedx-py reads them."""
    words = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    lock = ROOT / "requirements" / "runtime.lock"
    answer = subprocess.run([*words, lock], check=True, capture_output=True).stdout
    bom: Bom = Bom.from_json(json.loads(answer))  # type: ignore[attr-defined]
    yield from bom.components


def add_crates(bom: Bom, crates: dict[str, Crate]) -> list[Component]:
    """Adds crates and what each of them needs. Returns those that dbdyno itself names."""
    made = {key: component("cargo", c.name, c.version, c.licence) for key, c in crates.items()}
    for key, crate in crates.items():
        bom.components.add(made[key])
        bom.register_dependency(made[key], [made[need] for need in crate.needs])
    return [made[key] for key, crate in crates.items() if crate.ours]


def bill(version: str, *, bundled: bool) -> Bom:
    """Returns the whole document."""
    bom = Bom()
    program = component("pypi", "dbdyno", version, "Apache-2.0")
    program.type = ComponentType.APPLICATION
    needs = add_crates(bom, shipped_crates(ROOT))
    javascript = (ROOT / FILE).read_text("utf-8")
    for part in [*scripts(javascript), *(() if bundled else packages())]:
        bom.components.add(part)
        needs.append(part)
    bom.metadata.component = program
    bom.register_dependency(program, needs)
    bom.metadata.timestamp = datetime.fromtimestamp(epoch(), UTC)
    names = "\n".join(sorted(str(c.purl) for c in bom.components))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"{program.purl}\n{names}")
    return bom


def main(words: list[str]) -> None:
    from release_check import own_version

    bundled = "--bundled" in words
    (path,) = (Path(word) for word in words if not word.startswith("-"))
    path.parent.mkdir(parents=True, exist_ok=True)
    outputter = make_outputter(bill(own_version(ROOT), bundled=bundled), OutputFormat.JSON, SCHEMA)
    path.write_text(outputter.output_as_string(indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
