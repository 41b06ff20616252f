"""The compose files against the published schema, and the Debian package of a made-up environment."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
COMPOSE = sorted(PACKAGING.glob("compose*.yaml"))


@pytest.mark.parametrize("path", COMPOSE, ids=lambda p: str(p.name))
def test_compose_files_fit_the_published_schema(path: Path) -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    text = re.sub(r"!override\b", "", path.read_text("utf-8"))
    done = subprocess.run(
        [*words, "--default-filetype", "yaml", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_passwords_are_files_alone() -> None:
    text = (PACKAGING / "compose.yaml").read_text("utf-8")
    document = yaml.safe_load(text)
    for service in document["services"].values():
        assert set(service["secrets"]) <= set(document["secrets"])
        held = [name for name in service.get("environment", {}) if "PASSWORD" in name]
        assert all(name.endswith("_FILE") for name in held)
    assert all(secret["file"].startswith("./secrets/") for secret in document["secrets"].values())
    assert "packaging/secrets" in (ROOT / ".dockerignore").read_text().split()
    ignored = subprocess.run(["git", "check-ignore", "-q", "packaging/secrets/dbdyno"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_the_observer_has_no_right_by_default_and_each_one_that_is_added_is_explained() -> None:
    plain = yaml.safe_load((PACKAGING / "compose.yaml").read_text("utf-8"))["services"]["dbdyno"]
    assert plain["cap_drop"] == ["ALL"] and "cap_add" not in plain and "privileged" not in plain
    lines = (PACKAGING / "compose.trace.yaml").read_text("utf-8").splitlines()
    added = [line for line in lines if re.match(r"\s+- [A-Z_]+\b", line)]
    assert len(added) == 5 and all(re.search(r" # \w+", line) for line in added)


@pytest.fixture
def deb(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here: it is of Debian and Ubuntu")
    monkeypatch.syspath_prepend(ROOT / "tools")
    monkeypatch.setenv("DEBFULLNAME", "Ann Other")
    monkeypatch.setenv("DEBEMAIL", "ann@example.org")
    return importlib.import_module("deb")


def _package(site: Path, name: str, licence: str, tag: str) -> None:
    """Makes what pip leaves of a package."""
    (site / name).mkdir()
    (site / name / "__init__.py").touch()
    info = site / f"{name}-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 2.0\n{licence}\n\nText.\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")


def _environment(tree: Path, _wheel: Path, _arch: str, _python: str) -> None:
    """Stands in for pip, which would install 600 MB."""
    site = tree / "usr/lib/dbdyno/lib/python3.11/site-packages"
    (site / "share/man/man1").mkdir(parents=True)
    (site / "share/man/man1/dbdyno.1").write_text(".TH DBDYNO 1\n")
    (site / "bin").mkdir()
    (site / "bin/ray").touch()
    _package(site, "dbdyno", "License-Expression: Apache-2.0", "cp311-abi3-manylinux_2_28_x86_64")
    _package(
        site, "old", "Classifier: License :: OSI Approved :: MIT License", "cp311-cp311-manylinux2014_x86_64"
    )


SITE = "./usr/lib/dbdyno/lib/python3.11/site-packages"
FILES = {
    "./usr/bin/dbdyno",
    *(f"{SITE}/{p}/__init__.py" for p in ("dbdyno", "old")),
    *(f"{SITE}/{p}-2.0.dist-info/{file}" for p in ("dbdyno", "old") for file in ("METADATA", "WHEEL")),
    "./usr/share/bash-completion/completions/dbdyno",
    "./usr/share/doc/dbdyno/changelog.Debian.gz",
    "./usr/share/doc/dbdyno/changelog.gz",
    "./usr/share/doc/dbdyno/copyright",
    "./usr/share/fish/vendor_completions.d/dbdyno.fish",
    "./usr/share/lintian/overrides/dbdyno",
    "./usr/share/man/man1/dbdyno.1.gz",
    "./usr/share/zsh/vendor-completions/_dbdyno",
}


def test_the_debian_package_holds_these_files_as_root_and_names_what_it_needs(
    deb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deb, "ROOT", tmp_path)
    monkeypatch.setattr(deb, "CHANGELOG", ROOT / "CHANGELOG.md")
    monkeypatch.setattr(deb, "environment", _environment)
    monkeypatch.setattr(deb, "own_version", lambda _root: "1.2.3")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/dbdyno-1.2.3-cp311-abi3-manylinux_2_28_x86_64.whl").touch()
    package = deb.build("x86_64", "3.11", "deb12")
    assert package.name == "dbdyno_1.2.3-1~deb12_amd64.deb"
    listed = _dpkg("--contents", package).splitlines()
    assert {line.split()[5] for line in listed if line[0] == "-"} == FILES
    assert {line.split()[1] for line in listed} == {"root/root"}
    assert next(line for line in listed if line.endswith("./usr/bin/dbdyno")).startswith("-rwxr-xr-x")
    control = _dpkg("--field", package)
    assert "Version: 1.2.3-1~deb12\nArchitecture: amd64\nMaintainer: Ann Other <ann@example.org>\n" in control
    assert "Depends: python3 (>= 3.11~), python3 (<< 3.12~), libc6 (>= 2.28)\n" in control
    _dpkg("--extract", package, tmp_path / "out")
    assert "old 2.0: MIT License\n" in (tmp_path / "out/usr/share/doc/dbdyno/copyright").read_text()
    launcher = (tmp_path / "out/usr/bin/dbdyno").read_text()
    assert launcher.startswith("#!/usr/lib/dbdyno/bin/python3\n")


def _dpkg(option: str, *paths: Path) -> str:
    return subprocess.run(["dpkg-deb", option, *paths], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_scripts_of_the_debian_package_end_at_the_first_error(name: str) -> None:
    script = PACKAGING / "debian" / name
    assert script.read_text().startswith("#!/bin/sh\nset -e\n")
    subprocess.run(["sh", "-n", script], check=True)
