"""Shapes of plans as EXPLAIN (FORMAT JSON, COSTS OFF) of PostgreSQL 15 prints them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dbdyno.engines.postgres.planning import shape_of

# psql -c "explain (format json, costs off) ..." on PostgreSQL 15, without unused keys
LIMIT = """{"Node Type": "Limit", "Parallel Aware": false, "Plans": [{"Node Type": "Index Only Scan",
 "Parent Relationship": "Outer", "Scan Direction": "Forward", "Index Name": "t_pkey", "Relation Name": "t",
 "Alias": "t", "Index Cond": "(id > $1)"}]}"""
UPDATE = """{"Node Type": "ModifyTable", "Operation": "Update", "Relation Name": "t", "Alias": "t",
 "Plans": [{"Node Type": "Index Scan", "Index Name": "t_pkey", "Relation Name": "t"}]}"""
JOIN = """{"Node Type": "Aggregate", "Strategy": "Plain", "Plans": [{"Node Type": "Hash Join", "Plans": [
 {"Node Type": "Seq Scan", "Relation Name": "a"}, {"Node Type": "Hash", "Plans": [
 {"Node Type": "Seq Scan", "Relation Name": "b"}]}]}]}"""


@pytest.mark.parametrize(
    ("plan", "shape"),
    [
        (LIMIT, "Limit > Index Only Scan t_pkey"),
        (UPDATE, "Update t > Index Scan t_pkey"),
        (JOIN, "Aggregate > Hash Join (Seq Scan a, Hash > Seq Scan b)"),
        ('{"Node Type": "Result"}', "Result"),
    ],
)
def test_a_shape_lists_nodes_the_outermost_first(plan: str, shape: str) -> None:
    node: dict[str, Any] = json.loads(plan)
    assert shape_of(node) == shape
