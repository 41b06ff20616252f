"""Whether the promises of ``dbdyno noise`` hold: false differences in at most 5 %, promised ones found in at
least 80 %."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.noise_simulated import DIFFERENT, WORLDS, promise
from dbdyno.conduct import results_of
from dbdyno.model.results.comparison import MARGIN
from dbdyno.model.results.results import Results
from dbdyno.stats.estimates import wilson_of
from dbdyno.store import RunStore

PLANS, EACH = 200, 25
"""Simulated noise measurements of each population, and comparisons of both kinds after each."""
LARGEST = 0.4
"""Effect that is looked for if no smaller one fits into the time."""
MOST_S = 150
"""Duration of a comparison: the smallest difference that needs no more is promised."""
UNITS = 200_000
"""Iterations of a call without an effect."""
_BURST_S = (0.5, 5.0)


def main(count: int, seconds: float) -> None:
    """On the embedded server, ``count`` times on a machine as it is and as often with a noisy neighbour:
    measures the noise with windows of ``seconds``, and compares equal variants and variants with the promised
    effect. A round takes about 15 minutes."""
    real(count, seconds)


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


def real(count: int, seconds: float) -> None:
    """The two surroundings alternate, so that the time of day is on both."""
    tallies = {"as it is": _Tally(), "with a noisy neighbour": _Tally()}
    for _ in range(count):
        for name in tallies:
            with neighbour() if "neighbour" in name else _nobody():
                tallies[name] = _once(name, tallies[name], seconds)
    for name, tally in tallies.items():
        _print_shares(f"real, {name}", tally.false, tally.kept, tally.compared)


def _once(name: str, tally: _Tally, seconds: float) -> _Tally:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        script = place / "loop.sql"
        script.write_text("select count(*) from generate_series(1, :units)\n")
        noise = _noise(place, script, seconds)
        rows = noise.tables["noise_plan"].filter(restarts=False).to_dicts()
        planned = [r for r in rows if r["repeats"] is not None and r["difference"] >= MARGIN]
        fitting = [r for r in planned if r["time_s"] <= MOST_S]
        if not fitting:
            print(f"{name}: no effect of {LARGEST:.0%} or less fits into {MOST_S} s", flush=True)
            return tally
        plan = min(fitting, key=lambda r: r["difference"])
        effect = plan["difference"]
        same, changed = (
            _differs(place, script, plan["repeats"], plan["measure_s"], units)
            for units in (UNITS, round(UNITS * (1 + effect)))
        )
        print(
            f"{name}: {effect:.1%} promised of {plan['repeats']} repeats of {plan['measure_s']:g} s; "
            f"{'found' if changed else 'not found'}; without an effect {'a' if same else 'no'} difference",
            flush=True,
        )
        return _Tally(tally.false + same, tally.kept + changed, tally.compared + 1)


def _noise(place: Path, script: Path, seconds: float) -> Results:
    words = [
        "noise",
        "-f",
        str(script),
        f"units={UNITS}",
        "--sessions",
        "1",
        "--restarts",
        "0",
        "--settle",
        "500ms",
    ]
    words += ["--measure", f"{max(1.0, seconds):g}s", "--time", f"{16 * (2 * max(1.0, seconds) + 4):g}s"]
    _dbdyno(place, *words, "--see", f"{LARGEST:.0%}")
    return results_of(RunStore(place / "runs").open("last"))


def _differs(place: Path, script: Path, repeats: int, measure_s: float, units: int) -> bool:
    recipe = place / "compare.toml"
    recipe.write_text(
        f'sessions = "1"\nsettle = "500ms"\nmeasure = "{measure_s:g}s"\nrepeats = {repeats}\n'
        f'[[scripts]]\nfile = "{script}"\n'
        f"[variants.a]\nvariables = {{ units = {UNITS} }}\n[variants.b]\nvariables = {{ units = {units} }}\n"
    )
    _dbdyno(place, "run", str(recipe))
    comparison = results_of(RunStore(place / "runs").open("last")).comparison
    assert comparison is not None
    return comparison.metrics[0].claims[0].verdict in DIFFERENT


def _dbdyno(place: Path, *words: str) -> None:
    command = [sys.executable, "-m", "dbdyno", *words, "--store", str(place / "runs")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


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
