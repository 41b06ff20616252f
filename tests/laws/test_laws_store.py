"""Law of the store: data that conform to the schema come back unchanged."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fakery import made_cell

from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.model.results.raw import RawCell
from dbdyno.model.schema.column import Column
from dbdyno.model.schema.tables import RAW, raw, rows
from dbdyno.store import RunStore
from dbdyno.store.files import MOST_NUMBER

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(-MOST_NUMBER, MOST_NUMBER, exclude_min=True, exclude_max=True),
    "str": st.text(st.characters(codec="utf-8"), max_size=20),
    "bool": st.booleans(),
}


def _value(column: Column) -> st.SearchStrategy[Any]:
    values = _VALUES[column.type]
    return st.none() | values if column.null else values


raw_tables = st.fixed_dictionaries(
    {
        name: st.lists(st.fixed_dictionaries({c.name: _value(c) for c in columns}), max_size=3)
        for name, columns in RAW.items()
    }
)


@examples(25)
@given(raw_tables)
def test_any_raw_cell_comes_back(tables: dict[str, list[dict[str, Any]]]):
    cell = RawCell(made_cell({}).meta, {name: rows(raw(name), records) for name, records in tables.items()})
    plan = Plan(
        experiment=Experiment(), cpus=1, call_target_ns=None, cells=(cell.meta.cell,), expected_ns=1
    ).sealed()
    with tempfile.TemporaryDirectory() as place:
        store = RunStore(Path(place))
        store.create(plan).write_cell(cell)
        run = store.open("last")
        again = run.read_cell(cell.id)
        assert run.plan == plan
        assert again.meta == cell.meta
        for name, table in cell.tables.items():
            assert again.tables[name].equals(table, null_equal=True), name
