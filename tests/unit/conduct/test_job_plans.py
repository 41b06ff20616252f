"""Commands and recipes become plans: placeholders, axes, orders, defaults, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dbdyno.conduct.request import job_specs
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.hidden_args import storable
from dbdyno.model.plan.job_workload import workload_of_jobs
from dbdyno.model.plan.plan import Experiment, Plan
from dbdyno.plan import names, resolve, values_of
from dbdyno.plan.job_words import filled, parse_bytes, words


def plan_of(**keys: Any) -> Plan:
    """Returns the plan on 4 CPUs."""
    experiment = job_specs.spread_out(Experiment(engine="command", **keys))
    commands = job_specs.commands(experiment)
    unit = workload_of_jobs([j for c in commands.values() for j in c.jobs])
    return resolve(experiment, unit, 4, "by the test", commands=commands)


FIVE = [{"command": f"make -j{{threads}} -C {name}", "name": name} for name in "abcde"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", (1, 2, 4)),
        ("1:4", (1, 2, 3, 4)),
        ("1:32:x2", (1, 2, 4, 8, 16, 32)),
        ("1:10:x3", (1, 3, 9, 10)),
        ("0.5:2:0.5", ("0.5", "1", "1.5", "2")),
        ("1:10:4", (1, 5, 9, 10)),
        ("1:3,8", (1, 2, 3, 8)),
        ("zstd,xz", ("zstd", "xz")),
        ("a\\,b", ("a,b",)),
        ("/tmp/a:b", ("/tmp/a:b",)),
        ("http://host:80/", ("http://host:80/",)),
        ("007", ("007",)),
        ("-1:1", (-1, 0, 1)),
        ("", ("",)),
        ("0.1:0.3:0.1", ("0.1", "0.2", "0.3")),
    ],
)
def test_values_are_listed_or_spanned_by_step_count_or_factor(text: str, values: tuple[Any, ...]) -> None:
    assert tuple(map(str, values_of(text, "x"))) == tuple(map(str, values))


@pytest.mark.parametrize("text", ["1,,2", "4:1", "1:4:0", "1:8:x1", "0:8:x2", "1:1000000", "1:2:x1.000001"])
def test_wrong_values_are_refused_with_the_cure(text: str) -> None:
    with pytest.raises(UsageError) as e:
        values_of(text, "threads")
    assert e.value.cure


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("xz -T{n} -kc {file}", ("xz", "-T4", "-kc", "/a b")),  # a value is never split
        ("awk '{print $1}' {file}", ("awk", "{print $1}", "/a b")),
        ("awk '{if ($1) {s += $1}}' x", ("awk", "{if ($1) {s += $1}}", "x")),
        ("awk '{{print $1}}' x", ("awk", "{print $1}", "x")),  # doubled, as in Python
        ("awk '{{print}}' x", ("awk", "{print}", "x")),
        ("find . -exec ls {} ';x'", ("find", ".", "-exec", "ls", "{}", ";x")),
        ("echo ${HOME} {1,2}", ("echo", "${HOME}", "{1,2}")),
        ("""curl -d '{"a": {"b": 1}}'""", ("curl", "-d", '{"a": {"b": 1}}')),
        ("work {session} {yes}", ("work", "{session}", "true")),
        ("echo '|' \"&&\"", ("echo", "|", "&&")),
        ("{{{n}}}", ("{4}",)),
    ],
)
def test_a_command_is_split_into_words_with_its_placeholders_filled(text: str, argv: tuple[str, ...]) -> None:
    values: Mapping[str, Any] = {"n": 4, "file": "/a b", "yes": True}
    assert words(text, values, "command") == argv


def test_a_shell_gets_the_line_as_it_is() -> None:
    assert words("sort {f} | awk '{{print}}'", {"f": "x"}, "c", "sh")[2] == "sort x | awk '{print}'"
    assert words("echo ${n} {n}", {"n": 4}, "c", "bash") == ("bash", "-c", "echo ${n} 4")


@pytest.mark.parametrize(
    ("text", "message", "cure"),
    [
        ("xz -T{thread}", "{thread} has no value", "did you mean 'threads'?"),
        ("awk '{print}'", "{print} has no value", "{{print}}"),
        ("echo ${threads}", "shell's variable", "{threads}"),
        ("sort x | uniq", "| means something to a shell", "--shell sh"),
        ("make > /dev/null", "> means something", "--shell sh"),
        ("echo 'a", "quotation mark", "close it"),
        ("", "is empty", "name a program"),
        ("''", "is empty", "name a program"),
    ],
)
def test_a_command_that_cannot_be_is_refused_with_the_cure(text: str, message: str, cure: str) -> None:
    with pytest.raises(UsageError) as e:
        words(text, {"threads": 1}, "command")
    assert message in e.value.message
    assert cure in (e.value.cure or "")


def test_doubled_braces_of_a_file_name_are_single_ones() -> None:
    assert filled("{{x}}/{n}", {"n": 1}, "input") == "{x}/1"


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (["gzip -k x", "/usr/bin/zstd x"], ["gzip", "zstd"]),
        (["sleep 0.1", "sleep 0.2"], ["sleep-0.1", "sleep-0.2"]),
        (["a", "a"], ["a", "a-2"]),
        (["x " + "y" * 60, "x " + "y" * 60], ["x-" + "y" * 38, "x-" + "y" * 33 + "-2"]),
    ],
)
def test_commands_are_named_by_program_and_what_differs(commands: list[str], expected: list[str]) -> None:
    assert names(commands) == expected
    assert all(len(n) <= 40 for n in expected)
    assert not any("y" in n for n in names(commands, hide=True))


def test_an_axis_is_a_variant_for_each_value() -> None:
    plan = plan_of(command="xz -T{threads} -{level}", axes={"threads": [1, 2], "level": [1, 9]})
    assert [v.name for v in plan.variants] == [
        "threads=1,level=1", "threads=1,level=9", "threads=2,level=1", "threads=2,level=9",
    ]  # fmt: skip
    assert plan.variants[1].jobs[0].argv == ("xz", "-T1", "-9")
    assert plan.variants[1].params == {"threads": 1, "level": 9}
    assert {c.sessions for c in plan.cells} == {1}
    assert max(c.repeat for c in plan.cells) == 5  # enough for an interval of each variant
    assert [c.name for c in plan.choices] == ["CPUs", "sessions", "repeats", "order"]


def test_one_command_alone_is_measured_once() -> None:
    plan = plan_of(command="true")
    assert [(v.name, c.sessions, c.settle_ns, c.once) for v in plan.variants for c in plan.cells] == [
        ("base", 1, 0, False)
    ]
    assert plan.experiment.warmup == 1
    assert plan_of(command="true", settle="1s").cells[0].settle_ns == 10**9


def test_a_variant_takes_part_in_the_axes_that_it_has() -> None:
    variants = {"a": {"jobs": [{"command": "a {n}"}]}, "b": {"jobs": [{"command": "b"}]}}
    plan = plan_of(variants=variants, axes={"n": [1, 2]})
    assert [v.name for v in plan.variants] == ["a,n=1", "a,n=2", "b"]


def test_names_of_variants_with_long_values_differ() -> None:
    files = [f"/data/{'x' * 50}{n}" for n in range(3)]
    plan = plan_of(command="gzip {file}", axes={"file": files})
    variant_names = [v.name for v in plan.variants]
    assert len({*variant_names}) == 3
    assert all(len(n) <= 40 and "/" not in n for n in variant_names)


def test_all_orders_are_the_corners_of_the_grid() -> None:
    plan = plan_of(
        jobs=FIVE, axes={"threads": [1, 2, 8]}, orders=["serial", "parallel", "concurrent", "both"]
    )
    corners = {(c.params["threads"], c.sessions) for c in plan.cells}
    assert corners == {(1, 1), (8, 1), (1, 5), (8, 5)}
    assert all(c.once for c in plan.cells)
    assert len(plan.cells) == 4 * 5


def test_a_plan_of_some_orders_has_those_alone() -> None:
    plan = plan_of(jobs=FIVE, axes={"threads": [1, 8]}, orders=["serial", "both"], repeats=1)
    assert [(c.params["threads"], c.sessions) for c in plan.cells] == [(1, 1), (8, 5)]


def test_jobs_of_one_name_are_numbered() -> None:
    plan = plan_of(jobs=[{"command": "cc a.c"}, {"command": "cc b.c"}], once=True)
    assert [j.name for j in plan.jobs] == ["cc", "cc-2"]
    assert plan.cells[0].once


def test_the_texts_that_go_with_a_job_have_its_values() -> None:
    job = {
        "command": "xz -kc {file}", "prepare": "rm -f {file}.xz", "verify": "cmp {file} {job}", "shell": "sh",
        "input": "{file}", "env": {"A": "{n}"}, "timeout": "3s", "work_bytes": "{file}",
    }  # fmt: skip
    plan = plan_of(jobs=[job], params={"file": "f", "n": 2}, setup="touch {file}")
    planned_job, variant = plan.variants[0].jobs[0], plan.variants[0]
    assert planned_job.prepare == ("sh", "-c", "rm -f f.xz")
    assert planned_job.verify == ("sh", "-c", "cmp f xz")
    assert (planned_job.input, planned_job.env, planned_job.timeout_ns) == ("f", {"A": "2"}, 3 * 10**9)
    assert (planned_job.work_file, planned_job.work_unit, variant.setup) == (
        "f",
        "bytes",
        ("sh", "-c", "touch f"),
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"command": "a {n}", "params": {"m": 1}}, "no command has the placeholder {m}"),
        ({"command": "a {n}"}, "{n} has no value"),
        ({"command": "a {session}", "params": {"session": 1}}, "filled in by dbdyno"),
        ({"command": "a {n}", "axes": {"n": []}}, "no values"),
        ({"command": "a {n}", "axes": {"n": [1]}, "params": {"n": 1}}, "both params and axes"),
        ({"command": "a", "once": True, "rate": "5"}, "--rate with --once"),
        ({"command": "a", "runs": 3, "sessions": "auto"}, "--sessions auto with --runs"),
        ({"command": "a", "runs": 3, "target": "p95<1s"}, "--target with --runs"),
        ({"command": "a", "once": True, "sessions": "1:4"}, "4 sessions, and 1 execution"),
        ({"command": "a", "settings": {"work_mem": "1GB"}}, "--settings with a command"),
        ({"command": "a", "limits": {"pool": 2}}, "--limit pool"),
        ({"command": "a", "driver": {"protocol": "simple"}}, "--driver protocol"),
        ({"command": "a", "reset": "each"}, "--reset"),
        ({"command": "a", "orders": ["serial"]}, "there is one job"),
        ({"jobs": FIVE, "axes": {"threads": [1]}, "orders": ["both"]}, "how many threads"),
        ({"jobs": [{"command": "a", "work_regex": "("}]}, "--work-regex"),
        ({"jobs": [{"command": "a", "work_regex": "a"}]}, "0 groups"),
        ({"jobs": [{"command": "a", "work_unit": "files"}]}, "work_unit without work_regex"),
        ({"jobs": [{"command": "a", "timeout": "0s"}]}, "timeout of 0"),
        ({"jobs": [{"command": "a", "work_bytes": "f"}, {"command": "b"}]}, "several kinds"),
        ({"command": "@no-such-job"}, "no job @no-such-job"),
    ],
)
def test_jobs_that_cannot_be_planned_are_refused_with_the_cure(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as e:
        plan_of(**keys)
    assert message in e.value.message
    assert e.value.cure


def test_hidden_arguments_are_not_stored() -> None:
    texts = dict.fromkeys(("input", "prepare", "verify", "directory"), "/SECRET")
    job = {"command": "curl -u {user} SECRET {n}", "env": {"A": "SECRET"}, **texts}
    plan = plan_of(
        jobs=[job],
        params={"user": "SECRET"},
        axes={"n": [1, 2]},
        setup="x SECRET",
        cleanup="x SECRET",
        hide_args=True,
    )
    assert "SECRET" in plan.model_dump_json()
    stored = storable(plan)
    assert "SECRET" not in stored.model_dump_json()
    assert [v.name for v in stored.variants] == ["n=1", "n=2"]
    assert stored.variants[0].jobs[0].shown == "curl"
    assert "SECRET" not in workload_of_jobs(plan.jobs).model_dump_json()


def test_sizes_in_bytes_have_units_of_1024() -> None:
    assert [parse_bytes(t, "") for t in ("64kB", "1MiB", "4096", "2M")] == [65536, 1 << 20, 4096, 2 << 20]
    with pytest.raises(UsageError):
        parse_bytes("lots", "--keep-output")


@pytest.mark.parametrize(
    "text",
    ["echo a;sleep 1", "echo x>y", "a&&b", "a||b", "a&", "cat<x", "x 2>/dev/null", "echo $(id)", "a|b"],
)
def test_operators_of_a_shell_are_noticed_without_blanks(text: str) -> None:
    with pytest.raises(UsageError, match="means something to a shell"):
        words(text, {}, "--command")


@pytest.mark.parametrize(
    ("text", "last"),
    [("echo 'a;b'", "a;b"), (r"find . -exec ls {} \;", ";"), ('echo "x>y|z"', "x>y|z"), ("echo {n}", "a;b")],
)
def test_quoted_operators_and_those_of_values_are_words(text: str, last: str) -> None:
    assert words(text, {"n": "a;b"}, "--command")[-1] == last


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("docker ps --format {{.Names}}", "{{.Names}}"),
        ("docker ps --format '{{.Names}} {n}'", "{{.Names}} 4"),
        (
            "kubectl get -o go-template='{{range .items}}{{.x}}{{end}}'",
            "go-template={{range .items}}{{.x}}{{end}}",
        ),
        ("docker inspect -f '{{json .State}}'", "{{json .State}}"),
        ("awk '{{print {n}}}'", "{print 4}"),
    ],
)
def test_templates_keep_their_braces(text: str, result: str) -> None:
    assert words(text, {"n": 4}, "--command")[-1] == result
