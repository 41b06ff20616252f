"""The plan of an observation. It has no cells, because each window becomes a cell only when it begins."""

from __future__ import annotations

from dbdyno.model.errors import UsageError
from dbdyno.model.plan.plan import LEAST_WINDOW_NS, Cell, Choice, Experiment, Observation, Plan, Workload
from dbdyno.model.schema.data_sources import options
from dbdyno.model.units import NS_PER_S, format_ns, parse_duration_ns
from dbdyno.plan.triggers import trigger_choices

OBSERVED = Workload(
    name="observed",
    title="an existing workload",
    doc="whatever the chosen sessions do; dbdyno drives nothing",
    work_unit="calls",
    work_short="calls",
    work_constant=False,
    calibrated=False,
)


def resolve_observation(experiment: Experiment, cpus: float, cpus_reason: str) -> Plan:
    """Returns the plan of ``experiment.observation``. Raises :class:`UsageError` for invalid times or
    pids."""
    chosen = experiment.observation or Observation()
    window_ns, duration_ns = window_of(chosen), duration_of(chosen)
    sampled_for(experiment)
    if wrong := [pid for pid in chosen.pids if pid <= 0]:
        raise UsageError(
            f"--only-pid {wrong[0]}: not a process id", "the server's view of sessions lists them"
        )
    whole = "until Ctrl-C" if duration_ns is None else f"for {format_ns(duration_ns)}"
    window = (format_ns(window_ns), f"one after the other {whole}; each is saved")
    if duration_ns is not None and duration_ns <= window_ns:
        window = (format_ns(duration_ns), "the only one: the observation is not longer")
    choices: tuple[Choice, ...] = (
        Choice(name="CPUs", value=f"{cpus:g}", reason=cpus_reason),
        Choice(name="window", value=window[0], reason=window[1]),
    )
    choices += tuple(trigger_choices(experiment))
    plan = Plan(
        experiment=experiment,
        cpus=cpus,
        call_target_ns=None,
        cells=(),
        choices=choices,
        expected_ns=duration_ns or 0,
    )
    return plan.sealed()


def sampled_for(experiment: Experiment) -> dict[str, int]:
    """Returns the sampling time in ns of each source that is sampled for a part of the time only. Raises
    :class:`UsageError` if the experiment is no observation."""
    times = {o: getattr(experiment, o.key) for o in options()}
    times_ns = {o.key: parse_window_ns(o.flag, time) for o, time in times.items() if isinstance(time, str)}
    for o, time in times.items():
        if o.key in times_ns and experiment.observation is None:
            raise UsageError(
                f"{o.flag}={time}: a time is for an observation (dbdyno observe)",
                f"{o.flag} samples every measurement; {o.flag}=99 sets the samples a second",
            )
    return times_ns


def window_of(chosen: Observation) -> int:
    """Returns the length of a window in ns. Raises :class:`UsageError`."""
    return parse_window_ns("--window", chosen.window)


def duration_of(chosen: Observation) -> int | None:
    """Returns the length of the observation in ns; ``None`` if it lasts until it is stopped. Raises
    :class:`UsageError`."""
    return None if chosen.duration is None else parse_window_ns("--for", chosen.duration)


def observed_cell(number: int, window_ns: int) -> Cell:
    """Returns window ``number`` (from 1) as a cell. Its number of sessions is unknown beforehand and hence
    0."""
    return Cell(
        id=f"{number:04}-{OBSERVED.name}-base-s0-r{number}",
        workload=OBSERVED.name,
        variant="base",
        sessions=0,
        repeat=number,
        params={},
        settle_ns=0,
        measure_ns=window_ns,
    )


def parse_window_ns(option: str, text: str) -> int:
    """Returns the length of a window. Raises UsageError if it is too short."""
    value_ns = parse_duration_ns(text, option)
    if value_ns < LEAST_WINDOW_NS:
        raise UsageError(
            f"{option} {text}: a window must last at least {LEAST_WINDOW_NS // NS_PER_S}s",
            "the scheduler's figures of other tasks move only at ticks and switches: shorter means nothing",
        )
    return value_ns
