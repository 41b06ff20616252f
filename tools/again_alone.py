#!/usr/bin/env python3
"""Runs failed tests once more, without other tests beside them: `tools/again_alone.py PYTEST_STATUS`.

The result must not depend on other load on the machine. Tests that pass only alone should still be fixed, so
they are listed at the end. If more than a few tests fail, other load is no explanation, and they stay
failures.
"""

import json
import subprocess
import sys
from pathlib import Path

FEW = 3
FAILED = 1  # pytest's exit status for failed tests


def main(status: int) -> int:
    failed = Path(".pytest_cache/v/cache/lastfailed")
    names = list(json.loads(failed.read_text())) if failed.exists() else []
    if status != FAILED or not 0 < len(names) <= FEW:
        return status
    print(f"\n{len(names)} failed beside others; once more, alone:", flush=True)
    only = ("--last-failed", "--last-failed-no-failures", "none")
    again = subprocess.run([sys.executable, "-m", "pytest", *only])
    if again.returncode == 0:
        print("passed alone, not beside others; to be mended:", *names, sep="\n  ")
    return again.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
