"""Gates: parses the rules of ``--fail-on`` and asks a comparison, a history or a run whether they are kept.

A rule about a figure fails only if the comparison's verdict, with its interval and its adjustment for several
claims, says so. With a share, the estimate has to reach it, too. It passes if the interval excludes such a
change; in all other cases it cannot tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Literal, cast, get_args

from dbdyno.conclude.catalogue import Entry, described, entries, entry
from dbdyno.conclude.catalogue import number_format as fmt
from dbdyno.conclude.catalogue.criteria import LEAST_RUNS
from dbdyno.conclude.checking import checks
from dbdyno.conclude.compare import paced
from dbdyno.conclude.compare.comparisons import LABELS, variants_of
from dbdyno.conclude.compare.effects import BY_NAME, RANKING
from dbdyno.conclude.compare.samples import CLAIMS as SAMPLE_CLAIMS
from dbdyno.conclude.compare.table import MARGIN, SHORT, further_to_exclude, metric_named
from dbdyno.model.errors import UsageError, near_names, nearest
from dbdyno.model.plan.kinds import COMMANDS, KINDS, kind_of
from dbdyno.model.plan.kinds import Kind as RunKind
from dbdyno.model.results.claim import Claim
from dbdyno.model.results.comparison import Comparison, Contrast, Effect, MetricTable, SampleComparison
from dbdyno.model.results.gate import STATES, Finding, Gate, Kind, Outcome, Rule, State
from dbdyno.model.results.results import Results
from dbdyno.model.results.run_names import run_names
from dbdyno.model.results.suite import SuiteMatrix
from dbdyno.model.results.trend import ALIASES, Trend, short_name
from dbdyno.model.schema.quantiles import RESPONSE, fewest_calls
from dbdyno.model.units import counted

Scope = Literal["comparison", "trend", "claims"]
"""``claims``: there are claims, and nothing is compared."""

_FORMS = {
    "comparison": "worse, better or different, with a figure before and a least change after it if you "
    "like: worse:5%, p99:worse, p99:worse:5%; claim:ID; unknown",
    "trend": "change, change:worse, change:better, change:5%, change:worse:5%; claim:ID; unknown",
    "claims": "claim:ID",
}
_VERDICTS = ("worse", "better", "different")
_KINDS = {"comparison": (*_VERDICTS, "unknown"), "trend": ("change", "unknown"), "claims": ()}
_SHARE = re.compile(r"[0-9]+(?:\.[0-9]+)? *%\Z")
_EPSILON = 1e-9
"""A change of exactly the share counts as one, whatever the rounding of its ratio."""


# -- rules --


def parse(texts: Sequence[str], scope: Scope, margin: float = MARGIN) -> tuple[Rule, ...]:
    """Returns the rules. ``margin`` is the share up to which the comparison counts no difference. Raises
    :class:`UsageError` that names the forms, near misses, and the figures or claims that there are."""
    rules = tuple(_parse(text.strip(), scope, margin) for text in dict.fromkeys(texts))
    if rules and all(r.kind == "unknown" for r in rules):
        raise UsageError(
            "--fail-on unknown: no other rule that may be unknown",
            "name the rule, too: --fail-on worse --fail-on unknown",
        )
    return rules


def _parse(text: str, scope: Scope, margin: float) -> Rule:
    words = [w.strip() for w in text.split(":")]
    if words[0] == "claim":
        id = ":".join(words[1:])
        if not id:
            raise UsageError(f"--fail-on {text}: no claim is named", "claim:ID; dbdyno explain lists all")
        entry(id)
        return Rule(text, "claim", claim=id)
    share = None
    if len(words) > 1 and words[-1][:1].isdigit():
        share = _share(text, words.pop())
    direction: Literal["worse", "better", ""] = ""
    if scope == "trend" and words[0] == "change" and len(words) == 2:
        if words[1] not in ("worse", "better"):
            raise _refused(text, words[1], scope, ("worse", "better"))
        direction = cast('Literal["worse", "better"]', words.pop())
    kind = words[-1]
    if kind not in _KINDS[scope] or (kind in ("unknown", "change") and len(words) > 1) or len(words) > 2:
        raise _refused(text, kind, scope, (*_KINDS[scope], "claim"))
    if kind == "unknown" and share is not None:
        raise _refused(text, text, scope, ())
    assert kind in get_args(Kind)
    figure = figure_of(words[0]) if len(words) == 2 else ""
    rule = Rule(text, cast("Kind", kind), figure, share, direction)
    if share is not None and scope == "comparison":
        _check_share(rule, share, margin)
    return rule


def _refused(text: str, word: str, scope: Scope, known: Sequence[str]) -> UsageError:
    others = {"change": "worse or different", "worse": "change:worse", "better": "change:better"}
    if (other := {**others, "different": "change"}.get(word)) and word not in _KINDS[scope]:
        where = {"comparison": "a comparison", "trend": "a history", "claims": "claims"}[scope]
        figure = text.partition(":")[0] if scope == "trend" and text != word else ""
        of_figure = f"--figure {figure} --fail-on " if figure in (*SHORT, _THROUGHPUT, *BY_NAME) else ""
        cure = _FORMS[scope] if scope == "claims" else f"{of_figure}{other}"
        return UsageError(f"--fail-on {text}: no rule of {where}", f"use {cure}")
    near = _meant(text, word, scope) or near_names(word, known)
    forms = f"the forms: {_FORMS[scope]}"
    return UsageError(f"--fail-on {text}: no such rule", f"{near} {forms}" if near else forms)


_SYNONYMS = {"slower": "worse", "regression": "worse", "faster": "better", "improvement": "better"}


def _meant(text: str, word: str, scope: Scope) -> str:
    """Returns a sentence with the rule that was meant: a word of the same meaning, a figure without its
    verdict, or a claim without ``claim:``; "" if none of them is near."""
    *before, last = text.split(":")
    share = [last] if last[:1].isdigit() else []
    figures = (*SHORT, _THROUGHPUT, *BY_NAME, *ALIASES, *_SYNONYMS)
    near = nearest(word, figures) or ""
    if scope != "claims" and (other := _SYNONYMS.get(near)):
        figure = [w for w in before if scope == "comparison" and w != word]
        kind = ["change", other] if scope == "trend" else [*figure, other]
        return f"did you mean {':'.join([*kind, *share])!r}?"
    if scope == "comparison" and near and word not in _VERDICTS and not nearest(word, _KINDS[scope]):
        return f"did you mean {':'.join([near, 'worse', *share])!r}?"
    return f"did you mean {f'claim:{word}'!r}?" if word in entries() else ""


def _share(text: str, word: str) -> float:
    if not _SHARE.match(word):
        raise UsageError(f"--fail-on {text}: {word!r} is no share", "write it in per cent: 5% or 2.5%")
    share = float(word[:-1]) / 100
    if share <= 0:
        raise UsageError(f"--fail-on {text}: a share of 0", "leave it out: any change that is certain fails")
    return share


def _check_share(rule: Rule, share: float, margin: float) -> None:
    """Raises :class:`UsageError` for a share that counts as no difference, or that no change can reach."""
    if share < margin - _EPSILON:
        raise UsageError(
            f"--fail-on {rule.text}: a difference up to the margin, {100 * margin:g} %, counts as none",
            f"name a larger share, or compare with --margin {100 * share:g}%",
        )
    if rule.figure:
        _check_reachable(rule, rule.figure == _THROUGHPUT or BY_NAME[rule.figure].higher_is_better)


def _check_reachable(rule: Rule, higher_is_better: bool) -> None:
    """Raises :class:`UsageError` for a share by which no figure can fall."""
    if (
        rule.share is not None
        and rule.share >= 1
        and rule.kind == ("worse" if higher_is_better else "better")
    ):
        raise UsageError(
            f"--fail-on {rule.text}: no figure falls by {100 * rule.share:g} % or more",
            "name a smaller share, or a figure that grows: p99:worse:150%",
        )


_THROUGHPUT = "throughput"


def figure_of(name: str) -> str:
    """Returns the metric that a comparison or a trend calls so: ``p99`` is ``response_p99_ns``. Throughput
    stays, because its metric depends on the runs. Raises :class:`UsageError` that lists the names."""
    if ALIASES.get(name, name) == _THROUGHPUT and name not in BY_NAME:
        return _THROUGHPUT
    return metric_named(name, f"no figure {name!r} for --fail-on")


# -- comparisons --


def of_comparison(
    rules: Sequence[Rule],
    comparison: Comparison | SampleComparison | None,
    runs: Sequence[Results] = (),
    sessions: int | None = None,
    more: Sequence[Claim] = (),
) -> Gate:
    """Returns whether the rules are kept. ``runs`` are the compared ones; claims are those of the comparison,
    of the last run, and ``more``. ``sessions``: nothing else was to be compared. Raises :class:`UsageError`
    for rules about a figure that is not compared."""
    if isinstance(comparison, SampleComparison):
        _check_claims(rules, lambda e: e.id in SAMPLE_CLAIMS, "files of numbers")
    elif runs:
        check_claims(rules, kind_of(runs[-1].plan))
    else:
        _check_claims(rules, lambda e: e.file in _OF_SNAPSHOTS, "snapshots")
    claims = [*(comparison.conclusions if comparison is not None else ()), *more]
    claims += claims_of(runs[-1]) if runs else []
    whole = all(r.info.status == "complete" for r in runs[-1:])
    outcomes = []
    for rule in rules:
        if rule.kind == "claim":
            outcomes.append(_of_claim(rule, claims, whole))
        elif rule.kind == "unknown":
            continue
        elif comparison is None:
            raise UsageError(
                f"--fail-on {rule.text}: nothing here is compared by repeats, so there is no verdict",
                _FORMS["claims"],
            )
        elif isinstance(comparison, SampleComparison):
            outcomes.append(_outcome(rule, [_of_samples(rule, comparison)]))
        else:
            findings = [*_of_figure(rule, comparison, runs, sessions)]
            nothing = Finding("cannot tell", _label(comparison), reason="nothing usable to compare")
            outcomes.append(_outcome(rule, findings or [nothing]))
    letters = LABELS if len(runs) > 1 else ("the run",)
    cut_short = [
        f"{letter} {'was' if r.info.status == 'cut short' else 'is'} {r.info.status}"
        for letter, r in zip(letters, runs, strict=False)
        if r.info.status != "complete"
    ]
    outcomes = [_with_cause(o, cut_short) for o in outcomes]
    named = {f.place for o in outcomes for f in o.findings}
    grave = [c for c in runs[-1].findings if c.severity in ("warning", "invalid")] if runs else []
    serious: dict[str, Claim] = {}
    for c in described(grave):
        if c.id not in named:
            serious.setdefault(c.id, c)
    warnings = (*cut_short, *serious)
    sides = tuple(zip(LABELS, run_names(runs), strict=True)) if len(runs) > 1 else ()
    return replace(_gate(rules, outcomes), warnings=warnings, claims=serious, sides=sides)


def _with_cause(outcome: Outcome, cut_short: Sequence[str]) -> Outcome:
    """Adds the runs that were cut short to the reasons of undecided findings."""
    if not cut_short:
        return outcome
    added = ", ".join(cut_short)
    findings = (
        replace(f, reason=f"{f.reason}; {added}") if f.state == "cannot tell" else f for f in outcome.findings
    )
    return replace(outcome, findings=tuple(findings))


def _gate(rules: Sequence[Rule], outcomes: Iterable[Outcome]) -> Gate:
    return Gate(tuple(outcomes), strict=any(r.kind == "unknown" for r in rules))


def _outcome(rule: Rule, findings: Iterable[Finding]) -> Outcome:
    def order(f: Finding) -> tuple[int, float]:
        return STATES.index(f.state), -(abs(f.ratio - 1) if f.ratio is not None else 0.0)

    ordered = tuple(sorted(findings, key=order))
    return Outcome(rule.text, ordered[0].state if ordered else "passed", ordered)


def _of_samples(rule: Rule, comparison: SampleComparison) -> Finding:
    if rule.figure:
        raise UsageError(
            f"--fail-on {rule.text}: files have one figure", f"leave out {rule.text.split(':')[0]}:"
        )
    _check_reachable(rule, comparison.higher_is_better)
    effect = comparison.effect
    state = _state(rule, effect, comparison.verdict, comparison.margin, comparison.higher_is_better)
    reason = _reason(rule, state, effect, comparison.because, comparison.margin)
    better = f"{'higher' if comparison.higher_is_better else 'lower'} is better"
    return Finding(
        state,
        comparison.variant,
        "",
        comparison.baseline,
        *(effect.ratio, effect.low, effect.high),
        comparison.verdict,
        ", ".join(filter(None, (reason, better))),
        _further(rule, state, comparison, comparison.margin, comparison.higher_is_better),
    )


def _of_figure(
    rule: Rule, comparison: Comparison, runs: Sequence[Results], sessions: int | None
) -> Iterator[Finding]:
    """Yields a finding for each variant at each load, also for those that should have been compared."""
    table, first = _table(rule, comparison), comparison.metrics[0]
    _check_reachable(rule, table.higher_is_better)
    several = len({line.workload for line in first.lines}) > 1
    compared = [c for c in table.claims if not c.neighbours]
    for c in compared:
        place = _place(c.workload if several else "", c.variant, c.series, c.sessions)
        yield _finding(rule, c, place, table.metric, comparison.margin, table.higher_is_better)
    known = {(c.workload, c.series, c.sessions, c.variant) for c in compared}
    for c in first.claims if table is not first and not _by_rate(table, first) else ():
        if not c.neighbours and (c.workload, c.series, c.sessions, c.variant) not in known:
            place = _place(c.workload if several else "", c.variant, c.series, c.sessions)
            yield Finding(
                "cannot tell",
                place,
                table.metric,
                c.baseline,
                reason=f"not known there{_too_few(table.metric)}",
            )
    for place in _missing(comparison, first.claims, runs, sessions):
        yield Finding("cannot tell", place, table.metric, reason="nothing usable to compare")


def _finding(
    rule: Rule, c: Contrast, place: str, metric: str, margin: float, higher_is_better: bool
) -> Finding:
    state = _state(rule, c.effect, c.verdict, margin, higher_is_better)
    return Finding(
        state,
        place,
        metric,
        c.baseline,
        *(c.effect.ratio, c.effect.low, c.effect.high),
        c.verdict,
        _reason(rule, state, c.effect, c.because, margin),
        _further(rule, state, c, margin, higher_is_better),
    )


def _by_rate(table: MetricTable, first: MetricTable) -> bool:
    """Returns whether the table's figure was set at rates that were kept, where nobody compares it."""
    return table.metric in paced.THROUGHPUT and first.metric in paced.RANKING


def _place(workload: str, variant: str, series: str, sessions: int) -> str:
    at = f"{variant} at {fmt.load(sessions)}"
    return ", ".join(filter(None, (workload, series, at)))


def _table(rule: Rule, comparison: Comparison) -> MetricTable:
    """Returns the table of the rule's figure; an empty one for a quantile that too few calls support. Raises
    :class:`UsageError` for any other figure that nothing here has."""
    if not rule.figure:
        return comparison.metrics[0]
    wanted = RANKING if rule.figure == _THROUGHPUT else (rule.figure,)
    tables = {t.metric: t for t in comparison.metrics}
    table = next((tables[name] for name in wanted if name in tables), None)
    if table is None and rule.figure in RESPONSE:  # with more calls it would be known
        return MetricTable(
            metric=rule.figure, title="", unit="ns", higher_is_better=False, lines=(), claims=()
        )
    if table is None:
        name = rule.text.partition(":")[0]
        raise UsageError(
            f"--fail-on {rule.text}: {name} is not known of what is compared",
            f"known are {', '.join(map(short_name, tables))}",
        )
    return table


def _too_few(figure: str) -> str:
    """Returns how many calls a quantile needs; "" for other figures."""
    q = RESPONSE.get(figure)
    return "" if q is None else f": a measurement needs {fewest_calls(q):,} calls for it"


def _missing(
    comparison: Comparison, compared: Sequence[Contrast], runs: Sequence[Results], sessions: int | None
) -> Iterator[str]:
    """Yields loads that all sides planned and that could not be compared, in words."""
    if not runs:
        return
    planned = [_planned(r) for r in runs]
    if comparison.kind == "variants":
        wanted = {load for load in planned[0] if load[1] != comparison.baseline}
        have = {(c.workload, c.variant, c.sessions, c.series) for c in compared if not c.neighbours}
        of_series = {(w, v, n, paced.series_of(rate)): (w, v, n, rate) for w, v, n, rate in wanted}
    else:
        names = [set(variants_of(r)) for r in runs]
        common = names[0] & names[1]
        alone = not common and len(names[0]) == len(names[1]) == 1
        sides = [{(w, "" if alone else v, n, rate) for w, v, n, rate in loads} for loads in planned]
        wanted = sides[0] & sides[1]
        have = {(c.workload, "", c.sessions, c.series) for c in compared}

        def series(variant: str, rate: float | None) -> str:
            named = len(common) > 1 or (variant and variant not in common)
            return paced.series_of(rate, *([variant] if named else []))

        of_series = {(w, "", n, series(v, rate)): (w, v, n, rate) for w, v, n, rate in wanted}
    for key in sorted(of_series.keys() - have):
        _, variant, n, _ = of_series[key]
        if sessions in (None, n):
            yield _place("", variant if comparison.kind == "variants" else _label(comparison), key[3], n)


def _label(comparison: Comparison) -> str:
    """Returns the label of the run that is compared with the baseline."""
    return next((c.variant for c in comparison.metrics[0].claims), "B")


_Load = tuple[str, str, int, float | None]


def _planned(results: Results) -> set[_Load]:
    """Returns workload, variant, sessions and rate of all loads that were planned or measured."""
    planned = {(c.workload, c.variant, c.sessions, c.rate_per_s) for c in results.plan.cells}
    windows = results.tables["windows"].select("workload", "variant", "sessions", "rate_per_s")
    return planned | {cast("_Load", tuple(row)) for row in windows.unique().rows()}


_WANTED = {"worse": ("worse",), "better": ("better",), "different": ("worse", "better")}
"""Verdicts by which a rule fails."""


def _limits(rule: Rule, margin: float, higher_is_better: bool) -> list[float]:
    """Returns the ratios that an interval has to exclude, so that the rule passes."""
    share = margin if rule.share is None else rule.share
    return [1 - share if (w == "worse") is higher_is_better else 1 + share for w in _WANTED[rule.kind]]


def _further(
    rule: Rule, state: State, judged: Contrast | SampleComparison, margin: float, higher_is_better: bool
) -> int | None:
    """Returns how many further repeats of each side would decide the rule, if ratio and spread stay the same;
    None if it is decided, or this is not known."""
    effect = judged.effect
    if state != "cannot tell" or effect.ratio is None:
        return None
    limits = _limits(rule, margin, higher_is_better)
    if any(effect.ratio <= v if v < 1 else effect.ratio >= v for v in limits):
        return judged.further_repeats  # it fails as soon as the difference is certain
    return further_to_exclude(effect, limits)


def _state(rule: Rule, effect: Effect, verdict: str, margin: float, higher_is_better: bool) -> State:
    wanted = _WANTED[rule.kind]
    falls = {"worse": higher_is_better, "better": not higher_is_better}
    if verdict in wanted:
        if rule.share is None or effect.ratio is None:
            return "failed"
        size = 1 - effect.ratio if falls[verdict] else effect.ratio - 1
        if size >= rule.share - _EPSILON:
            return "failed"
    elif verdict in ("better", "worse", "equal", "no difference"):
        return "passed"
    if effect.exact and verdict in wanted:
        return "passed"  # there is no interval, and the ratio below the share is all there is
    if effect.low is None or effect.high is None or effect.basis == "within the window only":
        return "cannot tell"
    limits = _limits(rule, margin, higher_is_better)
    excluded = all(effect.low > v if v < 1 else effect.high < v for v in limits)
    return "passed" if excluded else "cannot tell"


def _reason(rule: Rule, state: State, effect: Effect, because: str, margin: float) -> str:
    """Returns why a rule cannot tell: the comparison's reason, or the change that the interval holds."""
    if state != "cannot tell":
        return ""
    if effect.low is None or effect.high is None or effect.basis == "within the window only":
        return because or "no interval"
    if because and not effect.low <= 1 <= effect.high:
        return because
    limit = margin if rule.share is None else rule.share
    return f"{100 * limit:g} % {rule.kind} is not excluded"


# -- claims --

_OF_SNAPSHOTS = ("snapshots", "intervals")
_OF_TRENDS = ("trend",)
_OF_NO_RUN = (*_OF_SNAPSHOTS, *_OF_TRENDS, "selftest")
"""Files of the catalogue whose claims no run has."""


def check_claims(rules: Sequence[Rule], kind: RunKind) -> None:
    """Raises :class:`UsageError` for a claim that runs of this kind never have: its rule would pass whatever
    happens."""
    import_module("dbdyno.conclude.findings")  # all checks are registered there

    asked = {id for c in checks(kind) for id in c.claims}
    others = {id for k in KINDS for c in checks(k) for id in c.claims} - asked
    of_commands = kind.name == COMMANDS
    what = "runs of commands" if of_commands else f"runs of the kind {kind.name}"
    never = (*_OF_NO_RUN, *([] if of_commands else ["commands"]))
    _check_claims(rules, lambda e: e.id not in others and e.file not in never, what)


def _check_claims(rules: Sequence[Rule], possible: Callable[[Entry], bool], what: str) -> None:
    for rule in rules:
        if rule.kind == "claim" and not possible(of := entry(rule.claim)):
            raise UsageError(
                f"--fail-on {rule.text}: {what} never have this claim",
                f"leave it out; its criterion: dbdyno explain {of.id}",
            )


def claims_of(results: Results) -> list[Claim]:
    """Returns all claims of a run: findings, answers, and those of its ladders."""
    ladders = [c for s in results.scaling for c in s.answers]
    return [*results.findings, *results.answers, *results.reply, *ladders]


def _of_claim(rule: Rule, claims: Sequence[Claim], whole: bool) -> Outcome:
    begin = f"{rule.claim}-"
    named = {
        c.id: c for c in claims if c.id == rule.claim or (c.id.startswith(begin) and c.id not in entries())
    }
    findings = [Finding("failed", c.id, reason=c.text) for c in named.values()]
    if not findings and not whole:
        findings = [Finding("cannot tell", rule.claim, reason="not there")]
    return Outcome(rule.text, findings[0].state if findings else "passed", tuple(findings))


def of_run(rules: Sequence[Rule], results: Results, comparison: Comparison | None) -> Gate:
    """Returns whether a run keeps the rules: by its claims and the comparison of its variants. Raises
    :class:`UsageError` if no measurement is usable."""
    if not (results.tables["windows"]["status"] != "invalid").any():
        raise UsageError(
            f"run {results.info.id} has no usable measurement: --fail-on has nothing to judge",
            f"look at it: dbdyno show {results.info.id}",
        )
    return of_comparison(rules, comparison, (results,))


# -- suites --

_CALLS, _CPU = "calls_per_s", "cpu_per_call_ns"
_OF_SUITES = {"": _CALLS, _THROUGHPUT: _CALLS, _CALLS: _CALLS, _CPU: _CPU}
"""Figures of rules about a matrix -> the quantity that its rows compare."""


def check_suite(rules: Sequence[Rule], variants: int) -> None:
    """Raises :class:`UsageError` for a rule about what the matrix of a suite does not compare."""
    _check_claims(rules, lambda e: e.file == "suite", "suites")
    for rule in (r for r in rules if r.kind not in ("claim", "unknown")):
        if rule.figure not in _OF_SUITES:
            raise UsageError(
                f"--fail-on {rule.text}: a suite compares throughput and cpu_per_call",
                f"one of its benchmarks has more: dbdyno compare RUN --fail-on {rule.text}",
            )
        _check_reachable(rule, _OF_SUITES[rule.figure] == _CALLS)
        if variants < 2:
            raise UsageError(
                f"--fail-on {rule.text}: this suite has one variant",
                "name servers, --servers 17,18, or a recipe with variants",
            )


def of_suite(rules: Sequence[Rule], matrix: SuiteMatrix) -> Gate:
    """Returns whether the matrix of a suite keeps the rules, by its verdicts, which hold for all rows
    together. Raises :class:`UsageError`."""
    check_suite(rules, len(matrix.variants))
    outcomes = [
        _of_claim(rule, matrix.conclusions, True)
        if rule.kind == "claim"
        else _outcome(rule, _of_rows(rule, matrix))
        for rule in rules
        if rule.kind != "unknown"
    ]
    named = {f.place for o in outcomes for f in o.findings}
    serious = {c.id: c for c in matrix.conclusions if c.severity == "warning" and c.id not in named}
    return replace(_gate(rules, outcomes), warnings=(*serious,), claims=serious)


def _of_rows(rule: Rule, matrix: SuiteMatrix) -> Iterator[Finding]:
    """Yields a finding for each variant of each benchmark, also for those that were not compared."""
    metric = _OF_SUITES[rule.figure]
    loads = Counter(row.benchmark for row in matrix.rows)
    for row in matrix.rows:
        contrasts = {c.variant: c for c in (row.contrasts if metric == _CALLS else row.cpu)}
        of_load = f" at {fmt.load(row.sessions)}" if loads[row.benchmark] > 1 and row.sessions else ""
        for variant in matrix.variants[1:]:
            place = f"{row.benchmark}{of_load}, {variant}"
            if (c := contrasts.get(variant)) is None:
                yield Finding("cannot tell", place, metric, reason=row.reason or "not compared")
            else:
                yield _finding(rule, c, place, metric, matrix.margin, metric == _CALLS)
    if missing := matrix.planned - len(loads):
        yield Finding("cannot tell", counted(missing, "benchmark"), metric, reason="not measured")


# -- histories --


def of_trend(rules: Sequence[Rule], trend: Trend) -> Gate:
    """Returns whether the history keeps the rules. Raises :class:`UsageError` for a direction where neither
    is better."""
    _check_claims(rules, lambda e: e.file in _OF_TRENDS, "histories")
    outcomes = []
    for rule in rules:
        if rule.kind == "claim":
            outcomes.append(_of_claim(rule, trend.claims, True))
        elif rule.kind == "change":
            outcomes.append(_outcome(rule, _of_steps(rule, trend)))
    return _gate(rules, outcomes)


def _of_steps(rule: Rule, trend: Trend) -> Iterator[Finding]:
    higher = trend.figure.higher
    if rule.direction and higher is None:
        raise UsageError(
            f"--fail-on {rule.text}: {trend.figure.title} is neither better nor worse when it grows",
            "--fail-on change",
        )
    usable = sum(not p.flagged for p in trend.points)
    if usable < LEAST_RUNS:
        reason = f"{counted(usable, trend.thing)}, and a change needs {LEAST_RUNS} at least"
        yield Finding("cannot tell", trend.what, trend.figure.column, reason=reason)
    for step in trend.steps:
        ratio = step.ratio
        better = None if higher is None else (ratio.value > 1) is higher
        fails = (not rule.direction or better is (rule.direction == "better")) and (
            rule.share is None or abs(ratio.value - 1) >= rule.share - _EPSILON
        )
        yield Finding(
            "failed" if fails else "passed",
            trend.points[step.at].run,
            trend.figure.column,
            "the level before",
            *(ratio.value, ratio.low, ratio.high),
            "" if better is None else "better" if better else "worse",
        )
