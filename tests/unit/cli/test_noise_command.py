"""``dbdyno noise`` on the simulated server: the answer, the record, later comparisons, refusals."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from tests.fake_engine import FakeServer

from dbdyno import conduct, present
from dbdyno.account.noise import noise as noise_tables
from dbdyno.cli.app import app
from dbdyno.conclude.noise_records import NoiseRecord, could_see, sees
from dbdyno.conduct import NullProgressListener, host_of
from dbdyno.conduct.noise import known, remember
from dbdyno.drive import Interrupt
from dbdyno.engines import open_server
from dbdyno.kernel.machine import HERE
from dbdyno.model.engine.protocols import Target
from dbdyno.model.errors import DbdynoError
from dbdyno.model.plan.plan import Plan
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.results import Results
from dbdyno.present.document.document import Paragraph
from dbdyno.present.run.noise import part_blocks
from dbdyno.stats.noise_budget import Budget
from dbdyno.store import RunStore

DSN = "fake:cpus=2,cpu=4ms,noise=0.1+0.004"
BRIEF = ("--sessions", "2", "--measure", "1s", "--settle", "100ms")
RECIPE = """
workload = "lio"
sessions = "2"
measure = "2s"
settle = "100ms"
repeats = 5
[variants.a]
[variants.b]
settings = { cpu = "5ms" }
"""


def invoke(*words: str, dsn: str = DSN) -> Result:
    return CliRunner().invoke(app, [*words, "--engine", "fake", "--dsn", dsn])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noise") / "runs"
    done = invoke("noise", "lio", *BRIEF, "--restarts", "3", "--time", "70s", "--store", str(path), "--json")
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def results(store: Path) -> Results:
    runs = RunStore(store)
    return conduct.results_of(runs.open(known(runs)[0].run))


def recipe(path: Path, text: str = RECIPE) -> str:
    path.write_text(text)
    return str(path)


def test_the_answer_has_repeats_time_and_what_restarts_decide(results: Results) -> None:
    first, second = results.reply[:2]
    row = results.tables["noise_plan"].filter(difference=0.02, restarts=False).row(0, named=True)
    assert first.text.startswith(
        "To see a difference of 2 % in throughput between two variants at 2 sessions you need "
        f"{row['repeats']} "
        "repeats of "
    )
    assert " Between two runs, restarts decide below " in first.text
    assert (second.id, second.case) == ("noise-restarts", "some")


def test_intervals_hold_the_law_of_the_server(results: Results) -> None:
    parts = {row["part"]: row for row in results.tables["noise"].to_dicts()}
    for part, truth in (("restarts of the server", 0.1), ("one repeat", 0.004)):
        assert parts[part]["low"] <= truth <= parts[part]["high"], part


def test_the_server_was_restarted_between_groups(results: Results) -> None:
    noise = results.plan.experiment.noise
    assert noise is not None
    assert noise.restarts == 3
    windows = results.tables["windows"].sort("repeat").to_dicts()
    assert len(windows) == 4 * noise.per_start
    gaps = [(b["t0_ns"] - a["t1_ns"]) / 1e9 for a, b in pairwise(windows)]
    long = [n for n, gap in enumerate(gaps, start=1) if gap > 1]  # a restart takes a virtual second
    assert long == [noise.per_start * n for n in (1, 2, 3)]


def test_the_run_is_shown_and_rebuilt_as_any_other(store: Path) -> None:
    shown = CliRunner().invoke(app, ["show", "last", "--store", str(store)])
    assert "Where the noise comes from" in shown.output
    assert CliRunner().invoke(app, ["rebuild", "last", "--store", str(store)]).exit_code == 0
    document = json.loads(CliRunner().invoke(app, ["show", "last", "--json", "--store", str(store)]).output)
    assert {row["part"] for row in document["noise"]} >= {"one repeat", "drift"}


@pytest.mark.parametrize("width", [60, 80])
def test_tables_keep_their_intervals_on_a_narrow_screen(width: int, results: Results) -> None:
    row = results.tables["noise_budget"].row(0, named=True)
    budget = Budget.of_row(row)
    console = Console(file=io.StringIO(), width=width)
    console.print(present.summary(results))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert "95 % interval" in text
    assert "unknown because" not in text
    (note,) = re.findall(
        r"Planned with a deviation of (\S+) % of one repeat of (\S+) s", " ".join(text.split())
    )
    bound = math.sqrt(budget.variance(float(note[1])).upper(0.8))
    assert float(note[0]) == pytest.approx(100 * bound, rel=0.05)
    assert "Not known: within a window (too few seconds), " in " ".join(text.split())


def test_a_page_names_each_title_once(store: Path, results: Results) -> None:
    page = (store / results.info.id / "report.html").read_text()
    titles = re.findall(r"<(?:h\d|caption)[^>]*>(?:<(?:span|a)[^>]*>)?([^<]+)<", page)
    for title in ("What a comparison can see here", "Repeats that a difference takes"):
        assert titles.count(title) == 1, title


def test_measurements_limited_by_the_client_are_left_out_with_a_note(results: Results) -> None:
    rates = results.tables["rates"]
    of_cell = pl.col("cell") == results.tables["windows"]["cell"][0]
    limits = of_cell & (pl.col("name") == "client_limits")
    changed = rates.with_columns(value=pl.when(limits).then(1.0).otherwise("value"))
    assert rates.filter(limits).height == 1
    made = noise_tables(results.tables["windows"], changed, results.tables["over_time"], results.plan)
    before = results.tables["noise"].filter(part="one repeat")["values"].item()
    assert made["noise"].filter(part="one repeat")["values"].item() == before - 1
    tables = {**{name: results.tables[name] for name in results.tables}, "rates": changed}
    (note,) = [
        b.text
        for b in part_blocks(replace(results, tables=tables))
        if isinstance(b, Paragraph) and "Left out" in b.text
    ]
    assert note == "Left out, as in comparisons: 1 measurement limited by the client."


def test_trends_leave_noise_measurements_out(store: Path, tmp_path: Path) -> None:
    own = tmp_path / "runs"
    shutil.copytree(store, own)
    plain = recipe(tmp_path / "one.toml", RECIPE.partition("[variants")[0])
    assert invoke("run", plain, "--store", str(own)).exit_code == 0
    text = CliRunner().invoke(app, ["trend", "--store", str(own)]).output
    assert "noise measurements have windows and restarts of their own" in " ".join(text.split())


def test_a_later_comparison_says_what_it_can_see(store: Path, tmp_path: Path) -> None:
    path = recipe(tmp_path / "two.toml")
    (record,) = known(RunStore(store))
    assert (record.workload, record.sessions) == ("lio", 2)
    planned = invoke("run", path, "--dry-run", "--store", str(store))
    assert "With 5 repeats of 2 s this comparison can see differences from " in planned.output
    few = invoke("run", path, "--repeats", "3", "--dry-run", "--store", str(store))
    assert "With 3 repeats this comparison decides no difference below a factor of 2" in few.output
    done = invoke("run", path, "--store", str(store))
    assert done.exit_code == 0
    assert "this comparison can see differences from " in done.output
    other = invoke("run", path, "--store", str(store), dsn=DSN.replace("4ms", "8ms"))
    text = " ".join(other.output.split())
    changed = "is not applied, as it was with cpu = 4000000 (now 8000000): "
    assert f"{changed}dbdyno noise lio --sessions 2 measures it anew." in text


@pytest.mark.parametrize(("variants", "differs"), [(RECIPE, True), (RECIPE.replace("5ms", "4ms"), False)])
def test_a_finished_comparison_without_a_difference_says_what_it_could_see(
    variants: str, differs: bool, store: Path, tmp_path: Path
) -> None:
    own = tmp_path / "runs"
    own.mkdir()
    (own / ".noise.json").write_bytes((store / ".noise.json").read_bytes())
    assert invoke("run", recipe(tmp_path / "two.toml", variants), "--store", str(own)).exit_code == 0
    line = "With 5 repeats of 2 s this comparison could see differences from "
    for words in (("show", "last"), ("compare", "last"), ("compare", "last", "--margin", "5%")):
        shown = CliRunner().invoke(app, [*words, "--store", str(own)]).output
        assert (line in " ".join(shown.split())) is not differs, words
    (page,) = own.glob("*/report.html")
    assert (line in page.read_text()) is not differs
    (own / ".noise.json").unlink()
    assert line not in CliRunner().invoke(app, ["compare", "last", "--store", str(own)]).output


def test_without_a_record_one_line_names_the_command(tmp_path: Path) -> None:
    path = recipe(tmp_path / "two.toml")
    done = invoke("run", path, "--dry-run", "--store", str(tmp_path / "runs"))
    command = "dbdyno noise lio --sessions 2 --dsn DSN"
    text = " ".join(done.output.split())
    assert f"is not known: {command} measures it." in text and DSN not in text
    one = recipe(tmp_path / "one.toml", RECIPE.partition("[variants")[0])
    assert "dbdyno noise" not in invoke("run", one, "--dry-run", "--store", str(tmp_path / "runs")).output


def test_a_dry_run_says_that_the_server_was_not_asked(tmp_path: Path) -> None:
    own = recipe(tmp_path / "one.toml", RECIPE.partition("[variants")[0])
    for words, asked in ((("run", own), False), (("run", recipe(tmp_path / "two.toml")), True)):
        done = invoke(*words, "--dry-run", "--store", str(tmp_path / "runs"))
        assert done.output.endswith("The server was not asked.\n") is not asked, done.output


def test_loads_whose_noise_was_not_measured_are_named(store: Path, tmp_path: Path) -> None:
    plan = planned(tmp_path / "x.toml", RECIPE.replace('sessions = "2"', 'sessions = "1,2,8"'))
    claim = sees(plan, None, known(RunStore(store)), datetime.now(UTC))
    assert claim is not None
    assert " on at 2 sessions (noise measured on " in claim.text
    assert claim.text.endswith(" Noise at 1 and 8 sessions was not measured.")


def test_a_comparison_that_was_noisier_than_its_record_goes_by_its_own_repeats(
    store: Path, tmp_path: Path
) -> None:
    """Six pairs with the interval 0.77 to 1.24: t of 5 degrees is 2.571, so a standard error of 9.27 % of the
    logarithm. Power 80 % at 5 % takes 3.47 of these (noncentral t): a factor of exp(0.322)."""
    same = RECIPE.replace("5ms", "4ms").replace("repeats = 5", "repeats = 6")
    assert invoke("run", recipe(tmp_path / "r.toml", same), "--store", str(tmp_path / "runs")).exit_code == 0
    results = conduct.results_of(RunStore(tmp_path / "runs").open("last"))
    assert results.comparison is not None
    effect = {"ratio": 0.97, "low": 0.77, "high": 1.24, "degrees": 5.0, "n_baseline": 6, "n_variant": 6}
    table = results.comparison.metrics[0]
    (contrast,) = table.claims
    loud = contrast.model_copy(
        update={"effect": contrast.effect.model_copy(update=effect), "verdict": "undecided"}
    )
    changed = results.comparison.model_copy(
        update={"metrics": (table.model_copy(update={"claims": (loud,)}), *results.comparison.metrics[1:])}
    )
    (seen,) = [
        c
        for c in could_see(changed, results, known(RunStore(store))).conclusions
        if c.id == "comparison-sees"
    ]
    assert seen.value is not None
    assert seen.value.value == pytest.approx(math.expm1(0.322), rel=0.03)
    assert (
        "could see differences from 38 % on: the noise was larger than when it was measured on" in seen.text
    )


def planned(path: Path, text: str = RECIPE) -> Plan:
    request = conduct.Request(recipe(path, text), None, conduct.Patch({"engine": "fake"}))
    return conduct.planned(request, host_of(HERE))[0]


def test_old_and_foreign_records_are_not_applied(store: Path, tmp_path: Path, results: Results) -> None:
    plan, (record,) = planned(tmp_path / "two.toml"), known(RunStore(store))
    now = record.measured + timedelta(days=1)

    def case(changed: NoiseRecord, later: timedelta = timedelta()) -> tuple[str, str]:
        claim = sees(plan, results.environment, [changed], now + later)
        assert claim is not None
        return claim.case, claim.text

    assert case(record)[0] == "sees"
    assert case(record, timedelta(days=30))[0] == "old"
    kind, text = case(record.model_copy(update={"machine": "a machine of 1999"}))
    assert kind == "differs"
    assert "another machine (a machine of 1999)" in text
    kernel = record.machine.rpartition(", ")[2]
    text = case(record.model_copy(update={"machine": record.machine.replace(kernel, "Linux 2.4")}))[1]
    assert f"as it was with Linux 2.4 (now {kernel})" in text
    assert case(record.model_copy(update={"scripts": "of another script"}))[0] == "none"
    assert case(record.model_copy(update={"server": "other 2.0"}))[0] == "differs"
    assert case(record.model_copy(update={"sessions": 3}))[0] == "none"
    assert case(record.model_copy(update={"params": {}}))[0] == "none"


def test_servers_of_variants_need_a_record_each(store: Path, tmp_path: Path, results: Results) -> None:
    (record,) = known(RunStore(store))
    plan = planned(tmp_path / "two.toml")
    named = [v.model_copy(update={"server": v.name}) for v in plan.variants]
    plan = plan.model_copy(update={"variants": tuple(named)})
    first = results.environment.server
    second = first.model_copy(update={"version": "2.0", "where": "elsewhere in memory"})
    two = {"servers": {"a": first, "b": second}, "programs": {"b": "/opt/new bin"}}
    environment = results.environment.model_copy(update=two)

    def claimed(*records: NoiseRecord) -> Claim:
        claim = sees(plan, environment, records, record.measured)
        assert claim is not None
        return claim

    (of_one, command) = claimed(record).text.split(": ")
    assert of_one.endswith(f"is that of {first.name} and not of {second.name}, and is not applied")
    assert command == "dbdyno noise lio --sessions 2 --pg-bin '/opt/new bin' measures it there."
    louder = record.model_copy(update={"server": second.name, "budget": record.budget | {"variance": 0.25}})
    both = claimed(record, louder)
    alone = claimed(louder.model_copy(update={"server": first.name}), louder)
    assert (both.case, both.value) == ("sees", alone.value)
    assert claimed(record.model_copy(update={"server": "other 3.0"})).case == "differs"
    assert claimed().text.startswith("How small a difference this comparison can see is not known: ")
    assert claimed().text.endswith(" That is the server of a: each server needs a measurement of its own.")
    assert sees(plan, None, [record, louder], record.measured) is None  # the servers are not known


def test_a_newer_record_of_another_machine_hides_none_of_this_one(
    store: Path, tmp_path: Path, results: Results
) -> None:
    plan, (record,) = planned(tmp_path / "two.toml"), known(RunStore(store))
    newer = {"machine": "a machine of 1999", "measured": record.measured + timedelta(hours=1)}
    records = [record, record.model_copy(update=newer)]
    claim = sees(plan, results.environment, records, record.measured + timedelta(days=1))
    assert claim is not None
    assert claim.case == "sees"
    assert records[0].key != records[1].key


def test_among_many_claims_four_repeats_are_too_few(store: Path, tmp_path: Path) -> None:
    """With 4 pairs p is at least 2 ** -7; three variants at three loads make nine claims."""
    text = (
        RECIPE.replace('sessions = "2"', 'sessions = "1,2,3"') + '[variants.c]\nsettings = { cpu = "6ms" }\n'
    )

    def case(repeats: int) -> str:
        plan = planned(tmp_path / "x.toml", text.replace("repeats = 5", f"repeats = {repeats}"))
        claim = sees(plan, None, known(RunStore(store)), datetime.now(UTC))
        assert claim is not None
        return claim.text

    assert 2**-7 * 9 > 0.05 > 2**-9 * 9
    assert case(4).endswith("whatever the noise: 5 repeats are the least.")
    assert "can see differences from " in case(5)


def test_large_differences_are_factors(store: Path, tmp_path: Path) -> None:
    (record,) = known(RunStore(store))
    loud = record.model_copy(update={"budget": record.budget | {"variance": 0.25}})
    claim = sees(planned(tmp_path / "x.toml"), None, [loud], datetime.now(UTC))
    assert claim is not None
    assert "can see differences from a factor of " in claim.text
    assert claim.text.endswith("Measure longer, or make the machine quieter: dbdyno doctor.")


def test_more_claims_and_restarts_make_differences_larger(
    store: Path, tmp_path: Path, results: Results
) -> None:
    (record,) = known(RunStore(store))
    now = datetime.now(UTC)

    def least(text: str, *, restarts: bool = False) -> float:
        claim = sees(planned(tmp_path / "x.toml", text), None, [record], now, restarts=restarts)
        assert claim is not None
        assert claim.value is not None
        return claim.value.value

    two = least(RECIPE)
    assert least(RECIPE + '[variants.c]\nsettings = { cpu = "6ms" }\n') > two
    assert least(RECIPE, restarts=True) > 5 * two

    plan = planned(tmp_path / "x.toml", RECIPE)
    servers = tuple(v.model_copy(update={"server": v.name}) for v in plan.variants)
    of_servers = sees(plan.model_copy(update={"variants": servers}), results.environment, [record], now)
    assert of_servers is not None
    assert of_servers.value is not None
    assert of_servers.value.value == least(RECIPE, restarts=True)  # each repeat is on a start of its own
    assert least(RECIPE.replace("repeats = 5", "repeats = 20")) < two


def test_records_of_another_version_are_kept(tmp_path: Path, results: Results) -> None:
    newer = {"run": "r", "format": 2}
    runs = RunStore(tmp_path)
    runs.remember_noise([newer])
    assert remember(runs, results) == ""
    assert remember(runs, results) == ""
    stored = runs.noise()
    assert stored is not None
    assert (stored[0], len(stored), len(known(runs))) == (newer, 2, 1)


def test_a_damaged_file_of_records_is_set_aside(tmp_path: Path, results: Results) -> None:
    (tmp_path / ".noise.json").write_text("[{")
    aside = tmp_path / ".noise.json.damaged"
    assert str(aside) in remember(RunStore(tmp_path), results)
    assert aside.read_text() == "[{"
    assert len(known(RunStore(tmp_path))) == 1


def test_records_that_cannot_be_written_are_no_error(tmp_path: Path, results: Results) -> None:
    (tmp_path / "runs").write_text("a file where the store should be")
    assert "Later comparisons cannot use this measurement: " in remember(RunStore(tmp_path / "runs"), results)


def test_a_damaged_record_is_as_none(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for content in ("{", "{}", '[1, {"run": 5}, null]'):
        (tmp_path / ".noise.json").write_text(content)
        assert known(store) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lio", "--windows", "0"), "--windows"),
        (("lio", "--sessions", "0"), "--sessions"),
        (("lio", "--sessions", "1,2"), "--sessions"),
        (("lio", "--see", "0"), "not a difference"),
        (("lio", "--see", "0%"), "not a difference"),
        (("lio", "--see", "100%"), "not a difference"),
        (("lio", "--time", "10s"), "4 measurements take"),
        (("lio", "--time", "40s", "--restarts", "9", *BRIEF), "two measurements on each of 10 starts"),
        (("lio", "--measure", "100ms", "--windows", "1"), "100ms"),
        (("lio", "--restarts", "-1"), "--restarts"),
        (("nothing",), "no workload 'nothing'"),
        ((), "no workload"),
        (("lio", "cpu"), "one workload at a time"),
        (("lio", "no=1"), "has no parameter 'no'"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_cure(words: tuple[str, ...], message: str) -> None:
    done = invoke("noise", *words, "--dry-run")
    assert done.exit_code != 0
    assert message in done.output + str(getattr(done.exception, "message", ""))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (RECIPE, "has 2 variants"),
        ('workload = "lio"\nsessions = "1"\nrates = "10,20"\n', "has a rate"),
        ('[[jobs]]\ncommand = "true"\n', "has commands"),
    ],
)
def test_a_recipe_of_more_than_one_load_is_refused(text: str, what: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["noise", recipe(tmp_path / "r.toml", text), "--dry-run"])
    assert done.exit_code != 0
    assert what in done.output + str(getattr(done.exception, "message", ""))


def test_another_server_is_not_restarted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = FakeServer.facts
    monkeypatch.setattr(FakeServer, "facts", lambda self: real(self).model_copy(update={"embedded": False}))
    monkeypatch.setattr(FakeServer, "restart", lambda _self: pytest.fail("restarted"))
    done = invoke("noise", "lio", *BRIEF, "--time", "35s", "--store", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    results = conduct.results_of(RunStore(tmp_path).open("last"))
    (claim,) = [c for c in results.findings if c.id == "noise-restarts"]
    assert "are not known: dbdyno did not start this server." in claim.text
    assert results.tables["noise_budget"]["floor"].to_list() == [None]


class _Stopping(NullProgressListener):
    """Asks to stop after the first measurement."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def measured(self, results: Results) -> None:  # noqa: ARG002
        self._interrupt.request_once()


def test_stopped_after_the_first_measurement_says_what_is_not_known(tmp_path: Path) -> None:
    interrupt, store, target = Interrupt(), RunStore(tmp_path), Target(dsn=DSN, sessions=2)
    noise: dict[str, Any] = {"window": "1s", "windows": 2, "restarts": 1, "per_start": 3}
    fields = {"engine": "fake", "sessions": "2", "measure": "2s", "repeats": 6, "noise": noise}
    request = conduct.Request("lio", None, conduct.Patch({**fields, "answer": ("noise",)}))
    host = host_of(HERE)
    context = conduct.RunContext[conduct.ProgressListener](
        host, target, store, _Stopping(interrupt), interrupt
    )
    record = conduct.run(*conduct.planned(request, host), context)
    assert record.info.status == "cut short"
    results = conduct.results_of(record)
    (answer,) = results.reply
    assert answer.text.startswith(
        "How small a difference can be seen is not known: 1 usable measurement was made of the 4 that it "
        "takes. dbdyno noise lio --sessions 2 --measure 1s starts again."
    )
    assert known(store) == []
    assert results.tables["noise"]["deviation"].null_count() == results.tables["noise"].height


def test_the_embedded_server_alone_can_be_restarted() -> None:
    with open_server("fake", Target(dsn=DSN)) as server:
        assert server.settings is not None
        server.settings.restart()
    with pytest.raises(DbdynoError, match="only servers that it started"):
        CliRunner().invoke(
            app, ["noise", "lio", "--dsn", "host=/nowhere", "--restarts", "2"], catch_exceptions=False
        )
