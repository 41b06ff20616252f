"""Tables of a run without the rows that were not asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from dbdyno.model.results.results import Narrowed


class Read(Mapping[str, pl.DataFrame]):
    """Notes the names of the tables that are read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getitem__(self, name: str) -> pl.DataFrame:
        self.names.append(name)
        return pl.DataFrame({"job": ["a", "b", "a"]})

    def __iter__(self) -> Iterator[str]:
        return iter(("mine", "other"))

    def __len__(self) -> int:
        return 2


def test_only_narrowed_tables_lose_rows_and_no_other_is_read() -> None:
    stored = Read()
    tables = Narrowed(stored, {"mine": pl.col("job") == "a"})
    assert tables["mine"].height == 2
    assert stored.names == ["mine"]
    assert tables["other"].height == 3
    assert list(tables) == ["mine", "other"]
