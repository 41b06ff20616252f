"""Recipes, options and configurations of hostile size: an error names the limit at once. The time limit is
far above the need of a busy machine, and far below the time to list all of a hostile size."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
import pytest
from click.testing import CliRunner

from dbdyno.cli.app import app
from dbdyno.conduct.request.request import Request, planned, workloads
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.plan import Experiment, JobSpec
from dbdyno.model.text import cpu_lists
from dbdyno.model.units import parse_duration_ns
from dbdyno.plan.job_words import parse_bytes, values_of
from dbdyno.plan.jobs import names, spread
from dbdyno.plan.ladder import first_of, parse_ladder
from dbdyno.plan.planner import resolve
from dbdyno.plan.rates import parse_rates, parse_think
from dbdyno.plan.recipe import parse_recipe
from dbdyno.plan.trigger_conditions import parse_condition
from dbdyno.plan.triggers import triggers_of

DIGITS = "9" * 5_000
"""More than int() takes."""
MOST_MORE_BYTES = 1 << 30


@pytest.fixture(autouse=True)
def in_time_and_memory() -> Iterator[None]:
    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError("longer than 30 s")

    before = signal.signal(signal.SIGALRM, late)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MORE_BYTES, limits[1]))
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1:5000000", "1..5000"),
        ("1:5000," * 100_000 + "1", "at most 1,000"),
        ("1," * 1_000_000 + "1", "at most 1,000"),
        (DIGITS, "not a session count"),
        (f"1:{DIGITS}", "not a session count"),
        ("1:2000", "at most 1000"),
    ],
)
def test_a_ladder_of_too_many_or_too_large_rungs_is_refused_with_the_limit(text: str, limit: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_ladder(text, 4)
    assert limit in f"{caught.value.message} {caught.value.cure}"


def test_rates_that_are_too_many_are_refused() -> None:
    for text in ("1:2:0.0000001", "1:2:1e-300", "1:2:x1.0000000001", "1," * 500_000 + "1", "1:900000:1"):
        with pytest.raises(UsageError, match=r"more than 1,000 rates|too long|too many"):
            parse_rates(text)


@pytest.mark.parametrize(
    "text",
    [
        "1:1000000000",
        "0:1:0.000000001",
        f"1{'0' * 30}:1{'0' * 29}5",
        f"1:2:x1.{'0' * 30}1",
        "1:2:x1.0000000001",
        ",".join(map(str, range(200_000))),
    ],
)
def test_values_of_a_parameter_that_are_too_many_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"more than 1,000 values|too many"):
        values_of(text, "n")


def test_combinations_are_counted_before_they_are_listed() -> None:
    axes = {f"a{n}": tuple(range(1000)) for n in range(8)}
    command = "true " + " ".join(f"{{{name}}}" for name in axes)
    experiment = Experiment(jobs=(JobSpec(command=command),), axes=axes)
    with pytest.raises(UsageError, match="1,000,000,000,000,000,000,000,000 combinations") as caught:
        spread(experiment, {})
    assert caught.value.cure == "at most 1,000"


def test_cells_are_counted_before_they_are_listed() -> None:
    experiment = Experiment(workload="lio", sessions="1:1000", repeats=1000)
    with pytest.raises(
        UsageError, match=r"1,000,000 measurements \(1,000 load levels x 1 variant x 1,000"
    ) as caught:
        resolve(experiment, workloads()["lio"], 4.0, "test")
    assert "at most 20,000" in str(caught.value.cure)


def test_a_thousand_equal_variants_are_one_line_of_the_plan() -> None:
    experiment = Experiment.model_validate(
        {"workload": "lio", "sessions": "1", "variants": {f"v{n}": {} for n in range(1000)}}
    )
    plan = resolve(experiment, workloads()["lio"], 4.0, "test")
    (choice,) = (c for c in plan.choices if c.name == "equal variants")
    assert choice.value.startswith("v0, v1, v2") and choice.value.endswith(", v999")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("sessions = [" + "1," * 100_000 + "]", "at most 1,000"),
        ('workload = "lio"\nrepeats = 1000000000', "less than or equal to 1000"),
        (f"repeats = {DIGITS}", "line:1:"),
        ("seed = -1", "greater than or equal to 0"),
        ("seed = 99999999999999999999", "less than or equal to 9223372036854775807"),
        ("[limits]\nquota = inf", "finite"),
        ("[limits]\nquota = nan", "finite"),
        ("[limits]\nquota = 1e30", "less than or equal to 1000000"),
        ("[limits]\npool = 1000000000", "less than or equal to 10000"),
        ("[driver]\nmax_tries = 99999999999", "less than or equal to 2147483647"),
        (
            '[[scripts]]\nbuiltin = "simple"\nweight = 99999999999999999999',
            "less than or equal to 2147483647",
        ),
        ('[[scripts]]\nbuiltin = "select-only"\n' * 5_000, "at most 100 items"),
        ('[[jobs]]\ncommand = "true"\n' * 5_000, "at most 1000 items"),
        ('[[phases]]\nname = "a"\nduration = "1s"\nrate = 1\n' * 5_000, "at most 1000 items"),
        ('[[triggers]]\nwhen = "active > 1"\ndo = "memory"\n' * 5_000, "at most 100 items"),
        ("".join(f"[variants.v{n}]\n" for n in range(20_000)), "at most 1000 items"),
        ("[axes]\n" + "".join(f"a{n} = [1, 2]\n" for n in range(5_000)), "at most 16 items"),
        ("[axes]\na = [" + "1," * 100_000 + "]", "at most 1000 items"),
        ("[params]\n" + "".join(f"p{n} = 1\n" for n in range(20_000)), "at most 1000 items"),
        ("a = " + "[" * 10_000 + "]" * 10_000, "nested"),
        ("a = " + "{a=" * 10_000 + "1" + "}" * 10_000, "nested"),
        ("a." * 50_000 + "a = 1", "nested more than 20 levels"),
        ("[" + "a." * 50_000 + "a]", "nested more than 20 levels"),
        ("x = {" + "a." * 50_000 + "a = 1}", "nested more than 20 levels"),
        ('doc = "' + "x" * (2 << 20) + '"', "at most 1,048,576 are read"),
        ("".join(f"k{n} = 1\n" for n in range(50_000)), "more"),
        ("".join(f"k{n} = {{a = 1}}\n" for n in range(20_000)), "more"),
    ],
)
def test_a_recipe_of_hostile_size_is_refused_with_the_limit(recipe: str, message: str) -> None:
    with pytest.raises(DbdynoError) as caught:
        experiment = parse_recipe(recipe, "r", "line")
        triggers_of(experiment)
        parse_ladder(experiment.sessions or "1")
    error = f"{caught.value.message}\n{caught.value.cure}"
    assert message in error
    assert len(error) < 10_000


def test_a_recipe_of_a_hundred_megabytes_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.toml"
    with file.open("wb") as sparse:
        sparse.truncate(100 << 20)
    with pytest.raises(UsageError, match="larger than 64 MiB"):
        planned(Request(recipe=str(file)), None)  # type: ignore[arg-type]  # it is not reached


@pytest.mark.parametrize("text", [f"{DIGITS}s", "1" + "0" * 30, "36501d", f"{'9' * 400}.5h"])
def test_a_duration_of_more_than_a_century_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="longer than 36500 days"):
        parse_duration_ns(text, "--measure")


@pytest.mark.parametrize("text", ["1e30", "nan", "inf", "-1s", "", " "])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    for parse in (parse_duration_ns, parse_think):
        with pytest.raises(UsageError):
            parse(text)  # type: ignore[operator]


def test_phases_that_last_ten_thousand_years_are_refused() -> None:
    phase = {"duration": "36500d", "rate": 1}
    phases = [{"name": f"p{n}", **phase} for n in range(100)]
    experiment = Experiment.model_validate({"workload": "lio", "phases": phases})
    with pytest.raises(UsageError, match="all phases together"):
        resolve(experiment, workloads()["lio"], 4.0, "test")


def test_sizes_and_lists_of_cpus_that_are_too_large_are_refused() -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_bytes(f"{DIGITS}kB", "--keep-output")
    with pytest.raises(UsageError, match="not a size"):
        triggers_of(Experiment(trigger_budget=f"{DIGITS}MB"))
    for text in ("0-999999," * 100_000 + "1", "0-999999", ",".join(f"{n}-8191" for n in range(9_000))):
        with pytest.raises(UsageError, match=r"beyond CPU 8191|too long"):
            cpu_lists.parse(text, "cpus")
    with pytest.raises(UsageError):
        first_of(f"first:{DIGITS}", [0], "variant a")


@pytest.mark.parametrize(
    "text",
    ["(" * 50_000, "not " * 50_000 + "active > 1", "not " * 2_000 + "active > 1", "(" * 100 + "active > 1"],
)
def test_conditions_of_triggers_that_are_nested_too_deep_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"at most 10,000|more than 20 levels|too long"):
        parse_condition(text)


def test_jobs_of_one_name_are_numbered() -> None:
    numbered = names(["true"] * 1000)
    assert len(set(numbered)) == 1000


@pytest.mark.parametrize(
    "content", ["a = " + "[" * 10_000, f"a = {DIGITS}", "a." * 50_000 + "b = 1", "x" * (2 << 20)]
)
def test_a_configuration_of_hostile_size_is_refused_with_its_file(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(content)
    monkeypatch.setenv("DBDYNO_CONFIG", str(file))
    done = CliRunner().invoke(app, ["runs"], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert str(file) in done.exception.message


@pytest.mark.parametrize(
    "words",
    [
        "run -f a.sql@99999999999",
        f"run -f a.sql@{DIGITS}",
        f"run -b simple -j {DIGITS}",
        f"run -b simple --random-seed {DIGITS}",
        "run -b simple -s 99999999999",
        "run -b simple --max-tries 99999999999",
        "run -b simple --seed 99999999999999999999",
        "run -b simple --seed -1",
        f"run -b simple --measure {'9' * 400}",
        "run -b simple --until ²%",
        "run -b simple -c ²",
        "run lio --think  ",
        f"hot last --against {DIGITS}",
        "show last --sessions 99999999999999999999",
        "show last --window 99999999999999999999",
        "observe --only-pid 99999999999999999999",
        "label last --note \udcff",
        "cluster status local:²",
        f"cluster status local:{DIGITS}",
        "cluster status ray://127.0.0.1:99999999",
        "cluster status ray://a..b:1",
        "snapshot --dsn postgresql://127.0.0.1:²/x",
        f"snapshot --dsn port={DIGITS}",
        "snapshot --dsn postgresql://127.0.0.1:1/x?connect_timeout=²",
        "run --command echo\udcff",
    ],
)
def test_an_option_of_hostile_size_is_refused(
    tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBDYNO_STORE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sql").write_text("select 1;")
    arguments = [*words.split(" "), *(["--dry-run"] if words.startswith("run") else [])]
    done = CliRunner().invoke(app, arguments, standalone_mode=False)
    refused: tuple[type[BaseException], ...] = (DbdynoError, click.ClickException)
    assert isinstance(done.exception, refused), (done.exception, done.output[-500:])
