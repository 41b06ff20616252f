"""The answer to the question of a recipe is read first in every medium. Warnings about the measurement are
one line; claims that say the same of several things are together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit import report_results
from tests.unit.compare_runs import noisy
from tests.unit.shown import as_html, as_text

from dbdyno.conclude.catalogue import claim, described, entries
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.reply import reply
from dbdyno.model.results.claim import Claim, Estimate
from dbdyno.model.results.results import Results
from dbdyno.present import report
from dbdyno.present.document.document import Paragraph, Statements, Table, walk
from dbdyno.present.figures import figures, headline, jsondoc, shown_claims
from dbdyno.present.media import markdown
from dbdyno.present.run import rungs

REQUEST = claim(
    "cpu-per-request",
    {"cost": 38e-6, "low": 30e-6, "high": 45e-6, "kernel": 0.8, "rest": 0.02, "fewest": 10, "most": 900},
    case="known",
)


def _asked(*answer: str, claims: tuple[Claim, ...] = ()) -> Results:
    """A run of a recipe that names these claims, with these claims among its findings."""
    results = report_results.results()
    experiment = results.plan.experiment.model_copy(update={"answer": answer})
    plan = results.plan.model_copy(update={"experiment": experiment})
    results = replace(results, plan=plan, findings=(*results.findings, *claims))
    return replace(results, reply=reply(results))


def _media(results: Results) -> list[str]:
    """The text of every medium from its title on."""
    page = report.document(results)
    screen = as_text(report.brief(results), 160)
    return [screen, markdown.page(page), " ".join(as_html(page.lead).split())]


@pytest.mark.parametrize("claims", [(REQUEST,), ()])
def test_the_answer_is_read_before_the_peak(claims: tuple[Claim, ...]) -> None:
    results = _asked("cpu-per-request", claims=claims)
    (answer,) = results.reply
    assert (answer.id == "cpu-per-request") == bool(claims)
    for text in _media(results):
        plain = " ".join(text.split())
        assert 0 <= plain.find(answer.text[:40]) < plain.find("Peak throughput")
    data = jsondoc.document(results)
    assert [a["claim"] for a in data["answer"]] == [answer.text]
    assert [*data].index("answer") < [*data].index("summary")


def test_without_an_answer_the_reason_and_what_to_measure_are_said() -> None:
    (undecided,) = _asked("cpu-per-request").reply
    reason, _, action = undecided.text.partition("; ")
    assert reason.startswith("Not decided: ") and action.startswith("measure ")
    generic = next(e for e in entries().values() if not e.missing)
    (undecided,) = _asked(generic.id).reply
    assert undecided.text.startswith("Not decided: ") and generic.question in undecided.text
    cells = report_results.results().tables["windows"]["cell"].to_list()
    for share, is_reason in ((0.5, True), (0.2, False)):
        hit = cells[: int(share * len(cells))]
        failed = claim("no-calls", {"place": "at 1 session"}, case="closed", cells=hit)
        (undecided,) = _asked("cpu-per-request", claims=(failed,)).reply
        assert (failed.text.rstrip(".") in undecided.text) == is_reason
        assert (failed.advice in undecided.text) == is_reason


def test_a_run_without_named_claims_begins_as_before() -> None:
    results = report_results.results()
    assert reply(results) == ()
    assert jsondoc.document(results)["answer"] == []
    assert headline.answer_sentences(results) == headline.sentences(results)


def test_an_answer_is_said_once() -> None:
    results = _asked("scales-to")
    texts = [p.text for p in report.lead(results)]
    assert texts[0] == results.reply[0].text
    assert sum(results.reply[0].text in t for t in texts) == 1
    assert results.reply[0].text not in "".join(
        i.text for b in report.findings(results) if isinstance(b, Statements) for i in b.items
    )


def test_an_open_answer_is_said_once_with_its_advice() -> None:
    values = {"load": "1 session", "pages": "p", "cache": "c", "ratio": 0.9, "interval": ""}
    placed = claim("cache-placement", values, case="undecided")
    results = noisy(report_results.World(rungs=(1,), repeats=6, variants=("base", "second")))
    comparison = compare_variants(results).model_copy(update={"conclusions": (placed,)})
    experiment = results.plan.experiment.model_copy(update={"answer": ("cache-placement",)})
    plan = results.plan.model_copy(update={"experiment": experiment})
    results = replace(results, comparison=comparison, plan=plan)
    results = replace(results, reply=reply(results))
    (said,) = [p.text for p in report.lead(results)]
    assert said.startswith(placed.text) and placed.advice in said


def test_claims_of_one_kind_answer_together() -> None:
    errors = [
        claim("errors", {"count": 1, "calls": 9, "code": c, "message": "x"}, each=c) for c in ("1", "2")
    ]
    assert [c.id for c in _asked("errors", claims=tuple(errors)).reply] == ["errors-1", "errors-2"]
    assert [c.id for c in _asked("errors-2", claims=tuple(errors)).reply] == ["errors-2"]
    throttled = claim("cpu-wait-throttled", {"raise_the_quota": ""}, case="")  # begins like another id
    assert [c.id for c in _asked("cpu-wait", claims=(throttled,)).reply if c == throttled] == []


def test_several_variants_begin_with_their_verdicts_on_the_page_too() -> None:
    results = noisy(report_results.World(rungs=(1, 4), repeats=6, variants=("base", "second", "third")))
    results = replace(results, comparison=compare_variants(results))
    (verdicts,) = results.comparison.summary if results.comparison else ()
    for document in (report.document(results), report.brief(results)):
        assert [p.text for p in document.lead] == [verdicts]
    assert "Peak throughput" in as_text(report.details(results, "claims"), 160)


def test_a_mark_of_efficiency_is_explained_only_beside_efficiencies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "disturbed_loads", lambda *_: {1})
    results = noisy(report_results.World(rungs=(1, 4), repeats=6, variants=("base", "second")))
    results = replace(results, comparison=compare_variants(results))
    for together in (True, False):
        blocks = rungs.tables(results, together)
        heads = {c.head for b in blocks if isinstance(b, Table) for c in b.columns}
        explained = any("after an efficiency" in b.text for b in blocks if isinstance(b, Paragraph))
        assert explained == ("eff%" in heads) == (not together)


def _warned(results: Results, *claims: Claim) -> Results:
    return replace(results, findings=(*claims, *(f for f in results.findings if f.severity == "good")))


STEAL = claim("steal", {"share": 0.015, "place": "at 2 sessions", "measurements": "1", "limit": 0.01}, 0.015)
OTHERS = claim(
    "foreign-load", {"used": 0.15, "place": "at 1 session", "measurements": "1", "who": ""}, 0.15, case="run"
)
LOCK = claim(
    "lock-bound", {"event": "LWLock/WALWrite", "share": 0.4, "place": "", "source": "scheduler trace"}
)


def test_warnings_about_the_measurement_are_one_line() -> None:
    results = _warned(report_results.results(), STEAL, OTHERS, LOCK)
    screen = report.brief(results)
    (statements,) = (b for b in walk(screen.blocks) if isinstance(b, Statements))
    assert [i.id for i in statements.items] == ["lock-bound"]
    line = screen.more[-1].text
    assert "2 warnings (steal 1.5 % at 2 sessions, other processes 0.15" in line and "--claims" in line
    (title,) = (s.title for s in report.document(results).blocks if getattr(s, "id", "") == "quality")
    assert "2 warnings (steal 1.5 %" in title


def test_what_spoils_the_answer_stands_above_it_and_not_in_the_line() -> None:
    heavy = OTHERS.model_copy(update={"value": OTHERS.value and replace(OTHERS.value, value=1.8)})
    results = _warned(_asked("peak"), heavy, STEAL)
    lead = report.lead(results)
    assert lead[0].text.startswith(heavy.text) and lead[0].tone == "warning"
    assert "1 warning (steal" in report.more(results, "last")[-1].text


def test_grave_claims_come_first_and_throughput_before_time() -> None:
    def made(id: str, severity: str, about: str) -> Claim:
        return Claim.model_validate({"id": id, "text": id, "severity": severity, "about": about})

    claims = [
        made("d", "note", "time"),
        made("c", "note", "throughput"),
        made("b", "warning", "time"),
        made("a", "invalid", "quality"),
        made("x", "note", "source"),
        made("y", "warning", "quality"),
        made("z", "good", "throughput"),
    ]
    results = replace(report_results.results(), findings=tuple(claims))
    assert [g[0].id for g in shown_claims.first(results)] == ["a", "b", "c"]
    more = report.more(results, "last")[-1].text
    assert more == "Measurement quality: 1 warning (y); 3 more claims: dbdyno show last --claims"
    one = replace(results, findings=(made("x", "note", "source"),))
    assert report.more(one, "last")[-1].text == "1 more claim: dbdyno show last --claims"


def test_claims_of_much_time_come_by_their_share_before_those_of_none() -> None:
    def note(id: str, about: str, value: float, unit: str) -> Claim:
        figure = {"name": id, "value": value, "unit": unit}
        return Claim.model_validate({"id": id, "text": id, "about": about, "value": figure})

    claims = [
        note("uneven", "time", 1.25, "fastest over slowest"),
        note("drop", "throughput", 0.3, "of the peak"),
        note("little", "time", 0.01, "of session time"),
        note("modes", "time", 0.06, "of the time"),
        note("waits", "time", 0.4, "of DB time"),
    ]
    results = replace(report_results.results(), findings=tuple(claims))
    assert [g[0].id for g in shown_claims.first(results)] == ["waits", "modes", "drop"]


def _waits(variant: str, share: str, used: float) -> Claim:
    values = {"share": share, "load": "1 session", "used": used, "cpus": 2, "source": "scheduler trace"}
    return claim("cpu-wait", values, case="lowest", parts=["spare"], subject=f"lio, variant {variant}")


def test_claims_that_say_the_same_are_a_table_of_what_differs() -> None:
    claims = (_waits("a", "10 %", 0.4), LOCK, _waits("b", "20 %", 0.5), _waits("c", "30 %", 0.6))
    results = _warned(report_results.results(), *claims)
    (table,) = (b for b in report.findings(results) if isinstance(b, Table))
    assert [c.head for c in table.columns] == ["variant", "share", "used"]
    assert [[c.text for c in r.cells] for r in table.rows] == [["b", "20 %", "0.500"], ["c", "30 %", "0.600"]]
    assert table.title == f"{claims[0].text} Likewise:"
    (statements,) = (b for b in walk(report.brief(results).blocks) if isinstance(b, Statements))
    assert sum("CPU WAIT" in i.text for i in statements.items) == 1
    assert any("2 more like this" in i.text for i in statements.items)


def test_a_table_of_warnings_is_marked_as_such() -> None:
    waits = [_waits(v, share, 0.4) for v, share in (("a", "10 %"), ("b", "20 %"))]
    for severity, marked in (("warning", True), ("note", False)):
        group = tuple(c.model_copy(update={"severity": severity}) for c in waits)
        table = shown_claims.together(group)
        assert isinstance(table, Table) and table.title.startswith("Warning: ") == marked
        assert {r.tone for r in table.rows} == {"warning" if marked else ""}


def test_a_table_of_claims_without_common_words_has_no_title() -> None:
    made = [{"title": t, "value": t * 2, "why": t * 3, "cure": ""} for t in ("swap", "huge pages")]
    claims = tuple(claim("condition", values, each=values["title"]) for values in made)
    (group,) = shown_claims.by_severity(replace(report_results.results(), findings=claims))
    table = shown_claims.together(group)
    assert isinstance(table, Table) and table.title == "" and len(table.rows) == 2
    assert [c.head for c in table.columns] == ["title", "value", "why"]


def test_a_test_that_is_not_what_it_promises_is_said_in_full() -> None:
    spoiling = ("not-cached", "hardly-physical", "os-cached", "read-from-storage", "work-not-constant")
    made = {id: Claim(id=id, text=id, severity="warning", about=entries()[id].about) for id in spoiling}
    for id, one in made.items():
        results = replace(report_results.results(), findings=(one, STEAL))
        assert [g[0].id for g in shown_claims.first(results)] == [id]


def test_claims_that_differ_in_one_value_are_one_sentence() -> None:
    values = {"work": "LIO", "low": 32768.0, "sessions": 3}
    claims = [claim("work-constant", values | {"of_variant": f" of {v}"}) for v in ("a", "b", "c")]
    (group,) = shown_claims.by_severity(replace(report_results.results(), findings=tuple(claims)))
    joined = shown_claims.together(group)
    assert isinstance(joined, Claim) and joined.text == claims[0].text.replace(" of a", " of a, b, c")


def test_the_pieces_of_a_sentence_are_the_sentence() -> None:
    assert "".join(words for _, words in REQUEST.pieces) == REQUEST.text
    assert {name for name, _ in REQUEST.pieces if name} == set(REQUEST.slots)


def test_claims_of_older_runs_are_ranked_too() -> None:
    older = [c.model_copy(update={"about": "", "short": "", "pieces": ()}) for c in (STEAL, LOCK)]
    unknown = Claim(id="long-gone", text="Something.")
    steal, lock, gone = described([*older, unknown])
    assert (steal.about, lock.about) == (STEAL.about, LOCK.about) == ("quality", "time")
    assert steal.short == STEAL.short and gone == unknown
    results = replace(report_results.results(), findings=(steal, lock))
    assert [g[0].id for g in shown_claims.first(results)] == ["lock-bound"]


def test_a_warning_of_seconds_per_second_comes_by_its_share_of_the_sessions() -> None:
    """1.69 s/s of the most sessions of the run, 8, are 21 %, more than the 19 % of a lock; 5 % are less."""
    results = report_results.results()
    cells = tuple(results.tables["windows"]["cell"])
    for value, first in ((1.69, "throttled"), (0.4, "one-latch")):
        claims = tuple(
            Claim(id=id, about="time", severity="warning", text=id, value=Estimate(id, v, unit), cells=of)
            for id, v, unit, of in (
                ("one-latch", 0.19, "of DB time", ()),
                ("throttled", value, "s/s", cells),
            )
        )
        assert shown_claims.first(replace(results, findings=claims))[0][0].id == first
