"""``python -m benchmarks``: runs all benchmarks, or the named ones."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import (
    aa,
    claims,
    commands,
    costs,
    devices,
    false_modes,
    fuzz,
    hot_path,
    instructions,
    lab_live,
    lab_run,
    lab_runs,
    lab_time,
    long_runs,
    memory,
    merging,
    metrics,
    noise,
    observation,
    observe,
    paced,
    placement,
    quantile_intervals,
    rebuild,
    regression,
    report,
    scaling,
    scaling_laws,
    scripts,
    second_counters,
    snapshot_report,
    snapshots,
    start,
    starts,
    steps,
    suite,
    tables,
    tiers,
    trace,
)

ALL = {
    "instructions": instructions.main,
    "throughput": hot_path.throughput,
    "client-cpu": hot_path.client_cpu,
    "scripts": scripts.main,
    "script-instructions": scripts.instructions,
    "script-expressions": scripts.expressions,
    "paced-instructions": paced.instructions,
    "paced-lag": paced.accuracy,
    "observation": observation.main,
    "observe": observe.main,
    "live-view": observe.live_view,
    "metrics": metrics.main,
    "lab-live": lab_live.main,
    "memory": memory.main,
    "memory-reads": memory.cost,
    "devices": devices.main,
    "second-counters": second_counters.main,
    "merging": merging.main,
    "start": start.main,
    "commands": commands.main,
    "costs": costs.main,
    "command-starts": starts.main,
    "command-hyperfine": starts.hyperfine,
    "regression": regression.main,
    "report": report.main,
    "lab-runs": lab_runs.main,
    "lab-run": lab_run.main,
    "snapshot-report": snapshot_report.main,
    "rebuild": rebuild.main,
    "long-runs": long_runs.main,
    "lab-time": lab_time.main,
    "trace": trace.main,
    "profile-cost": trace.profile,
    "tables": tables.main,
    "order-tables": tables.orders,
    "tiers": tiers.main,
    "naive": tiers.naive,
    "aa": aa.main,
    "noise": noise.main,
    "noise-simulated": lambda *_: noise.simulated(),
    "false-modes": lambda *_: false_modes.main(),
    "quantile-intervals": lambda *_: quantile_intervals.main(),
    "claims": lambda *_: claims.main(),
    "scaling": lambda *_: scaling.main(),
    "laws": lambda *_: scaling_laws.main(),
    "steps": lambda *_: steps.main(),
    "fuzz": lambda *_: fuzz.main(),
    "suite": suite.main,
    "snapshots": lambda *_: snapshots.main(),
    "placement": lambda *_: placement.main(),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}; none: all")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs a comparison (default 7)")
    parser.add_argument("--seconds", type=float, default=4, help="length of one run (default 4)")
    parser.add_argument(
        "--ladders", type=int, help="simulated ladders a model, a row of claims, or random ones"
    )
    parser.add_argument("--file", type=Path, help="counts of claims, to go on with (default claims.jsonl)")
    parser.add_argument("--only", choices=noise.SURROUNDINGS, help="surroundings of noise (default: both)")
    parser.add_argument(
        "--each", type=int, default=noise.EACH_REAL, help="comparisons a noise measurement (default 3)"
    )
    args = parser.parse_args()
    ALL["noise"] = lambda count, seconds: noise.main(count, seconds, args.only, args.each)
    ALL["claims"] = lambda *_: claims.main(args.ladders or claims.LADDERS, args.file)
    ALL["scaling"] = lambda *_: scaling.main(args.ladders or scaling.LADDERS)
    ALL["laws"] = lambda *_: scaling_laws.main(args.ladders or scaling_laws.LADDERS)
    ALL["false-modes"] = lambda *_: false_modes.main(args.ladders or false_modes.TRIES)
    ALL["quantile-intervals"] = lambda *_: quantile_intervals.main(args.ladders or quantile_intervals.TRIES)
    ALL["fuzz"] = lambda *_: fuzz.main(args.ladders or fuzz.LADDERS)
    for name in args.names or ALL:
        if name not in ALL:
            parser.error(f"no benchmark {name!r}: {', '.join(ALL)}")
        print(f"\n== {name}", flush=True)
        ALL[name](args.pairs, args.seconds)


main()
