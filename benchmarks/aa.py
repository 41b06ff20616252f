"""A/A tests: how often comparisons of equal variants find a difference; wanted in at most 5 % of runs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from benchmarks.aa_simulated import DIFFERENT, POPULATIONS, World, outcome, samples, stopped
from dbdyno.conclude.compare import compare_variants
from dbdyno.conclude.compare.effects import BY_NAME, Key, cells_of, effect_between
from dbdyno.conduct import results_of
from dbdyno.model.results.results import Results
from dbdyno.store import RunStore

RUNS = 2000
_WORLDS = {
    "3 variants, 2 rungs, 5 blocks, drift of 5 % a block": World(),
    "the same, 3 blocks": World(repeats=3),
    "the same, 10 blocks": World(repeats=10),
    "the same, seconds that resemble each other more (0.9)": World(neighbours=0.9),
    "2 variants, 8 rungs, 6 blocks": World(variants=2, rungs=8, repeats=6),
    "nearly all spread between repeats": World(between=0.02, within=0.002),
    "two modes, 3 blocks": World(repeats=3, modes=1.5, within=0.002),
    "two modes, 5 blocks": World(repeats=5, modes=1.5, within=0.002),
    "two runs of 6 repeats without drift between them": World(
        variants=2, rungs=1, repeats=6, drift=0, paired=False
    ),
}
_UNTIL = (
    ("the first of these worlds", World(), 0.05),
    ("nearly all spread between repeats", World(between=0.02, within=0.002), 0.02),
    ("the same", World(between=0.02, within=0.002), 0.01),
)
SIZES = ((2, 2), (3, 3), (4, 4), (6, 6), (10, 10), (5, 20))
"""Sample sizes of two files."""
VARIANTS = "abcdef"
_METRICS = ("calls_per_s", "response_mean_ns", "response_p95_ns", "cpu_per_call_ns")


def main(count: int, seconds: float) -> None:
    """Compares simulated variants, then ``count`` blocks of six equal variants on the embedded server,
    with windows of ``seconds``."""
    simulated()
    of_files()
    real(count, seconds)


def simulated() -> None:
    for what, world in _WORLDS.items():
        same = outcome(world, RUNS)
        changed = outcome(World(**(vars(world) | {"effect": 1.05})), RUNS, seed=2)
        print(
            f"{what}: {same.false_runs:.2%} of {RUNS} runs with a false difference (wanted <= 5 %); "
            f"intervals that hold the truth {same.covered:.2%}, with an effect of 5 % {changed.covered:.2%}",
            flush=True,
        )
    for what, world, target in _UNTIL:
        ended, repeats = stopped(world, RUNS, target)
        print(
            f"--until {target:.0%}, {what}: stops after {repeats:.1f} repeats, {ended.false_runs:.2%} false "
            f"differences, {ended.covered:.2%} of intervals hold the truth",
            flush=True,
        )


def of_files() -> None:
    """Compares equal samples from several populations, of several sizes."""
    for what, population in POPULATIONS.items():
        shares = [samples(population, sizes, RUNS) for sizes in SIZES]
        shares_by_size = ", ".join(
            f"{n}+{m} {a:.1%} / {b:.1%}" for (n, m), (a, b) in zip(SIZES, shares, strict=True)
        )
        print(f"files, {what}: false differences by means / by ranks: {shares_by_size}", flush=True)


def real(count: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        recipe = place / "aa.toml"
        recipe.write_text(_recipe(max(4, count), max(1.0, seconds)), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "dbdyno",
            "run",
            "--recipe",
            str(recipe),
            "--store",
            str(place / "runs"),
        ]
        subprocess.run([*command, "--output", str(place / "aa.html")], check=True, stdout=subprocess.DEVNULL)
        _print_differences(results_of(RunStore(place / "runs").open("last")))


def _recipe(repeats: int, seconds: float) -> str:
    head = 'workload = "cpu"\nsessions = "1,2"\nsettle = "500ms"\n'
    head += f'measure = "{seconds:g}s"\nrepeats = {repeats}\n'
    return head + "".join(f"\n[variants.{v}]\n" for v in VARIANTS)


def _print_differences(results: Results) -> None:
    comparison = compare_variants(results)
    claims = [c for t in comparison.metrics for c in t.claims]
    false = [c for c in claims if c.verdict in DIFFERENT]
    print(
        f"real, {results.plan.experiment.repeats} blocks: {len(false)} of {len(claims)} claims differ "
        f"(Holm a table, {len(comparison.metrics)} tables; wanted 0 in 95 % of tables)"
    )
    for c in false:
        e = c.effect
        print(f"  {c.variant} of {c.baseline} at {c.sessions}: {e.ratio:.4f} [{e.low:.4f}, {e.high:.4f}]")
    for metric in _METRICS:
        ps = list(_p_values(results, metric))
        if ps:
            low = sum(p < 0.05 for p in ps)
            print(
                f"  {metric}: p below 0.05 in {low} of {len(ps)} pairs before Holm "
                f"(expected {len(ps) / 20:.1f})"
            )


def _p_values(results: Results, metric: str) -> Iterator[float]:
    """Yields the p-value of every pair of variants at every rung."""
    cells = cells_of(results.tables)
    for workload in cells.workloads():
        for sessions, rate in cells.rungs(workload):
            groups = [g for v in VARIANTS if (g := cells.of.get(Key(workload, v, sessions, rate)))]
            for a, b in combinations(groups, 2):
                p = effect_between(a, b, BY_NAME[metric], paired=True).p
                if p is not None:
                    yield p
