"""Every benchmark of the suites runs on the oldest and the newest version; clean removes all its tables."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from tests.conftest import Servers
from tests.contract import loads

from dbdyno.conduct.measure.tables import make_tables
from dbdyno.drive import Interrupt
from dbdyno.engines.postgres import PostgresServer, suites, workloads
from dbdyno.model.plan.plan import DriverSetup, DriverSpec
from dbdyno.model.plan.table_making import TableOptions

pytestmark = pytest.mark.db


@pytest.mark.parametrize("major", [14, 18])
def test_all_benchmarks_run_without_errors(servers: Servers, major: int) -> None:
    dsn, units = servers.dsn(major), workloads()
    with closing(PostgresServer(dsn)) as server:
        for name in units:
            options = TableOptions(on_demand=True)
            make_tables(server, name, options, Interrupt(), lambda *_: None, lambda _: None)
        for benchmark in (b for suite in suites().values() for b in suite.benchmarks):
            unit, count = units[benchmark.workload], int(benchmark.sessions)
            driver = DriverSetup.of(DriverSpec(**benchmark.driver))
            server.prepare(unit, benchmark.params, count)
            result = loads.run(server, unit, benchmark.params, count, calls=1, driver=driver)
            assert result["errors"].is_empty(), (benchmark.name, result["errors"].to_dicts())
            assert result["sessions"]["calls_total"].sum() == count, benchmark.name
        assert server.resetting is not None
        (written,) = server.resetting.data_sets("micro-write", {"mode": "insert"}, ())
        assert written.written and not written.refused
        (read,) = server.resetting.data_sets("micro-read", {"mode": "partition-pruning"}, ())
        assert not read.written and not read.refused
        removed = server.clean()
    assert {"table dbdyno.micro_rows", "table dbdyno.micro_parts", "table dbdyno.micro_log"} <= {*removed}
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select to_regnamespace('dbdyno')").fetchone() == (None,)
