"""Whether the promises of ``dbdyno noise`` hold: false differences in at most 5 %, promised ones found in at
least 80 %."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks.noise_simulated import DIFFERENT, WORLDS, promise
from dbdyno.account.noise import ALPHA
from dbdyno.conclude.compare import Options, compare_variants
from dbdyno.conduct import results_of
from dbdyno.model.results.comparison import LEAST_REPEATS, MARGIN, Contrast
from dbdyno.model.results.results import Results
from dbdyno.stats.estimates import wilson_of
from dbdyno.stats.noise_budget import Budget
from dbdyno.store import RunStore

PLANS, EACH = 200, 25
"""Simulated noise measurements of each population, and comparisons of both kinds after each."""
EACH_REAL = 3
"""Comparisons of both kinds after a noise measurement of the embedded server, by default."""
WINDOWS_S = 45
"""Longest comparison, in lengths of a window."""
UNITS = 200_000
"""Iterations of a call without an effect."""
AS_IT_IS, NEIGHBOUR = "as it is", "with a noisy neighbour"
SURROUNDINGS = (AS_IT_IS, NEIGHBOUR)
_BURST_S = (0.5, 5.0)
_MARKS = ("disturbed", "client-limited")
"""Claims that name measurements which dbdyno itself marks."""


def main(count: int, seconds: float, only: str | None = None, each: int = EACH_REAL) -> None:
    """On the embedded server, ``count`` times on a machine as it is and as often with a noisy neighbour, or
    ``only`` in one of the two: measures the noise with windows of ``seconds``, then ``each`` times compares
    equal variants, and variants with the promised effect. Every result is printed as it comes, and the shares
    so far.

    With windows of 1 s a round of three comparisons takes about six minutes. Comparisons after the same noise
    measurement share its plan, so that intervals of the shares, which take them as independent, are a little
    too narrow.
    """
    real(count, max(1.0, seconds), (only,) if only else SURROUNDINGS, each)


def simulated(plans: int = PLANS, each: int = EACH) -> None:
    for name, world in WORLDS.items():
        for restarts in (False, True):
            kept = promise(world, 0.02, plans, each, seed=1, restarts=restarts)
            what = f"{name}{', restarted' if restarts else ''}, {kept.repeats:.0f} repeats"
            _print_shares(f"{what} ({kept.plans} plans)", kept.false, kept.kept, kept.comparisons)


class _Tally(NamedTuple):
    """Comparisons without an effect that found one, and with the promised effect that found it."""

    false: int = 0
    kept: int = 0
    compared: int = 0


class _Planned(NamedTuple):
    """The comparison that the noise measurement promises the smallest difference of."""

    effect: float
    repeats: int
    measure_s: float


def real(count: int, seconds: float, surroundings: Sequence[str], each: int) -> None:
    """The surroundings alternate, so that the time of day is on both."""
    tallies = dict.fromkeys(surroundings, _Tally())
    for _ in range(count):
        for name in surroundings:
            with neighbour() if name == NEIGHBOUR else _nobody(), tempfile.TemporaryDirectory() as directory:
                for result in _round(name, Path(directory), seconds, each):
                    before = tallies[name]
                    tallies[name] = _Tally(*(a + b for a, b in zip(before, result, strict=True)))
                    _print_shares(f"  {name} so far", *tallies[name])


def _round(name: str, place: Path, seconds: float, each: int) -> Iterator[_Tally]:
    """Measures the noise, and yields the outcome of each two comparisons as planned."""
    script = place / "loop.sql"
    script.write_text("select sum(i) from (select generate_series(1, :units) i) s\n")
    noise = _noise(place, script, seconds)
    plan = _planned(noise, WINDOWS_S * seconds)
    if plan is None:
        print(f"{name}: no comparison fits, or too little was measured; noise{_marked(noise)}", flush=True)
        return
    print(
        f"{name}: {plan.effect:.2%} promised of {plan.repeats} repeats of {plan.measure_s:g} s; noise"
        + _marked(noise),
        flush=True,
    )
    units = {"equal variants": UNITS, "promised effect": round(UNITS * (1 + plan.effect))}
    for n in range(each):
        verdicts = {}
        for what in units if n % 2 else reversed(units):
            results = _compared(place, script, plan, units[what])
            claim = _verdict(results, plan.effect)
            verdicts[what] = claim.verdict
            ends = [claim.effect.ratio, claim.effect.low, claim.effect.high]
            ratio, low, high = ("?" if v is None else f"{v:.4f}" for v in ends)
            print(f"  {what}: {claim.verdict}, {ratio} ({low} to {high}){_marked(results)}", flush=True)
        yield _Tally(verdicts["equal variants"] in DIFFERENT, verdicts["promised effect"] == "worse", 1)


def _planned(noise: Results, most_s: float) -> _Planned | None:
    """Returns the comparison of at most ``most_s`` that sees the smallest difference; None if none fits, or
    nothing is known."""
    plans = []
    for row in noise.tables["noise_budget"].to_dicts():
        budget = Budget.of_row(row)
        for length_s in budget.lengths():
            repeats = int(most_s / (2 * (length_s + budget.overhead_s)))
            if repeats >= LEAST_REPEATS:
                effect = budget.least_difference(repeats, length_s, ALPHA)
                plans.append(_Planned(effect, repeats, length_s))
    return min(plans, default=None)


def _noise(place: Path, script: Path, seconds: float) -> Results:
    words = ["noise", "-f", str(script), f"units={UNITS}", "--sessions", "1", "--restarts", "0"]
    words += ["--settle", "500ms", "--measure", f"{seconds:g}s", "--time", f"{16 * (2 * seconds + 4):g}s"]
    _dbdyno(place, *words)
    return results_of(RunStore(place / "runs").open("last"))


def _compared(place: Path, script: Path, plan: _Planned, units: int) -> Results:
    recipe = place / "compare.toml"
    recipe.write_text(
        f'sessions = "1"\nsettle = "500ms"\nmeasure = "{plan.measure_s:g}s"\nrepeats = {plan.repeats}\n'
        f'[[scripts]]\nfile = "{script}"\n'
        f"[variants.a]\nvariables = {{ units = {UNITS} }}\n[variants.b]\nvariables = {{ units = {units} }}\n"
    )
    _dbdyno(place, "run", str(recipe))
    return results_of(RunStore(place / "runs").open("last"))


def _verdict(results: Results, effect: float) -> Contrast:
    """Returns the claim about throughput. The margin is no larger than the effect."""
    return compare_variants(results, Options(margin=min(MARGIN, effect))).metrics[0].claims[0]


def _marked(results: Results) -> str:
    """Returns in words how many measurements dbdyno marks, and why."""
    cells = {name: {c for f in results.findings if f.id == name for c in f.cells} for name in _MARKS}
    counts = Counter({name: len(of_name) for name, of_name in cells.items()})
    counts.update(results.tables["windows"].filter(pl.col("status") != "ok")["status"].to_list())
    all_cells = results.tables["windows"].height
    marks = [f"{n} {name}" for name, n in counts.items() if n]
    return f"; of {all_cells} measurements marked: {', '.join(marks)}" if marks else ""


def _dbdyno(place: Path, *words: str) -> None:
    command = [sys.executable, "-m", "dbdyno", *words, "--store", str(place / "runs")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@contextmanager
def neighbour() -> Iterator[None]:
    """Runs a process that uses a CPU and rests in turns of random length."""
    burner = multiprocessing.get_context("spawn").Process(target=_burn, daemon=True)
    burner.start()
    try:
        yield
    finally:
        burner.terminate()
        burner.join()


def _burn() -> None:
    while True:
        until_s = time.monotonic() + random.uniform(*_BURST_S)
        while time.monotonic() < until_s:
            pass
        time.sleep(random.uniform(*_BURST_S))


def _print_shares(what: str, false: int, kept: int, n: int) -> None:
    """Prints both shares with Wilson's 95 % interval."""
    if not n:
        print(f"{what}: nothing was compared")
        return
    shares = [
        f"{k / n:.1%} ({low:.1%} to {high:.1%})" for k in (false, kept) for low, high in [wilson_of(k, n)]
    ]
    print(
        f"{what}: false differences {shares[0]}, wanted at most 5 %; promised effects found {shares[1]}, "
        f"wanted at least 80 %; {n} comparisons each",
        flush=True,
    )
