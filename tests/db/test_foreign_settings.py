"""Settings that a plain role gave to its database, and their effect on a superuser's commands."""

from __future__ import annotations

import pytest

from tests.conftest import Servers
from tests.db.forging import BRIEF, MALLORY, Stages

pytestmark = pytest.mark.db
FORMS = (
    "alter database stage set extra_float_digits = -15",
    "alter database stage set datestyle = 'SQL, DMY'",
    "alter database stage set intervalstyle = 'iso_8601'",
)


def test_figures_have_all_digits_and_times_their_form(servers: Servers, stages: Stages) -> None:
    """If times were rounded to no digit, two snapshots seconds apart would be of the same moment."""
    with stages.stage(servers.dsn(18), "empty") as stage:
        stage.plant(*FORMS)
        done = stage.dbdyno("observe", "--for", "1s")
        assert done.returncode == 0, done.stderr


def test_a_role_that_the_database_sets_is_named(servers: Servers, stages: Stages) -> None:
    with stages.stage(servers.dsn(18), "empty") as stage:
        stage.plant(f"alter database stage set role = {MALLORY}")
        for words in (("observe", "--for", "1s"), ("clean",), ("run", "cpu", *BRIEF)):
            done = stage.dbdyno(*words)
            assert done.returncode == 3 and stage.proof() == [], (words, done.stderr)
            assert f"role {MALLORY}" in done.stderr and "crole=none" in done.stderr, done.stderr
