"""Builds a Debian package from a wheel in dist: ``python tools/deb.py``, or ``make deb``.

The package holds a virtual environment in /usr/lib/dbdyno with the wheel and the locked packages. Some of
these are compiled for one version of Python, so a package fits the releases of Debian or Ubuntu whose python3
has it; by default that of this machine, else ``--python 3.13 --release deb13``. ``--arch aarch64`` needs no
such machine: nothing of the package is run. Needs dpkg-deb, and pip in this Python.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from email.utils import formatdate
from pathlib import Path

import wheels
from release_check import own_version

ROOT = wheels.ROOT
RECIPE = ROOT / "packaging" / "debian"
CHANGELOG = ROOT / "CHANGELOG.md"
LIB = Path("usr/lib/dbdyno")
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/dbdyno",
    "zsh": "usr/share/zsh/vendor-completions/_dbdyno",
    "fish": "usr/share/fish/vendor_completions.d/dbdyno.fish",
}
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def site_of(tree: Path, python: str) -> Path:
    """Returns the folder of packages in a tree."""
    return tree / LIB / "lib" / f"python{python}" / "site-packages"


def environment(tree: Path, wheel: Path, arch: str, python: str) -> None:
    """Fills a tree with the virtual environment."""
    wheels.install(site_of(tree, python), wheel, arch, python)
    programs = tree / LIB / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(f"/usr/bin/python{python}")
    (tree / LIB / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n"
    )


def tidy(tree: Path, site: Path) -> None:
    """Moves what belongs elsewhere out of the folder of packages, and removes programs of other packages."""
    manual = tree / "usr/share/man/man1"
    manual.mkdir(parents=True)
    compress((site / "share/man/man1/dbdyno.1").read_bytes(), manual / "dbdyno.1.gz")
    for name in ("bin", "share"):
        shutil.rmtree(site / name)
    launcher = tree / "usr/bin/dbdyno"
    launcher.parent.mkdir()
    shutil.copy(RECIPE / "launcher", launcher)
    launcher.chmod(0o755)


def compress(content: bytes, target: Path) -> None:
    """Writes a compressed file as Debian has them: without name and time."""
    target.write_bytes(gzip.compress(content, mtime=0))


def completions(tree: Path) -> None:
    """Writes the completions of the shells."""
    for shell, path in COMPLETIONS.items():
        script = subprocess.run(
            [sys.executable, "-m", "dbdyno", "completion", shell],
            env=os.environ | {"PYTHONPATH": str(RECIPE.parents[1] / "python")},
            check=True,
            capture_output=True,
        ).stdout
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(script)


def metadata(site: Path) -> list[Message]:
    """Returns what installed packages say of themselves, by name."""
    files = sorted(site.glob("*.dist-info/METADATA"))
    return [HeaderParser().parsestr(file.read_text("utf-8")) for file in files]


def licence_of(package: Message) -> str:
    """Returns the licence that a package states, by expression, text or classifier."""
    short = str(package.get("License", "")).strip()
    classes = [c.split(" :: ")[-1] for c in package.get_all("Classifier", []) if c.startswith("License ::")]
    named = short if short and "\n" not in short and len(short) < 60 else ", ".join(classes)
    return str(package.get("License-Expression") or named or "see its files")


def copyright_text(packages: Iterable[Message], python: str) -> str:
    """Returns the file of licences that every Debian package has."""
    lines = [
        "Copyright: the authors of dbdyno.",
        "dbdyno is under the Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0",
        "Licences of what its programs and pages hold: THIRD-PARTY-LICENSES.txt in",
        f"/{LIB}/lib/python{python}/site-packages/dbdyno-*.dist-info/licenses.",
        "",
        "The package also holds these packages. The texts of their licences are in the same",
        "folder, in NAME-VERSION.dist-info.",
        "",
    ]
    lines += [f"{p['Name']} {p['Version']}: {licence_of(p)}" for p in packages if p["Name"] != "dbdyno"]
    return "\n".join(lines) + "\n"


def debian_changelog(version: str) -> str:
    """Returns the packaging's own changelog, which has one entry: a package is built from a release."""
    date = formatdate(wheels.epoch())
    entry = f"dbdyno ({version}) unstable; urgency=medium\n\n  * dbdyno's own changes are in changelog.gz.\n"
    return f"{entry}\n -- {maintainer()}  {date}\n"


def documents(tree: Path, python: str, version: str) -> None:
    """Writes licences and changelogs, and what of lintian's rules does not apply."""
    folder = tree / "usr/share/doc/dbdyno"
    folder.mkdir(parents=True)
    (folder / "copyright").write_text(copyright_text(metadata(site_of(tree, python)), python), "utf-8")
    compress(CHANGELOG.read_bytes(), folder / "changelog.gz")
    compress(debian_changelog(version).encode(), folder / "changelog.Debian.gz")
    overrides = tree / "usr/share/lintian/overrides/dbdyno"
    overrides.parent.mkdir(parents=True)
    shutil.copy(RECIPE / "lintian-overrides", overrides)


def least_libc(site: Path) -> str:
    """Returns the version of the C library that the packages were built for, the newest of them."""
    files = site.glob("*.dist-info/WHEEL")
    tags = [tag for file in files for tag in re.findall(r"manylinux\w+", file.read_text())]
    versions = [_LEGACY.get(tag.split("_")[0]) or ".".join(tag.split("_")[1:3]) for tag in tags]
    return max(versions, key=lambda v: tuple(map(int, v.split("."))))


def describe(tree: Path, arch: str, python: str, version: str) -> None:
    """Writes what dpkg reads: description, scripts and checksums."""
    files = sorted(p for p in tree.rglob("*") if not p.is_dir())
    plain = [p for p in files if not p.is_symlink()]
    sums = "".join(f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n" for p in plain)
    major, minor = map(int, python.split("."))
    values = {
        "version": version,
        "architecture": wheels.DEBIAN[arch],
        "maintainer": maintainer(),
        "size_kib": sum(-(-p.lstat().st_size // 1024) for p in files),
        "python": python,
        "next_python": f"{major}.{minor + 1}",
        "libc": least_libc(site_of(tree, python)),
    }
    scripts = tree / "DEBIAN"
    scripts.mkdir()
    (scripts / "control").write_text((RECIPE / "control").read_text("utf-8").format_map(values), "utf-8")
    (scripts / "md5sums").write_text(sums)
    for name in ("postinst", "prerm", "postrm"):
        shutil.copy(RECIPE / name, scripts / name)
        (scripts / name).chmod(0o755)


def maintainer() -> str:
    """Returns who builds the package, as Debian's tools and git know it. Ends the program if neither does."""
    ask = ("git", "config", "--get")
    name, email = (
        os.environ.get(variable)
        or subprocess.run([*ask, key], capture_output=True, text=True, check=False).stdout.strip()
        for variable, key in (("DEBFULLNAME", "user.name"), ("DEBEMAIL", "user.email"))
    )
    if not (name and email):
        sys.exit("who builds this package? export DEBFULLNAME='Ann Other' DEBEMAIL=ann@example.org")
    return f"{name} <{email}>"


def release_of_machine() -> str:
    """Returns ``deb12`` or ``ubuntu24.04``: what versions of packages for this release end with."""
    values = platform.freedesktop_os_release()
    name = {"debian": "deb"}.get(values["ID"], values["ID"])
    return f"{name}{values.get('VERSION_ID', '')}"


def python_of_machine() -> str:
    """Returns the version of the distribution's Python: ``3.11``."""
    words = ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def pack(tree: Path, out: Path) -> None:
    """Writes the package with root as the owner of all files."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", tree, out], check=True)


def build(arch: str, python: str, release: str) -> Path:
    """Builds the package from the wheel in dist. Returns its path."""
    version = own_version(ROOT)
    wheel = ROOT / "dist" / f"dbdyno-{version}-cp311-abi3-manylinux_2_28_{arch}.whl"
    if not wheel.exists():
        sys.exit(f"no {wheel.name} in dist: make wheel ARCH={arch}")
    tree = ROOT / "build" / "deb" / arch
    shutil.rmtree(tree, ignore_errors=True)
    environment(tree, wheel, arch, python)
    tidy(tree, site_of(tree, python))
    completions(tree)
    packaged = f"{version}-1~{release}"
    documents(tree, python, packaged)
    describe(tree, arch, python, packaged)
    out = ROOT / "dist" / f"dbdyno_{packaged}_{wheels.DEBIAN[arch]}.deb"
    pack(tree, out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds a Debian package from a wheel in dist.")
    parser.add_argument("--arch", choices=wheels.DEBIAN, default=platform.machine())
    parser.add_argument("--python", default=None, help="version of the release's python3")
    parser.add_argument("--release", default=None, help="deb12, ubuntu24.04, ...")
    given = parser.parse_args()
    out = build(given.arch, given.python or python_of_machine(), given.release or release_of_machine())
    print(f"{out.relative_to(ROOT)}, {out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
