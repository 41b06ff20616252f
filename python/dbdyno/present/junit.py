"""JUnit XML, which servers of builds show as tests: the load levels and claims of a run, or the rules of a
gate.

There is no standard. What https://github.com/windyroad/JUnit-Schema requires, all readers accept: suites
with host, time and a package, and elements that may be empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from xml.etree import ElementTree

import polars as pl

from dbdyno.model.results.claim import Claim
from dbdyno.model.results.gate import Gate
from dbdyno.model.results.raw import LEFT_OUT
from dbdyno.model.results.results import Results
from dbdyno.model.text.visible import one_line, visible
from dbdyno.present.ci_formats import load_name
from dbdyno.present.figures.gate import words

_HOST = "localhost"  # what the schema wants where the host is not known


class Case(NamedTuple):
    name: str
    time_s: float = 0.0
    failure: str = ""
    """What is wrong; empty for a case that passes."""
    skipped: str = ""
    """Why it was not decided; empty for a case that was."""
    output: str = ""


class Suite(NamedTuple):
    name: str
    cases: Sequence[Case]


def of_run(results: Results) -> bytes:
    """Returns a suite of the load levels, which fail if they are unusable, and one of the claims, which fail
    if they are of the level ``invalid``, and are skipped if they are warnings."""
    claims = [
        Case(
            name,
            failure=c.text if c.severity == "invalid" else "",
            skipped=c.text if c.severity == "warning" else "",
            output=f"{c.id}: {c.text}",
        )
        for name, c in zip(_names(results.findings), results.findings, strict=True)
    ]
    suites = (Suite("load levels", _levels(results)), Suite("claims", claims))
    return _xml(f"dbdyno {results.info.id}", suites, results.info.started)


def _names(claims: Sequence[Claim]) -> list[str]:
    """Returns the ids, each with the place of its claim if others have the same: two cases of one name would
    be one for many readers."""
    often = Counter(c.id for c in claims)
    names: list[str] = []
    for c in claims:
        places = [c.subject, str(c.slots.get("place", "")), ", ".join(c.cells[:1])]
        place = next(filter(None, places), "")
        name = f"{c.id}, {place}" if often[c.id] > 1 and place else c.id
        again = names.count(name)
        names.append(name)
        if again:
            names[-1] = f"{name} ({again + 1})"
    return names


def _levels(results: Results) -> list[Case]:
    place = ["workload", "variant", "sessions", "rate_per_s"]
    reasons = pl.col("reason").filter(pl.col("status") == "invalid").drop_nulls().unique(maintain_order=True)
    windows = results.tables["windows"].group_by(place).agg(pl.col("wall_s").sum(), reasons)
    of_place = {tuple(row[:4]): row[4:] for row in windows.rows()}
    cases = []
    for row in results.tables["rungs"].to_dicts():
        wall_s, invalid = of_place.get(tuple(row[p] for p in place), (0.0, []))
        failure = ""
        if row["status"] in LEFT_OUT:
            failure = "; ".join(invalid) or (
                "limited by the client" if row["status"] == "client" else "unusable"
            )
        name = load_name(row)
        output = "" if row["calls_per_s"] is None else f"{name}: {row['calls_per_s']:.6g} calls/s"
        cases.append(Case(name, wall_s, failure, output=output))
    return cases


def of_gate(gate: Gate, name: str, when: datetime) -> bytes:
    """Returns a suite for each rule, with a case for each place where it was judged, and one of the warnings
    that no rule names, which are skipped. Where a rule cannot tell, the case is skipped, or fails if the gate
    is strict."""
    suites = []
    for outcome in gate.outcomes:
        cases = []
        for finding in outcome.findings:
            text, unknown = words(finding, outcome.rule), finding.state == "cannot tell"
            failed = finding.state == "failed" or (unknown and gate.strict)
            skipped = text if unknown and not failed else ""
            cases.append(Case(finding.place, failure=text if failed else "", skipped=skipped, output=text))
        suites.append(Suite(outcome.rule, cases or [Case(outcome.rule)]))
    if gate.warnings:
        suites.append(Suite("warnings", [Case(w, skipped=_sentence(gate, w)) for w in gate.warnings]))
    return _xml(name, suites, when)


def _sentence(gate: Gate, warning: str) -> str:
    text = gate.claims[warning].text if warning in gate.claims else warning
    return f"{text.removesuffix('.')}; no rule names it"


def _xml(name: str, suites: Sequence[Suite], when: datetime) -> bytes:
    root = ElementTree.Element("testsuites")
    for number, suite in enumerate(suites):
        root.append(_suite(number, suite, one_line(name), when))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _suite(number: int, suite: Suite, of: str, when: datetime) -> ElementTree.Element:
    cases = suite.cases
    element = ElementTree.Element(
        "testsuite",
        id=str(number),
        name=one_line(suite.name),
        package="dbdyno",
        hostname=_HOST,
        timestamp=when.strftime("%Y-%m-%dT%H:%M:%S"),
        tests=str(len(cases)),
        failures=str(sum(bool(c.failure) for c in cases)),
        errors="0",
        skipped=str(sum(bool(c.skipped) for c in cases)),
        time=f"{sum(c.time_s for c in cases):.3f}",
    )
    properties = ElementTree.SubElement(element, "properties")
    ElementTree.SubElement(properties, "property", name="of", value=of)
    for case in cases:
        group = one_line(suite.name)
        one = ElementTree.SubElement(
            element, "testcase", name=one_line(case.name), classname=group, time=f"{case.time_s:.3f}"
        )
        if case.failure:
            message = one_line(case.failure)
            failure = ElementTree.SubElement(one, "failure", message=message, type="dbdyno")
            failure.text = visible(case.failure)
        elif case.skipped:
            ElementTree.SubElement(one, "skipped", message=one_line(case.skipped))
    output = [visible(c.output) for c in cases if c.output]
    ElementTree.SubElement(element, "system-out").text = "\n".join(output)
    ElementTree.SubElement(element, "system-err")
    return element
