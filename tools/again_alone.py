#!/usr/bin/env python3
"""Runs tests that failed beside others once more, by themselves: `tools/again_alone.py PYTEST_STATUS`.

A machine that is busy with something else must not decide whether the check passes; a test that needs this is
still one to mend, so it is named at the end. More than a few failures are no accident, and stay failures.
"""

import json
import subprocess
import sys
from pathlib import Path

FEW = 3
FAILED = 1  # pytest's exit status; others are no failures of tests


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
