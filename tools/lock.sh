#!/bin/sh
# Makes the locked dependencies again, with versions kept where they still fit. Needs uv and the network.
# tools/lock.sh --upgrade takes the newest versions.
set -eu
cd "$(dirname "$0")/.."

lock() {  # FILE ARGUMENT...
    file=requirements/$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --output-file "$file" "$@"
}

lock base.lock "$@" pyproject.toml
lock runtime.lock "$@" --extra all pyproject.toml
lock dev.lock "$@" --extra all pyproject.toml requirements/dev.in
lock wheel.lock "$@" requirements/wheel.in
lock release.lock "$@" requirements/release.in
