"""Shapes of execution plans, by EXPLAIN of a generic plan of each statement of a script. Executes no
statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl
import psycopg

from dbdyno.engines.postgres import script_check, script_halves
from dbdyno.engines.postgres.connect import Connection
from dbdyno.engines.postgres.errors import doing
from dbdyno.engines.postgres.own_settings import SEARCH_PATH
from dbdyno.engines.postgres.settings import Site
from dbdyno.model.errors import ScriptError
from dbdyno.model.plan.plan import DriverSetup, PlannedScript
from dbdyno.model.schema.tables import rows

_PLANNED = ("select", "insert", "update", "delete", "merge", "with", "values")
_NAME = "dbdyno_shape"
_NODES = ("Index Name", "Relation Name", "CTE Name", "Function Name")


class Plans:
    """Implements :class:`dbdyno.model.engine.protocols.Planning`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def shapes(
        self, workload: str, params: Mapping[str, object], scripts: Sequence[PlannedScript]
    ) -> pl.DataFrame:
        planned = scripts or script_halves.scripts_of(workload, params)
        connection = self._site.connection()
        path = script_check.search_path_of(connection, planned) if scripts else SEARCH_PATH
        with (
            doing("asking for plans"),
            connection.users_settings(path),
            connection.transaction(force_rollback=True),
        ):
            connection.execute("set local plan_cache_mode = force_generic_plan")
            plans = [
                row
                for number, script in enumerate(planned)
                for row in _script_plans(connection, number, script)
            ]
        return rows("script_plans", plans)


def _script_plans(connection: Connection, number: int, script: PlannedScript) -> Iterator[dict[str, Any]]:
    for place, command in enumerate(_commands(script)):
        sql = command["sql"]
        if sql is None or command["statements"] != 1 or sql.split(maxsplit=1)[0].lower() not in _PLANNED:
            continue
        shape, status = None, "ok"
        try:
            shape = shape_of(_plan(connection, sql, len(command["variables"])))
        except psycopg.Error as e:
            if connection.closed:
                raise
            status = e.diag.message_primary or "refused"
        yield {
            "script": number,
            "name": script.name,
            "command": place,
            "line": command["line"],
            "shape": shape,
            "status": status,
        }


def _commands(script: PlannedScript) -> Sequence[Mapping[str, Any]]:
    """Returns the script's commands with parameters if the extended protocol allows, else with values."""
    driver = DriverSetup(allow_shell=True)
    try:
        return script_check.commands(script, driver)
    except ScriptError:
        return script_check.commands(script, driver.model_copy(update={"protocol": "simple"}))


def _plan(connection: Connection, sql: str, parameters: int) -> dict[str, Any]:
    """Returns the generic plan, which is independent of values; sessions use it after a few calls."""
    values = f"({', '.join(['null'] * parameters)})" if parameters else ""
    with connection.transaction():
        connection.execute(f"prepare {_NAME} as {sql}".encode(), prepare=False)
        try:
            cursor = connection.execute(f"explain (format json, costs off) execute {_NAME}{values}".encode())
            ((output,),) = cursor.fetchall()
        finally:
            with suppress(psycopg.Error):
                connection.execute(f"deallocate {_NAME}".encode())
    plan: dict[str, Any] = output[0]["Plan"]
    return plan


def shape_of(node: Mapping[str, Any]) -> str:
    """Returns for example ``Limit > Index Scan orders_customer``. Several inputs of a node are in
    brackets."""
    below = [shape_of(child) for child in node.get("Plans", ())]
    kind = (
        node.get("Operation", node["Node Type"]) if node["Node Type"] == "ModifyTable" else node["Node Type"]
    )
    name = next((node[key] for key in _NODES if key in node), None)
    own = f"{kind} {name}" if name else str(kind)
    if len(below) > 1:
        return f"{own} ({', '.join(below)})"
    return f"{own} > {below[0]}" if below else own
