"""The directories of a server that a role may not see, and the right that shows them."""

from __future__ import annotations

from dbdyno.engines.postgres.places import unknown_directories


def test_a_role_that_may_not_see_the_data_directory_lacks_a_right() -> None:
    places = [{"place": "data", "paths": ["."]}, {"place": "WAL", "paths": ["pg_wal"]}]
    (source,) = unknown_directories(places, '"app user"')
    assert (source.name, source.status) == ("devices", "not permitted")
    assert 'GRANT pg_read_all_settings TO "app user"' in source.detail


def test_a_known_directory_needs_none() -> None:
    places = [{"place": "data", "paths": [".", "/srv/data/."]}, {"place": "WAL", "paths": ["pg_wal"]}]
    assert not [*unknown_directories(places, "app")]
