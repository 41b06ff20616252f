"""Explanations of words, and cures of the command line."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from dbdyno import conduct, engines
from dbdyno.account.chains import ASLEEP
from dbdyno.cli.app import _command_path, app
from dbdyno.conclude.catalogue import entries
from dbdyno.conclude.words import examples, explanation, names, words
from dbdyno.model.errors import UsageError, did_you_mean, near_names, nearest
from dbdyno.model.units import format_average, parse_duration_ns, quantity, shown_duration
from dbdyno.present.scaling import scaling_document


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("CPU WAIT", "CPU WAIT: time in which"), ("wait%", "CPU WAIT:"), ("efficiency", "Efficiency:"),
        ("lio", "LIO: a logical I/O"), ("unac%", "Unaccounted:"), ("unaccounted", "Unaccounted:"),
        ("response_mean_ns", "response_mean_ns: "), ("cpu-wait", "cpu-wait ("), ("errors-40001", "errors"),
    ],
)  # fmt: skip
def test_the_first_line_of_an_explanation_names_the_word(asked: str, first: str) -> None:
    assert explanation(asked).startswith(first)


def test_words_name_existing_claims_and_an_unknown_word_is_refused() -> None:
    for word in words():
        assert all(any(id.startswith(begin) for id in entries()) for begin in word.claims), word.names
    assert "cpu-wait" in explanation("CPU WAIT")
    defined = explanation("cpu-wait").split("\n\n")[1]
    assert defined.startswith("CPU WAIT: ") and explanation("CPU WAIT").count(defined) == 1
    with pytest.raises(UsageError, match="nothing is called 'xyzzy'"):
        explanation("xyzzy")


HEADS = """
CPU WAIT% | cpu wait | CPU % | Sleep% | slp% | SLEEP | unac | UNAC | DB time | db TIME | aas | Eff%
| usr | SYS | SLP | CLNT | LOCK | BLKIO | BLOCK I/O | VCX/s | waits/s | sleeps/s | mean wait | in
queue | due/s | svc p99 | late | dropped | pool% | err | min | max | ± sd | relative | LIO |
lio/call | reads/call | exec time | hit % | HOT % | dead % | seq | idx rows | ins | avac | used % |
PSS | max RSS | held twice | WAL/call | temp/call | r/o | w/o | cpu/o | cs/o | rKB/o | lr/o | walKB/o |
w await | in flight | flushes/s | s/s | stays | with CPU WAIT | ratio | n | verdict | total % | run.user |
runq.throttled | pool.queue | block_io | top wait | sess | calls/s | p95
"""
"""Heads of columns, on the terminal and on pages, and names of accounts."""


@pytest.mark.parametrize("head", [head.strip() for head in HEADS.split("|")])
def test_a_head_of_a_column_has_a_definition_and_an_example(head: str) -> None:
    definition, example, *others = explanation(head).splitlines()
    page = next(line for line in others if not line.startswith("  What to do: "))
    assert re.match(r"[\w /-]+: \w", definition) and len(definition) > 30
    assert example.startswith("  Example: ") and page.startswith("  dbdyno help ")


@pytest.mark.parametrize(
    "word",
    [
        *("knee", "peak", "ceiling", "headroom", "CPU WAIT", "run queue", "LIO", "eff%", "sleep%", "p95"),
        *("top wait", "steal", "throttled", "noise", "verdict", "hit ratio", "HOT %", "dead rows"),
    ],
)
def test_a_word_on_which_one_can_act_says_what_to_do(word: str) -> None:
    advice = explanation(word).splitlines()[2]
    assert advice.startswith("  What to do: ") and len(advice) > 50


def test_an_example_of_a_claim_is_a_sentence_of_its_entry() -> None:
    """A template fits if its constant words are in the example, in order and from the beginning on."""
    for id, example in examples().items():
        sentence = entries()[id].sentence
        cases = [sentence] if isinstance(sentence, str) else sentence.values()
        patterns = (".+?".join(map(re.escape, re.split(r"\{[^}]*\}", case))) for case in cases)
        assert any(re.fullmatch(f"{pattern}.*", example, re.DOTALL) for pattern in patterns), id
        shown = explanation(id).partition("Example:\n")[2].partition("\n\n")[0]
        assert explanation(id).count(example) == 1 and shown.strip() == example.strip()


def test_explain_takes_words_without_quotes() -> None:
    done = CliRunner().invoke(app, ["explain", "CPU", "WAIT"])
    assert done.exit_code == 0 and done.output.startswith("CPU WAIT:")


@pytest.mark.parametrize(
    ("typed", "near", "far"),
    [
        ("thruput", "throughput", "peak"), ("knees", "knee", "steal"),
        ("per-request", "cpu-per-request", "'p'"),
        ("cpu wiat", "CPU WAIT", "foreign-load"), ("effciency", "efficiency", "verdict"),
    ],
)  # fmt: skip
def test_an_unknown_word_names_at_most_three_that_are_near(typed: str, near: str, far: str) -> None:
    cure = near_names(typed, names())
    assert near in cure and far not in cure and 1 <= len(re.findall("'[^']+'", cure)) <= 3


def test_nothing_near_names_nothing() -> None:
    assert near_names("xyzzy", names()) == near_names("", names()) == near_names("x", []) == ""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5m", "5min"),
        ("10secs", "10s"),
        ("1h30m", "90min"),
        ("1m30s", "90s"),
        ("2 hours", "2h"),
        ("5µs", "5us"),
    ],
)
def test_a_duration_in_another_notation_is_refused_with_ours(text: str, meant: str) -> None:
    with pytest.raises(UsageError) as e:
        parse_duration_ns(text)
    assert f"did you mean {meant!r}?" in (e.value.cure or "")
    parse_duration_ns(meant)


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        (["analyze", "x.csv", "-o"], "dbdyno analyze"), (["memory", "--dsn"], "dbdyno memory"),
        (["server", "start", "--port"], "dbdyno server start"), (["--dsn"], "dbdyno"),
    ],
)  # fmt: skip
def test_the_command_of_an_error_is_the_one_that_was_typed(typed: list[str], path: str) -> None:
    assert _command_path(typed) == path


@pytest.mark.parametrize(
    ("value", "text"),
    [(10.56, "10.6"), (0.1234, "0.123"), (0.0123, "0.012"), (5.4e-6, "< 0.001"), (0, "0"), (1234.5, "1,234")],
)
def test_averages_have_one_way_of_rounding(value: float, text: str) -> None:
    assert format_average(value) == text


def test_seconds_and_asked_durations_have_units() -> None:
    assert (quantity(5.4e-6, "s"), quantity(12.34, "calls/s")) == ("5.40 us", "12.3 calls/s")
    assert (shown_duration("2"), shown_duration("10s")) == ("2s", "10s")


@pytest.mark.parametrize(
    ("asked", "excerpt"),
    [
        ("AICc", "penalty for each parameter"), ("residual", "minus that of"), ("benchstat", "rank test"),
        ("hit ratio", "buffer cache"), ("noise", "differs from the next"), ("tps", "per second"),
        ("Top SQL", "share of time"),
        ("Durbin-Watson", "independent"), ("R²", "variance"), ("standard error", "estimate"),
    ],
)  # fmt: skip
def test_terms_of_answers_and_tables_are_explained(asked: str, excerpt: str) -> None:
    assert excerpt in explanation(asked)


@pytest.mark.parametrize(
    ("asked", "excerpt"),
    [
        ("IO/WalSync", "IO/WalSync: a wait event; sessions wait until changes are durable"),
        ("lwlock/buffercontent", "one block of a table or index"),
        ("Lock/transactionid", "the end of the transaction"),
        ("IO/DataFileRead", "for data files"),
    ],
)
def test_any_wait_event_is_explained(asked: str, excerpt: str) -> None:
    assert excerpt in explanation(asked, engines.wait_families("postgres"), engines.wait_advice("postgres"))


@pytest.mark.parametrize("event", ["Lock/transactionid", "LWLock/LockManager", "IO/WalSync", "Lock/tuple"])
def test_a_known_wait_event_has_a_cure_and_a_typo_the_nearest_name(event: str) -> None:
    assert "What to do: " in conduct.explanation(event)
    with pytest.raises(UsageError) as e:
        conduct.explanation(f"{event[:-2]}{event[-1]}{event[-2]}")
    assert e.value.cure == f"did you mean {event!r}?"
    assert "if an extension has it" in conduct.explanation("LWLock/qqqqqqqqqq")


@pytest.mark.parametrize(
    "word",
    ["left", "drop", "late", "p (Holm)", "more repeats", "skewed values", "statement unknown", ASLEEP],
)
def test_a_word_of_a_table_is_explained_without_claims_about_others(word: str) -> None:
    assert not re.search("left-out|left-behind|throughput-drop", explanation(word))
    assert re.match(r"[\w ,-]+: \w", explanation(word))


def test_a_unit_with_a_slash_is_no_wait_event() -> None:
    known = engines.wait_families("postgres"), engines.wait_advice("postgres")
    assert explanation("calls/s", *known).startswith("Throughput")
    with pytest.raises(UsageError):
        explanation("Nothing/OfTheKind", *known)


def test_heads_of_a_ladders_tables_are_explained() -> None:
    for head in (
        "predicted",
        "residual",
        "efficiency",
        "response",
        "p95",
        "CPU WAIT",
        "standard error",
        "by",
    ):
        assert explanation(head)
    for column in scaling_document._MODELS:
        head = column[0].head
        assert head in ("model", "parameters", "X(N)") or explanation(head)


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("lia", "lio"), ("rnu", "run"), ("sesions", "sessions"), ("--mesure", "--measure"),
        ("--bogus", None), ("nosuch", None), ("filter", None), ("xyz", None),
    ],
)  # fmt: skip
def test_only_a_name_that_is_near_is_proposed(typed: str, near: str | None) -> None:
    known = ["lio", "run", "sessions", "--measure", "--log", "--verbose", "--profile", "flame"]
    assert nearest(typed, known) == near


def test_of_many_names_of_which_none_is_near_their_place_is_named() -> None:
    many = [f"column_{n}" for n in range(50)]
    assert did_you_mean("nosuch", many, "dbdyno explain lists all") == "dbdyno explain lists all"
    assert "column_7" not in did_you_mean("nosuch", many)
    assert did_you_mean("nosuch", ["a", "b"]) == "known: a, b"


@pytest.mark.parametrize(
    "event", ["Client/ClientRead", "Client/ClientWrite", "IO/WalSync", "IO/DataFileRead"]
)
def test_a_wait_event_without_advice_of_its_own_has_that_of_its_family(event: str) -> None:
    engine = engines.DEFAULT
    text = explanation(event, engines.wait_families(engine), engines.wait_advice(engine))
    assert "\n  What to do: " in text


@pytest.mark.parametrize("word", ["bloat", "commit", "spinlock", "idle in transaction"])
def test_a_common_word_of_databases_is_explained(word: str) -> None:
    assert explanation(word).casefold().startswith(f"{word}: ")
