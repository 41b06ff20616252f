"""The option ``--fail-on``: parses its rules before anything is done, prints the gate, sets the exit code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dbdyno import present
from dbdyno.cli import screen
from dbdyno.cli.config import is_quiet
from dbdyno.cli.flags import Option
from dbdyno.model.errors import UsageError
from dbdyno.model.plan.flags import OUTPUT
from dbdyno.model.plan.kinds import kind_of

if TYPE_CHECKING:
    from dbdyno.conclude.gates import Scope
    from dbdyno.model.plan.plan import Plan
    from dbdyno.model.results.gate import Gate
    from dbdyno.model.results.results import Results
    from dbdyno.model.results.suite import SuiteMatrix
    from dbdyno.present.document.document import Document

_F = TypeVar("_F", bound=Callable[..., Any])

_HELP = {
    "comparison": "Fail (exit code 7) if something is worse, better or different, of a figure or by a share "
    "(p99:worse:5%), or if a claim is made (claim:ID). Repeatable; dbdyno help gates.",
    "trend": "Fail (exit code 7) at a change, change:worse, change:5%, or if a claim is made (claim:ID). "
    "Repeatable; dbdyno help gates.",
    "claims": "Fail (exit code 7) if this claim is made: claim:ID. Repeatable.",
}


def fail_on_option(scope: Scope) -> Callable[[_F], _F]:
    """Adds ``--fail-on``. Claims are checked at once, before a long run starts."""

    def known(
        _context: click.Context, _parameter: click.Parameter, rules: tuple[str, ...]
    ) -> tuple[str, ...]:
        if rules:
            from dbdyno.conclude import gates

            gates.parse(rules, scope, margin=0.0)
        return rules

    return click.option(
        "--fail-on",
        "fail_on",
        cls=Option,
        group=OUTPUT,
        multiple=True,
        metavar="RULE",
        callback=known,
        help=_HELP[scope],
    )


class Judged:
    """A document and its JSON with the gate of what they show, if there are rules."""

    def __init__(self, gate: Gate | None = None, whole: str = "", fault: UsageError | None = None) -> None:
        """``fault``: why rules could not be judged, raised at the end, after the results."""
        self._gate, self._whole, self._fault = gate, whole, fault

    def write(self, shown: Document, output: Path, data: dict[str, Any] | None = None) -> Path:
        """Writes a document with the gate in front; the gate alone, as JUnit XML, if ``output`` ends in
        .xml. Raises :class:`UsageError` for the latter without rules."""
        if output.suffix == ".xml":
            if self._gate is None:
                raise UsageError(f"{output}: JUnit XML holds rules, and none is given", "--fail-on worse")
            return present.write_atomic(
                output, present.gate_junit(self._gate, shown.title, datetime.now(UTC))
            )
        return present.write(shown if self._gate is None else present.gated(shown, self._gate), output, data)

    def data(self, data: dict[str, Any]) -> dict[str, Any]:
        return data if self._gate is None else {**data, "gate": present.gate_record(self._gate, self._whole)}

    @property
    def alone(self) -> bool:
        """Whether the gate is all that is printed: ``--quiet`` leaves out what it judges."""
        return self._gate is not None and is_quiet()

    def end(self, output: Path | None = None, *, as_json: bool = False) -> None:
        """Prints the gate, on standard error beside JSON, and ends with exit code 7 if it failed."""
        if self._fault is not None:
            raise self._fault
        if self._gate is None:
            return
        # JUnit has the rules alone
        whole = self._whole if output is None or output.suffix == ".xml" else str(output.absolute())
        console = screen.err() if as_json else screen.out()
        for line in present.gate_summary(self._gate, whole):
            console.print(line, soft_wrap=True)
        if self._gate.exit_code:
            raise click.exceptions.Exit(self._gate.exit_code)


def check_gate(fail_on: tuple[str, ...], plan: Plan) -> None:
    """Raises :class:`UsageError` if a run of this plan would have nothing that the rules compare, or never
    makes a claim that they name."""
    if not fail_on:
        return
    from dbdyno.conclude import gates

    rules = gates.parse(fail_on, "comparison")
    gates.check_claims(rules, kind_of(plan))
    compares = [r for r in rules if r.kind not in ("claim", "unknown")]
    if not compares or (len(plan.variants) > 1 and not plan.experiment.phases):
        return
    what = "phases are not compared" if plan.experiment.phases else "this run has one variant"
    raise UsageError(
        f"--fail-on {compares[0].text}: {what}",
        f"with a stored run: dbdyno compare RUN last --fail-on {compares[0].text}",
    )


def check_suite_gate(fail_on: tuple[str, ...], variants: int) -> None:
    """Raises :class:`UsageError` for rules that the matrix of a suite cannot be judged by."""
    if fail_on:
        from dbdyno.conclude import gates

        gates.check_suite(gates.parse(fail_on, "comparison"), variants)


def judged_suite(fail_on: tuple[str, ...], matrix: SuiteMatrix) -> Judged:
    """Judges a suite by the verdicts of its matrix."""
    if not fail_on:
        return Judged()
    from dbdyno.conclude import gates

    gate = gates.of_suite(gates.parse(fail_on, "comparison", matrix.margin), matrix)
    return Judged(gate, f"dbdyno report {matrix.id} -o matrix.html")


def judged_run(fail_on: tuple[str, ...], results: Results) -> Judged:
    """Judges a stored run by its claims and the comparison of its variants."""
    if not fail_on:
        return Judged()
    from dbdyno.conclude import compare, gates

    rules = gates.parse(fail_on, "comparison")
    compares = any(r.kind not in ("claim", "unknown") for r in rules)
    id = results.info.id
    try:
        comparison = results.comparison
        costs = compare.costs_among(r.figure for r in rules)
        if compares and (comparison is None or costs):
            comparison = compare.compare_variants(results, compare.Options(costs=costs))
        gate = gates.of_run(rules, results, comparison)
    except UsageError as fault:
        return Judged(fault=fault)
    whole = f"dbdyno compare {id} -o comparison.html" if compares else f"dbdyno show {id} --claims"
    return Judged(gate, whole)
