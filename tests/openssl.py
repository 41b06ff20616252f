"""The program openssl, which makes the certificates of tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def openssl(*words: str, folder: Path | None = None) -> None:
    """Runs the program in ``folder``. Skips the test where it is not installed, and fails it in CI."""
    if shutil.which("openssl") is None:
        reason = "no openssl here: apt-get install openssl"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
