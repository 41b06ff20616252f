"""Runs whose server may use fewer CPUs than the machine has: all that is shown names the same number."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit import report_results
from tests.unit.report_results import World
from tests.unit.shown import as_text

from dbdyno.account.bounds import bounds
from dbdyno.conclude.ladder.ladders import machine_of, quota_cure
from dbdyno.conclude.scaled import scalings_of
from dbdyno.model.plan.plan import LimitSpec, Variant
from dbdyno.model.results.results import Results
from dbdyno.model.units import format_rate
from dbdyno.observe import server_limits
from dbdyno.present import report
from dbdyno.present.document.document import Chart, Table, walk
from dbdyno.present.figures import figures, headline, title_block
from dbdyno.present.run import charts, laws
from dbdyno.present.scaling.scaling_document import document


def _limited(limits: LimitSpec, server: dict[str, Any] | None = None, *, ours: bool = True) -> Results:
    results = report_results.results(World(rungs=(1, 2, 4)))
    experiment = results.plan.experiment.model_copy(update={"limits": limits} if ours else {})
    variant = Variant(name="base", limits=limits)
    plan = results.plan.model_copy(update={"experiment": experiment, "variants": (variant,)})
    facts = results.environment.server.model_copy(update=server or {})
    environment = results.environment.model_copy(update={"server": facts})
    return Results(results.info, plan, environment, results.tables, results.findings)


_GROUP = {"quota_cpus": 1.5, "quota_where": "/sys/fs/cgroup/db"}


@pytest.mark.parametrize(
    ("limits", "server", "words", "head"),
    [
        (LimitSpec(), {}, "2 CPUs", None),
        (LimitSpec(quota=0.5), {}, "0.5 CPUs", "0.5 CPUs of 2 (limit by dbdyno: --limit quota=0.5)"),
        (LimitSpec(quota=1), {}, "1 CPU", "1 CPU of 2 (limit by dbdyno: --limit quota=1)"),
        (LimitSpec(quota=2), {}, "2 CPUs", "2 CPUs (limit by dbdyno: --limit quota=2)"),
        (LimitSpec(quota=3), {}, "2 CPUs", None),
        (LimitSpec(cpus="1"), {}, "1 CPU", "1 CPU of 2 (limit by dbdyno: --limit cpus=1)"),
        (
            LimitSpec(cpus="1", quota=0.5),
            {},
            "0.5 CPUs",
            "0.5 CPUs of 2 (limit by dbdyno: --limit quota=0.5)",
        ),
        (LimitSpec(cpus="1", quota=1.5), {}, "1 CPU", "1 CPU of 2 (limit by dbdyno: --limit cpus=1)"),
        (LimitSpec(), _GROUP, "1.5 CPUs", "1.5 CPUs of 2 (quota of /sys/fs/cgroup/db)"),
        (LimitSpec(quota=2), _GROUP, "1.5 CPUs", "1.5 CPUs of 2 (quota of /sys/fs/cgroup/db)"),
        (LimitSpec(), {"allowed_cpus": 1}, "1 CPU", "1 CPU of 2 (affinity of the server)"),
    ],
)
def test_title_head_charts_and_bounds_take_the_cpus_from_one_place(
    limits: LimitSpec, server: dict[str, Any], words: str, head: str | None
) -> None:
    results = _limited(limits, server)
    assert headline.title(results).endswith(f" on {words}")
    assert dict(title_block.of_run(results)).get("CPUs") == head
    drawn = [b for b in walk(report.document(results).blocks) if isinstance(b, Chart)]
    marks = [c for c in drawn if '"cpus"' in json.dumps(c.spec)]
    assert {"throughput", "stack-aas"} <= {c.id.split("-", 2)[-1] for c in marks}
    assert all(f'"name": "{words}"' in json.dumps(c.spec) for c in marks)
    rows = bounds(dict(results.tables), results.plan, results.environment)
    assert {figures.cpus_text(n) for n in rows["cpus"]} == {words}


@pytest.mark.parametrize(("rungs", "cpus", "named"), [((1, 2), 1, True), ((1,), 1, False), ((1,), 4, False)])
def test_the_dotted_line_is_named_where_bars_go_beyond_it(
    rungs: tuple[int, ...], cpus: int, *, named: bool
) -> None:
    results = report_results.results(World(rungs=rungs, cpus=cpus))
    charts_by_id = {b.id: b for b in walk(report.document(results).blocks) if isinstance(b, Chart)}
    (stack,) = (c for i, c in charts_by_id.items() if i.endswith("stack-aas"))
    (share,) = (c for i, c in charts_by_id.items() if i.endswith("stack-share"))
    assert ("Above the dotted line" in stack.caption) == named
    assert ("from left to right" in share.caption) == (len(rungs) > 1)


def test_variants_with_different_limits_have_a_range_and_no_common_mark() -> None:
    results = report_results.results(World(rungs=(1, 2, 4), variants=("base", "half")))
    variants = (Variant(name="base"), Variant(name="half", limits=LimitSpec(quota=0.5)))
    plan = results.plan.model_copy(update={"variants": variants})
    results = Results(results.info, plan, results.environment, results.tables, results.findings)
    assert headline.title(results).endswith(" on 0.5 to 2 CPUs")
    head = dict(title_block.of_run(results))["CPUs"]
    assert head == "0.5 CPUs of 2 (limit by dbdyno: quota=0.5 of variant half); 2 CPUs"
    together = charts.throughput(results, figures.series_of(results))
    assert together is not None and '"cpus"' not in json.dumps(together.spec)
    assert figures.usable_cpus(results, figures.series_of(results)[1:]) == 0.5


@pytest.mark.parametrize(
    ("limits", "server", "cure"),
    [
        (LimitSpec(quota=0.5), {}, "raise or drop --limit quota=0.5"),
        (LimitSpec(), _GROUP, "raise the quota of /sys/fs/cgroup/db"),
        (LimitSpec(), {}, "raise the quota of the group that /proc/PID/cgroup names"),
    ],
)
def test_who_set_a_quota_is_who_can_raise_it(limits: LimitSpec, server: dict[str, Any], cure: str) -> None:
    results = _limited(limits, server)
    assert quota_cure(results, "base").startswith(cure)
    waits = [a for s in scalings_of(results) for a in s.answers if a.id == "cpu-wait"]
    assert waits and all(a.advice.startswith(cure) for a in waits) == bool(limits.quota or server)
    assert ("spare" in {p for a in waits for p in a.slots}) is False


def test_under_a_quota_an_analysis_divides_by_its_cpus_and_by_no_cores() -> None:
    (scaling,) = scalings_of(_limited(LimitSpec(quota=1.5)))
    assert scaling.ladder.machine.quota
    texts = {a.id: a.text for a in scaling.answers}
    assert "one-core" not in texts and texts["one-cpu"].endswith("(1.5 CPUs by its quota).")
    assert "at-cpus" not in texts
    remark = as_text(document((scaling,)), 100)
    assert "quota of 1.5 CPUs" in remark and "1.5 cores" not in remark
    (whole,) = scalings_of(_limited(LimitSpec()))
    assert not whole.ladder.machine.quota and "one-core" in {a.id for a in whole.answers}


def test_the_bounds_name_their_cpus() -> None:
    results = _limited(LimitSpec(quota=1))
    tables = dict(results.tables) | {
        "bounds": bounds(dict(results.tables), results.plan, results.environment)
    }
    section = laws.bounds(Results(results.info, results.plan, results.environment, tables, ()))
    assert section is not None and "fit into 1 CPU." in str(section)
    table = next(b for b in section.blocks if isinstance(b, Table))
    first = tables["bounds"].row(0, named=True)
    low, high = (format_rate(first[f"waitless_{end}"]) for end in ("low", "high"))
    assert table.rows[0].cells[2].text.endswith(f" ({low} to {high})")


def test_the_limits_of_a_server_are_the_kernels() -> None:
    known = server_limits(os.getpid(), Path("/"))
    assert known["allowed_cpus"] == len(os.sched_getaffinity(0))
    assert (known["quota_cpus"] is None) == (known["quota_where"] is None)
    assert server_limits(2**22 + 1, Path("/")) == dict.fromkeys(known)


def test_a_machine_is_that_of_the_variant() -> None:
    machine, _ = machine_of(_limited(LimitSpec(quota=0.5)), "base")
    assert machine.quota and machine.cpus == 0.5
