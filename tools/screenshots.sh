#!/bin/bash
# Makes docs/report.png anew: the beginning of a report, in a headless Chromium.
# tools/screenshots.sh [REPORT.html]; without one, the recipe demo is run for it.
set -euo pipefail
cd "$(dirname "$0")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "Chromium is not installed" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
page=${1:-$scratch/report.html}
[ -n "${1:-}" ] || DBDYNO_CONFIG='' DBDYNO_STORE=$scratch/runs .venv/bin/dbdyno run --recipe demo --output "$page" --quiet
sandbox=(); [ "$(id -u)" != 0 ] || sandbox=(--no-sandbox)
# virtual time: the charts are drawn before the picture is taken
"$browser" --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --user-data-dir="$scratch/profile" \
    --window-size="${SCREENSHOT_SIZE:-1280,1500}" --virtual-time-budget=20000 \
    --screenshot="$PWD/docs/report.png" "file://$(realpath "$page")" 2>/dev/null
echo docs/report.png
