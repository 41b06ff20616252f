"""Starting from the browser: forms made of the options, what is refused, plans, runs, and their end."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

import click
import pytest

from dbdyno import conduct, present
from dbdyno.cli import web_forms
from dbdyno.cli.app import app
from dbdyno.cli.flags import by_group
from dbdyno.cli.web_forms import COMMANDS, LEFT_OUT, PLAIN, CommandForms, flag_of
from dbdyno.kernel.machine import HERE
from dbdyno.model.errors import UsageError
from dbdyno.present.document.document import Table
from dbdyno.store import RunStore
from dbdyno.store.listing import is_alive, start_ticks
from dbdyno.web import app as app_of_lab
from dbdyno.web.forms import WrongField
from dbdyno.web.start import stop_button
from dbdyno.web.started import Start, Starts, interrupt
from tests.waiting import eventually
from tests.web.conftest import Answer, Lab, Started

NAMES = CommandForms.names
BRIEF = {"command": "run", "commands": "true", "runs": "1", "sessions": "1", "observe": "on"}


def options_of(name: str) -> Sequence[click.Option]:
    context = click.Context(app, **app.context_settings)
    command = app.get_command(context, name)
    assert command is not None
    groups = by_group(command, click.Context(command, context, info_name=name))
    return [o for options in groups.values() for o in options if o.expose_value or o.name in LEFT_OUT]


@pytest.fixture
def forms(tmp_path: Path) -> CommandForms:
    return CommandForms(tmp_path / "store", commands=False)


@pytest.fixture
def may_all(start_lab: Started, tmp_path: Path) -> Lab:
    store = tmp_path / "store"
    return start_lab(store, CommandForms(store, commands=True)).enter()


def post(lab: Lab, does: str, **fields: str) -> Answer:
    return lab.post(f"/start/{does}", urlencode(fields).encode())


def started(lab: Lab, **fields: str) -> Start:
    """Starts something and returns it as the store has it."""
    answer = post(lab, "run", **fields)
    assert answer.status == 303, answer.text
    place = answer.headers["location"]
    return Starts(RunStore(lab.store)).find(place.removeprefix("/start/run/").partition("?")[0])


def state(lab: Lab, start: Start) -> dict[str, object]:
    shown: dict[str, object] = json.loads(lab.ask(f"/start/state?start={start.id}").text)
    return shown


# The forms.


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_in_a_form_or_left_out_for_a_reason(name: str) -> None:
    for option in options_of(name):
        places = [o for o in (PLAIN, COMMANDS, LEFT_OUT) if option.name in o]
        assert len(places) == 1, f"decide on {flag_of(option)} in {web_forms.__file__}"


@pytest.mark.parametrize("name", NAMES)
def test_fields_have_the_words_defaults_and_choices_of_the_options(name: str, tmp_path: Path) -> None:
    fields = {f.name: f for f in CommandForms(tmp_path, commands=True).form(name).fields()}
    options = {o.name: o for o in options_of(name) if o.name not in LEFT_OUT}
    assert fields.keys() - {"workload"} == options.keys()
    for key, option in options.items():
        field = fields[str(key)]
        default = f"  [default: {field.default}]" if field.default else ""
        assert field.flag in option.opts
        assert f"{field.help}{default}" == option.help
        assert field.common == getattr(option, "common", False)
        if isinstance(option.type, click.Choice):
            assert [c.value for c in field.choices] == [*option.type.choices]


def test_the_configuration_file_gives_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[run]\nmeasure = "7s"\nwait = true\n')
    config.chmod(0o600)
    monkeypatch.setenv("DBDYNO_CONFIG", str(config))
    fields = {f.name: f for f in CommandForms(tmp_path, commands=False).form("run").fields()}
    assert fields["measure"].default == "7s" and not fields["measure"].fixed
    assert fields["wait"].fixed
    shown = CommandForms(tmp_path, commands=False).plan("run", {"workload": "lio", "sessions": "1"})
    assert "measurement 7s each" in shown.lead[1].text


# What is refused.


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_fields_can_be_set(name: str, forms: CommandForms) -> None:
    hidden = ("host", "dbname", "username", "quiet", "help", "store", "more", "")
    for key in (*COMMANDS, *LEFT_OUT, *hidden):
        with pytest.raises(WrongField, match="cannot be set"):
            forms.words(name, {key: "1"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sessions", "1\n--store=/tmp/x"),
        ("note", "a\0b"),
        ("note", "a\x1b[2J"),
        ("note", "x" * 3_000),
        ("params", "a=1\n" * 200),
        ("profile.value", "--store=/tmp/x"),
        ("profile.value", "x"),
        ("waits", "--store=/tmp/x"),
        ("snapshots", "--store=/tmp/x"),
        ("engine", "os"),
        ("workload", "--help"),
        ("workload", "/etc/passwd"),
        ("workload", "own.toml"),
        ("recipe", "/etc/passwd"),
        ("recipe", "compress"),  # it runs commands
        ("dsn", "--store=/tmp/x"),
        ("dsn", "host=db1 passfile=/etc/passwd"),
        ("dsn", "postgresql://app@db1/prod?sslkeylogfile=/tmp/x"),
        ("dsn", "options='-c session_preload_libraries=x'"),
    ],
)
def test_hostile_values_are_refused_at_their_field(field: str, value: str, forms: CommandForms) -> None:
    with pytest.raises(WrongField) as error:
        forms.words("run", {field: value})
    assert error.value.field == field.removesuffix(".value") and error.value.cure


@pytest.mark.parametrize("value", ["--store=/tmp/x", "-f/etc/passwd", "--", "-", "=", "--help"])
@pytest.mark.parametrize("field", ["sessions", "name", "tags", "params", "builtins", "limits"])
def test_a_value_never_becomes_another_option(field: str, value: str, forms: CommandForms) -> None:
    words = [*forms.words("run", {field: value, "workload": "lio"})]
    options = {f.name: f.flag for f in forms.form("run").fields()}
    assert words[2:] == [f"{options[field]}={value}", "--", "lio"]
    command = app.get_command(click.Context(app, **app.context_settings), "run")
    assert command is not None
    try:
        understood = click.Command.make_context(
            command, "run", words[1:], parent=click.Context(app, **app.context_settings)
        ).params
    except (click.UsageError, UsageError):
        return  # of the value itself
    assert understood[field] == value or value in understood[field]
    assert not understood["files"] and str(understood["store"]) == words[1].partition("=")[2]


def test_a_password_is_refused_with_the_cure_and_not_repeated(start_lab: Started, tmp_path: Path) -> None:
    lab = start_lab(tmp_path, CommandForms(tmp_path, commands=True)).enter()
    for does in ("plan", "run"):
        answer = post(lab, does, workload="lio", sessions="\x01", dsn="postgresql://app:hunter2@db1/prod")
        assert answer.status == 400 and "~/.pgpass" in answer.text
        assert "hunter2" not in answer.text
        answer = post(lab, does, workload="lio", dsn="postgresql://app:a/hunter2@db1/prod")  # read as a port
        assert answer.status == 400 and "hunter2" not in answer.text
        for nested in ("host=h password=hunter2", "postgresql://u:hunter2@h/x", "password=hunter2 x"):
            answer = post(lab, does, workload="lio", dsn=f"dbname='{nested}'")
            assert answer.status == 400 and "hunter2" not in answer.text
        answer = post(lab, does, workload="lio", engine="none", dsn="host=h password=hunter2")
        assert answer.status == 400 and "hunter2" not in answer.text
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("more", ["", "&dsn=host=db1", "&engine=none"])
def test_an_address_loses_a_password(start_lab: Started, tmp_path: Path, more: str) -> None:
    lab = start_lab(tmp_path, CommandForms(tmp_path, commands=True)).enter()
    asked = lab.ask(f"/start?command=observe&name=x&dsn=host%3Dh%20password%3Dhunter2{more}")
    assert asked.status == 303 and "hunter2" not in f"{asked.headers} {asked.text}"
    shown = lab.ask(asked.headers["location"])
    assert "is not shown: it may hold a password" in shown.text and 'value="x"' in shown.text
    assert ">host=db1</textarea>" in lab.ask("/start?command=observe&dsn=host%3Ddb1").text


def test_without_the_flag_nothing_starts_and_the_page_names_it(start_lab: Started, tmp_path: Path) -> None:
    lab = start_lab(tmp_path / "store").enter()
    assert "--allow-start" in lab.ask("/start").text
    for does in ("plan", "run", "stop"):
        answer = post(lab, does, **BRIEF)
        assert answer.status == 403 and "--allow-start" in answer.text
    assert not lab.store.exists()


def test_commands_need_a_flag_of_their_own(start_lab: Started, tmp_path: Path) -> None:
    lab = start_lab(tmp_path / "store", CommandForms(tmp_path / "store", commands=False)).enter()
    assert 'name="commands"' not in lab.ask("/start").text
    answer = post(lab, "run", **BRIEF)
    assert answer.status == 400 and "--allow-commands" in answer.text
    assert not lab.store.exists()


# Plans.


def test_a_plan_is_that_of_a_dry_run_and_changes_nothing(may_all: Lab) -> None:
    answer = post(may_all, "plan", workload="lio", sessions="1,2", repeats="3", note="<b>")
    request = conduct.Request("lio", None, conduct.Patch({"sessions": "1,2", "repeats": 3}))
    plan, _ = conduct.planned(request, conduct.host_of(HERE))
    line = present.plan_lines(plan)[0]
    assert line in answer.text
    assert 'value="1,2"' in answer.text and "&lt;b&gt;" in answer.text and "<b>" not in answer.text
    kept = post(may_all, "plan?save=1", workload="lio", sessions="1,2", repeats="3")
    assert line in kept.text and "data-served" not in kept.text and "<form" not in kept.text
    assert not may_all.store.exists()


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"workload": "lio", "sessions": "0"}, "sessions", "outside"),
        ({"workload": "lio", "repeats": "many"}, "repeats", "not a whole number"),
        ({"workload": "lio", "measure": "30x"}, "measure", "30x"),
        ({}, "", "nothing to run"),
    ],
)
def test_an_error_is_at_its_field_with_the_cure(
    given: dict[str, str], field: str, words: str, forms: CommandForms
) -> None:
    with pytest.raises(WrongField, match=words) as error:
        forms.plan("run", given)
    assert error.value.field == field and error.value.cure


def test_each_load_of_a_plan_has_its_time(forms: CommandForms) -> None:
    given = {"workload": "lio", "sessions": "1,2", "repeats": "3", "settle": "2s", "measure": "10s"}
    (table,) = (b for b in forms.plan("run", given).blocks if isinstance(b, Table))
    place = [c.head for c in table.columns].index("under load")
    assert [row.cells[place].text for row in table.rows] == ["36.0 s", "36.0 s"]


def test_wrong_values_are_shown_together_each_at_its_field(may_all: Lab) -> None:
    given = {"workload": "lio", "sessions": "1,zwei", "measure": "2m", "repeats": "many", "settle": "1s"}
    page = post(may_all, "plan", **given).text
    assert re.findall(r'<[^>]*name="(\w+)"[^>]*aria-invalid="true"', page) == [
        "sessions",
        "measure",
        "repeats",
    ]
    summary = page.partition('id="error"')[2].partition("</div>")[0]
    assert re.findall(r'href="#field-(\w+)"', summary) == ["sessions", "measure", "repeats"]


def test_an_address_fills_the_form_but_not_with_what_is_executed(may_all: Lab) -> None:
    given = {"command": "run", "sessions": "1,2", "params": "blocks=32\nscale=4", "env": "PGPASSWORD=hunter2"}
    page = post(may_all, "plan", **given, commands="true", runs="2").text
    found = re.search(r'data-address="([^"]*)"', page)
    assert found is not None and "hunter2" not in found[1] and "commands" not in found[1]
    form = may_all.ask(html.unescape(found[1])).text
    assert 'value="1,2"' in form and "blocks=32\nscale=4" in form
    assert "rm -rf" not in may_all.ask("/start?command=run&commands=rm+-rf+.").text


def test_several_values_are_planned_and_sent_again(may_all: Lab) -> None:
    given = {"recipe": "random-read", "params": "blocks=32\r\nscale=4096", "sessions": "1"}
    answer = post(may_all, "plan", **given)
    assert "blocks=32 scale=4096" in answer.text
    sent = re.search(r'name="params" value="([^"]*)"', answer.text)
    assert sent is not None and sent[1] == "blocks=32\nscale=4096"


def test_an_empty_connection_string_can_be_given(forms: CommandForms) -> None:
    assert "--dsn=" in forms.words("run", {"workload": "lio", "dsn": '""'})
    assert not any("dsn" in word for word in forms.words("run", {"workload": "lio", "dsn": " "}))


def test_an_observation_has_a_plan_too(forms: CommandForms) -> None:
    shown = forms.plan("observe", {"duration": "60s", "user": "app"})
    assert "user app" in shown.lead[0].text
    assert "POLARS_MAX_THREADS" not in os.environ or os.environ["POLARS_MAX_THREADS"] == "1"
    assert forms.words("observe", {"duration": "60s"})[:2] == ["--quiet", "observe"]


# Runs.


def test_a_run_is_started_once_and_listed_by_every_server(may_all: Lab, start_lab: Started) -> None:
    form = {**BRIEF, "name": "first", "key": "k"}
    start = started(may_all, **form)
    assert started(may_all, **form) == start  # pressed twice
    assert started(may_all, **form | {"commands": "false"}) != start  # back on the same page, and changed
    eventually(lambda: not state(may_all, start)["alive"])
    run = next(r for r in RunStore(may_all.store).list() if r.document["pid"] == start.pid)
    assert run.status == "complete" and run.document["name"] == "first"
    modes = {p.stat().st_mode & 0o777 for p in (may_all.store / "started").iterdir()}
    assert modes == {0o600} and (may_all.store / "started").stat().st_mode & 0o777 == 0o700
    assert state(may_all, start)["links"] == [{"text": "Results of first", "path": f"/run/{run.id}"}]
    page = start_lab(may_all.store, CommandForms(may_all.store, commands=False)).enter().ask("/start").text
    assert f"/start/run/{start.id}" in page and "It is complete." in page
    with pytest.raises(UsageError, match="ended"):
        Starts(RunStore(may_all.store)).stop(start, 1)


def test_saved_pages_have_nothing_that_needs_the_server(may_all: Lab) -> None:
    start = started(may_all, **BRIEF)
    eventually(lambda: not state(may_all, start)["alive"])
    for path in ("/start?command=run", f"/start/run/{start.id}?"):
        assert "<form" in may_all.ask(path).text
        saved = may_all.ask(f"{path}&save=1").text
        assert "dbdyno run" in saved and "It is complete." in saved
        assert re.findall(r'<(?:form|button type="submit"|[^>]*(?:href|action)="/)[^>]*', saved) == []


def test_what_cannot_run_shows_its_error_and_cure(may_all: Lab) -> None:
    start = started(may_all, workload="lio", dsn="host=127.0.0.1 port=1 connect_timeout=2")
    eventually(lambda: not state(may_all, start)["alive"])
    page = may_all.ask(f"/start/run/{start.id}").text
    assert "ended before it measured" in page
    assert "error: " in page and "port 1" in page


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """``dbdyno web`` that may start commands."""
    words = ("web", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--allow-start")
    process = subprocess.Popen(
        [sys.executable, "-m", "dbdyno", *words, "--allow-commands"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def entered(process: subprocess.Popen[str], store: Path) -> Lab:
    assert process.stdout is not None
    url = next(line.strip() for line in process.stdout if line.startswith("  http"))
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)", url)
    assert found is not None

    class Address:
        port = int(found[1])
        url = f"http://127.0.0.1:{port}"

    lab = Lab(Address, store, [url])  # type: ignore[arg-type]
    return lab.enter()


def test_a_run_outlives_its_server_and_stops_as_by_ctrl_c(
    program: subprocess.Popen[str], start_lab: Started, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    start = started(entered(program, store), **{**BRIEF, "repeats": "200"})
    program.send_signal(signal.SIGINT)
    assert program.wait(60) == 0
    assert program.stdout is not None and program.stdout.read().endswith("The server has ended.\n")
    lab = start_lab(store, CommandForms(store, commands=False)).enter()
    eventually(lambda: any(store.glob("*/cells/*")))
    assert start.is_alive and state(lab, start)["words"] == "It measures."
    (run,) = RunStore(store).list()
    assert post(lab, "stop", run=run.id, press="1").status == 303
    post(lab, "stop", run=run.id, press="1")  # pressed twice
    starts = Starts(RunStore(store))
    assert starts.find(start.id).stops == 1
    button = stop_button(app_of_lab.Lab(starts.store, (), None, starts), run)
    assert button is not None and "Stop at once" in button and f'value="{run.id}"' in button
    eventually(lambda: not start.is_alive)
    (run,) = RunStore(store).list()
    assert run.status == "cut short" and run.reason == "stopped by the user"
    assert conduct.results_of(RunStore(store).open(run.id)).tables["rungs"].height
    assert lab.ask(f"/run/{run.id}").status == 200


def test_a_store_that_cannot_be_used_is_a_line_in_the_page(start_lab: Started, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lab = start_lab(tmp_path / "file", CommandForms(tmp_path / "file", commands=True)).enter()
    for answer in (post(lab, "run", **BRIEF), lab.ask("/start")):
        assert answer.status in (400, 409) and "What to do: " in answer.text
        assert "Traceback" not in answer.text and "inside dbdyno" not in answer.text


def test_only_the_process_that_was_meant_is_stopped() -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen([*sleeping, "-m", "dbdyno"])
    other = subprocess.Popen(sleeping)
    try:
        ticks = start_ticks(process.pid)
        assert ticks is not None
        for pid, of in ((process.pid, ticks + 1), (0, 0), (-1, 0)):
            with pytest.raises(UsageError, match="ended"):
                interrupt(pid, of)
        assert is_alive(process.pid, ticks)
        if os.geteuid():
            with pytest.raises(UsageError, match="another user"):
                interrupt(1, start_ticks(1) or 0)
        with pytest.raises(UsageError, match="no dbdyno"):
            interrupt(other.pid, start_ticks(other.pid) or 0)
        interrupt(process.pid, ticks)
        assert process.wait(60) in (-signal.SIGINT, 1, 130)
        assert other.poll() is None
    finally:
        for one in (process, other):
            one.kill()
            one.wait()


def test_a_form_that_is_too_long_or_not_a_form_is_an_error(may_all: Lab) -> None:
    many = "&".join(f"a{n}=1" for n in range(1_000))
    assert may_all.post("/start/run", many.encode()).status == 400
    assert may_all.post("/start/run", b"\xff\xfe%ff=%00").status == 400
    assert post(may_all, "plan", command="clean").status == 400
    assert may_all.ask("/start?command=clean").status == 400
    assert may_all.ask("/start/run/..%2f..%2fetc").status == 404
    assert may_all.ask("/start/state?start=../x").status == 404
    for run in ("", "last", "2", "../x"):
        assert post(may_all, "stop", run=run, press="1").status == 404
