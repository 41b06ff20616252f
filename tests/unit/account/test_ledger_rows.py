"""CPU WAIT by label: parts that add up to their total, of stored older ledgers, too."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.fakery import climb

from dbdyno.account.ledger import ledger
from dbdyno.account.window import cut
from dbdyno.model.results.ledger_rows import (
    BY_LABEL,
    account_rows,
    divided,
    of_older,
    queue_labels,
    top_level,
)


def _totals(aas: float | None) -> pl.DataFrame:
    row = {"group": 1, "account": "runq", "aas": aas, "low": aas and aas - 0.1, "high": aas and aas + 0.1}
    return pl.DataFrame([row | {"status": "ok", "source": "os tasks"}], schema_overrides={"aas": pl.Float64})


def _parts(*parts: tuple[str, float]) -> pl.DataFrame:
    rows = [(1, d, v, v / 2, 2 * v, "ok", "trace") for d, v in parts]
    names = ["group", "detail", "aas", "low", "high", "status", "source"]
    types = [pl.Int64, pl.String, *[pl.Float64] * 3, pl.String, pl.String]
    return pl.DataFrame(rows, schema=list(zip(names, types, strict=True)), orient="row")


@pytest.mark.parametrize(
    ("whole", "parts", "expected"),
    [
        (
            0.4,
            (("IO/Read", 0.3),),
            [("IO/Read", 0.3, 0.15, 0.5, "ok"), (None, 0.1, 0.0, 0.2, "no label seen")],
        ),
        (
            0.4,
            (("IO/Read", 0.3), ("Lock/x", 0.3)),
            [("IO/Read", 0.2, 0.1, 0.4, "ok"), ("Lock/x", 0.2, 0.1, 0.4, "ok")],
        ),
        (0.4, (), [(None, 0.4, 0.3, 0.5, "no label seen")]),
        (0.0, (("IO/Read", 0.0),), [("IO/Read", 0.0, 0.0, 0.0, "ok")]),
        (None, (("IO/Read", 0.3),), [("IO/Read", 0.3, 0.15, 0.6, "ok")]),
    ],
    ids=["rest", "too much", "no label", "none waited", "total unknown"],
)
def test_parts_are_made_to_add_up(
    whole: float | None, parts: tuple[tuple[str, float], ...], expected: list
) -> None:
    ledger = divided(_totals(whole), _parts(*parts), "group")
    for row, (detail, aas, low, high, status) in zip(ledger.to_dicts(), expected, strict=True):
        assert (row["detail"], row["status"], row["account"], row["parent"]) == (
            detail,
            status,
            "runq",
            "runq",
        )
        assert (row["aas"], row["low"], row["high"]) == pytest.approx((aas, low, high))


def _older_ledger(ledger: pl.DataFrame) -> pl.DataFrame:
    """Labels as memos of the rung and its sessions; without parents."""
    memos = ledger.filter(BY_LABEL).with_columns(scope=pl.lit("memo"), account=pl.lit("label.runq"))
    return pl.concat([ledger.filter(~BY_LABEL), memos]).with_columns(parent=pl.lit(None, dtype=pl.String))


def test_an_older_ledger_is_read_with_its_parts() -> None:
    result = ledger(cut(climb("fake:cpus=2,cpu=20ms,wait=IO/DataFileRead:7ms,think=2ms", [1, 6]).cells))
    read = of_older(_older_ledger(result))
    by = ["cell", "scope", "who", "session", "account", "parent", "detail"]
    assert_frame_equal(read.sort(by), result.sort(by), rel_tol=1e-9)
    assert top_level(read).height == top_level(result).height
    for scope in ("rung", "session"):
        whole = account_rows(read, "runq", scope=scope).group_by("cell", "session").agg(pl.col("aas").sum())
        parts = queue_labels(read, scope).group_by("cell", "session").agg(parts=pl.col("aas").sum())
        both = whole.join(parts, on=["cell", "session"], nulls_equal=True).rows()
        assert both and all(row[3] == pytest.approx(row[2], abs=1e-12) for row in both)
