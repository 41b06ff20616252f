"""Which snapshot is meant by an id, a name, ``last``, or a time of the user's day."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.made_snapshots import info

from dbdyno.model.engine.snapshot import SnapshotInfo
from dbdyno.model.errors import NoSuchSnapshot
from dbdyno.store.snapshot_times import moment_of, nearest, remark

NOW = datetime(2026, 11, 23, 14, 7, tzinfo=UTC)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two hours east of Greenwich: here it is 16:07."""
    monkeypatch.setenv("TZ", "EET-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _taken(*moments: datetime) -> list[SnapshotInfo]:
    return [info(id=f"{m:%Y%m%d-%H%M%S}-{n:04x}", taken=m) for n, m in enumerate(moments)]


def _utc(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("14:00", _utc(23, 12)),
        ("9:30", _utc(23, 7, 30)),
        ("16:07", _utc(23, 14, 7)),
        ("18:00", _utc(22, 16)),  # still to come: yesterday's
        ("today 18:00", _utc(23, 16)),
        ("yesterday 14:00", _utc(22, 12)),
        ("yesterday 14:00:30", _utc(22, 12) + timedelta(seconds=30)),
        ("2026-11-20 14:00", _utc(20, 12)),
        ("2026-11-20T14:00:00+00:00", _utc(20, 14)),
        ("2026-11-20", _utc(19, 22)),
        ("2h ago", _utc(23, 12, 7)),
        ("30min ago", _utc(23, 13, 37)),
        ("90 s ago", NOW - timedelta(seconds=90)),
    ],
)
def test_times_are_of_the_users_day(words: str, moment: datetime) -> None:
    assert moment_of(words, NOW) == moment


@pytest.mark.parametrize(
    "words",
    ["", "noon", "25:00", "14:60", "last", "ago", "x ago", "2026-13-01", "2026-11-31 10:00", "9" * 400],
)
def test_other_words_are_no_time(words: str) -> None:
    assert moment_of(words, NOW) is None


def test_a_time_gives_the_nearest_snapshot_and_how_far_off_it_is() -> None:
    infos = _taken(*(_utc(23, 10) + timedelta(minutes=10 * i) for i in range(10)))
    info = nearest("13:04", infos, NOW)
    assert info.taken == _utc(23, 11) and remark("13:04", info, infos, NOW) is None
    info = nearest("yesterday 14:00", infos, NOW)
    assert info is infos[0] and "22 h later" in str(remark("yesterday 14:00", info, infos, NOW))
    assert remark(info.id, info, infos, NOW) is None


def test_a_snapshot_is_named_by_id_name_or_last() -> None:
    infos = _taken(_utc(22, 10), _utc(23, 10), _utc(23, 11))
    infos[0] = infos[0].model_copy(update={"name": "before the release"})
    assert nearest("last", infos, NOW) is infos[2] and nearest("last~2", infos, NOW) is infos[0]
    assert nearest("20261122", infos, NOW) is infos[0] and nearest(infos[1].id, infos, NOW) is infos[1]
    assert nearest("before the release", infos, NOW) is infos[0]
    for words in ("20261123", "last~3", "nonsense", ""):
        with pytest.raises(NoSuchSnapshot) as error:
            nearest(words, infos, NOW)
        assert error.value.cure
    with pytest.raises(NoSuchSnapshot):
        nearest("last", [], NOW)


def test_two_snapshots_of_one_name_are_ambiguous() -> None:
    infos = [i.model_copy(update={"name": "x"}) for i in _taken(_utc(22, 10), _utc(23, 10))]
    with pytest.raises(NoSuchSnapshot) as error:
        nearest("x", infos, NOW)
    assert all(i.id in error.value.message for i in infos)
