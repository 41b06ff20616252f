"""Shows a gate: a few lines for the log of a build, a section of a document, and an object of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

from dbdyno.model.results.comparison import Effect, in_brackets, ratio_text
from dbdyno.model.results.gate import STATES, Finding, Gate, Kind, Outcome
from dbdyno.model.results.trend import short_name
from dbdyno.model.text.visible import one_line, shortened
from dbdyno.model.units import counted
from dbdyno.present.document.document import Document, Paragraph, Section, texts
from dbdyno.present.figures.jsondoc import plain

_MOST_RULES = 5
"""Rules in the summary: with the verdict, the names of the sides, the count of others, warnings and the
command it has ten lines."""
_MOST_WARNINGS = 4
_LONGEST = 200
"""Most characters of a finding; a claim's sentence may be long."""


def summary(gate: Gate, whole: str) -> list[str]:
    """Returns the verdict, a line for each rule, the worst first, and ``whole``, where all of it is shown."""
    ordered = sorted(gate.outcomes, key=lambda o: STATES.index(o.state))
    kinds = max((len(o.state) for o in ordered[:_MOST_RULES]), default=0)
    rules = max((len(o.rule) for o in ordered[:_MOST_RULES]), default=0)
    lines = [verdict(gate)]
    if gate.sides:
        lines.append("; ".join(f"{letter} is {name}" for letter, name in gate.sides))
    lines += [
        f"{o.state:{kinds}}  {one_line(o.rule):{rules}}  {described(o)}".rstrip()
        for o in ordered[:_MOST_RULES]
    ]
    if more := len(ordered) - _MOST_RULES:
        lines += [f"and {counted(more, 'rule')} more"] if more > 0 else []
    if gate.warnings:
        named = ", ".join(_warning(gate, id) for id in gate.warnings[:_MOST_WARNINGS])
        rest = len(gate.warnings) - _MOST_WARNINGS
        lines.append(f"warnings that no rule names: {named}{f' and {rest} more' if rest > 0 else ''}")
    return [*lines, *([f"all of it: {whole}"] if whole else [])]


def verdict(gate: Gate) -> str:
    """Returns ``gate failed, by 1 of 3 rules; 1 cannot tell``: the gate's only verdict, and the rules that
    decide it if there are several."""
    states = [o.state for o in gate.outcomes]
    failed, unknown = states.count("failed"), states.count("cannot tell")
    if gate.state == "passed":
        return "gate passed"
    by = f", by {failed or unknown} of {len(states)} rules" if len(states) > 1 else ""
    if gate.state == "cannot tell":
        return f"gate cannot tell{by}: the build passes (--fail-on unknown would fail it)"
    if not failed:
        return f"gate failed{by}, because it cannot tell (--fail-on unknown)"
    return f"gate failed{by}{f'; {unknown} cannot tell' if unknown else ''}"


def described(outcome: Outcome) -> str:
    """Returns the worst finding in words, and the number of further ones of its state."""
    same = [f for f in outcome.findings if f.state == outcome.state]
    if not same or (outcome.state == "passed" and not same[0].place):
        return ""
    others = f"; also at {counted(len(same) - 1, 'more place')}" if len(same) > 1 else ""
    if outcome.state == "passed":
        others = f"; {counted(len(same), 'place')} in all" if len(same) > 1 else ""
    return f"{words(same[0], outcome.rule)}{others}"


def _warning(gate: Gate, id: str) -> str:
    """Returns ``foreign-load (other processes 1.68 CPUs at 1 session)``; the id alone if the catalogue has no
    few words of the claim."""
    short = gate.claims[id].short if id in gate.claims else ""
    few = f" ({short})" if short and short != id.replace("-", " ") else ""
    return shortened(one_line(f"{id}{few}"), _LONGEST, 1)


def words(finding: Finding, rule: str = "") -> str:
    """Returns ``B at 8 sessions: calls 0.91 times A (0.89 to 0.94)``; the figure has the name that ``rule``
    has for it, if any."""
    parts = []
    own = rule.partition(":")[0].strip()
    name = short_name(finding.figure) if own in ("", *get_args(Kind)) else own
    if finding.ratio is not None:
        effect = Effect(ratio=finding.ratio, low=finding.low, high=finding.high)
        figure = f"{name} " if finding.figure else ""
        times = f"{figure}{ratio_text(effect, finding.ratio)} times {finding.baseline}"
        parts.append(times + in_brackets(effect))
    elif finding.figure:
        parts.append(name)
    parts += [finding.reason] if finding.reason else []
    if (n := finding.further_repeats) is not None:
        parts.append(f"{n:,} more {'repeat' if n == 1 else 'repeats'} of each side would probably tell")
    return shortened(one_line(f"{finding.place}: {', '.join(parts)}".removesuffix(": ")), _LONGEST, 1)


def record(gate: Gate, whole: str) -> dict[str, Any]:
    """Returns the gate for the JSON document of what was judged."""
    return {
        "verdict": gate.state,
        "exit_code": gate.exit_code,
        "strict": gate.strict,
        "rules": plain(gate.outcomes),
        "warnings": list(gate.warnings),
        "summary": summary(gate, whole),
    }


def gated(shown: Document, gate: Gate) -> Document:
    """Returns the document with the gate in front."""
    rows = list(_rows(gate))
    heads = ("rule", "verdict", "where")
    section = Section("Gate", [texts("", heads, rows)], "gate")
    text = verdict(gate)
    lead = Paragraph(f"{text[0].upper()}{text[1:]}.", "" if gate.state == "passed" else "warning", lead=True)
    return replace(shown, lead=[lead, *shown.lead], blocks=[section, *shown.blocks])


def _rows(gate: Gate) -> Iterator[tuple[str, str, str]]:
    for outcome in gate.outcomes:
        yield outcome.rule, outcome.state, described(outcome)
