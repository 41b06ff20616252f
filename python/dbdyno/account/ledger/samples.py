"""Reads the samples of each task: the server's wait event and, at the same time, the task's state R, S or D.

Rows are read once, chunk by chunk. The result has their sums by task and observation, and for each row its
observation, its time and its weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dbdyno.model.schema.tables import Tables
from dbdyno.model.sources.source import HIDDEN
from dbdyno.model.sources.wait_families import STOPPED, STORAGE, WaitFamilies
from dbdyno.stats.raking import Floats, ipf, ratio, sums_of

LABEL = ("wait_class", "wait_event")

ASKED, READ = "activity samples", "wait event word"
SOURCES = {"sql": ASKED, "memory": READ}
WORD_ALONE = "activity samples, the server's word alone"

# Reasons why no task state of a cell can be read; the server's wait event is then the only source.
_LABEL_ONLY = ("not here", "not permitted", "not supported", "off")
KINDS = ("sleep", "runnable", "unlabelled", "unknown")
SEEN = ("via", "state", *LABEL, "kind", "word", "inside")
"""Columns of an observation of a task. ``inside``: the sample lies inside the task's bracket."""
_WORDS = pl.Categorical(pl.Categories("words of samples"))
_GONE = ("Z", "X")
_HALTED = ("T", "t")
_FROZEN = "F"
_ROLES = ("session", "other")


@dataclass(frozen=True)
class Sampled:
    """The samples of all cells."""

    spans: pl.DataFrame
    """Table ``cut_sampler``, its rows numbered ``instant``."""
    totals: pl.DataFrame
    """:func:`added` sums by ``task`` and ``SEEN``, numbered ``seen``. ``sampled_ns``: part of the task's
    bracket that the sampler covered."""
    rows: Sequence[pl.DataFrame]
    """``seen``, ``instant`` and ``weight`` of each sampled row: the time inside its task's bracket that it
    stands for."""

    def each(self, seen: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields the rows, many at a time, with the columns of ``seen``. Rows without an entry in it are
        left out."""
        return (rows.join(seen, on="seen", maintain_order="left") for rows in self.rows)


def sampled(cut: Tables, tasks: pl.DataFrame, chunks: Iterable[pl.DataFrame] | None = None) -> Sampled:
    """Reads the samples of ``tasks``. ``chunks``: the rows of ``cut_samples`` in chunks, if ``cut`` lacks
    them; all rows of a sample are in one chunk.

    Kinds: sleep, runnable, unlabelled (active, no event, task state unavailable), unknown. ``word``: the
    server's wait event is the only source.
    """
    spans = cut["cut_sampler"].drop("workload", "variant", "sessions", "repeat").with_row_index("instant")
    short = {n: pl.Enum(spans[n].unique(maintain_order=True)) for n in ("cell", "via")}
    instants, sampled_tasks = (
        frame.with_columns(_encoded(frame, short)) for frame in (spans, _sampled_tasks(tasks))
    )
    counted, rows, offset = [_NO_SUMS], [], 0
    for chunk in (cut["cut_samples"],) if chunks is None else chunks:
        seen_rows = _seen(chunk.with_columns(_encoded(chunk, short)), instants, sampled_tasks)
        sums = _sums_by_task(seen_rows).with_row_index("nth", offset=offset)
        offset += sums.height
        key = ["task", "code"]
        seen_rows = seen_rows.select(*key, "instant", "weight").join(sums.select("nth", *key), on=key)
        rows.append(seen_rows.select("nth", "instant", "weight"))
        counted.append(sums.select(_NO_SUMS.columns).cast(_NO_SUMS.schema))
    all_sums, key = pl.concat(counted), ["task", *SEEN]
    totals = added(all_sums).with_row_index("seen")
    seen = all_sums.select(key).join(totals, on=key, nulls_equal=True, maintain_order="left")["seen"]
    for n, part in enumerate(rows):  # one by one, to hold no second copy of all
        rows[n] = part.select(seen.gather(part["nth"]).alias("seen"), "instant", "weight")
    return Sampled(spans, _with_whole(totals, spans, sampled_tasks), rows)


def added(totals: pl.DataFrame) -> pl.DataFrame:
    """Merges sums by ``task`` and ``SEEN``; the result does not depend on the division into chunks.

    ``n`` rows, of which ``with_weight`` have a weight above 0; sums of ``weight``, of its squares
    (``weight_2``), of ``skew_ns`` where it is known (``skews`` rows), and of ``held_ns``: from the time
    when the sample was due to the read of this row. In that time the sampler may have held a CPU that
    others waited for.
    """
    first = pl.col("first").min()
    merged = totals.group_by("task", *SEEN).agg(first, pl.col(_SUMS).sum())
    return merged.sort("first", "task", *SEEN)


_SUMS = ("n", "with_weight", "weight", "weight_2", "skew_ns", "skews", "held_ns")
_NO_SUMS = pl.DataFrame(
    schema={
        "task": pl.UInt32,
        **dict.fromkeys(SEEN, pl.String),
        "word": pl.Boolean,
        "inside": pl.Boolean,
        "first": pl.UInt32,
    }
    | dict.fromkeys(_SUMS, pl.Int64)
    | {"weight_2": pl.Float64}
)


def _encoded(frame: pl.DataFrame, short: Mapping[str, pl.Enum]) -> list[pl.Expr]:
    """Encodes repeated strings as enums."""
    return [pl.col(n).cast(enum, strict=False) for n, enum in short.items() if n in frame.columns]


def _sampled_tasks(tasks: pl.DataFrame) -> pl.DataFrame:
    sampled_role = pl.col("role").is_in(_ROLES) | pl.col("role").str.starts_with("helper:")
    names = ("task", "cell", "pid", "tid", "start_ticks", "from_ns", "to_ns", "partial", "known")
    return tasks.filter(sampled_role).select(names)


def _seen(chunk: pl.DataFrame, spans: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Returns ``task``, ``instant``, ``weight``, ``skew_ns``, ``held_ns``, ``SEEN``, and the latter as one
    integer ``code``."""
    state = pl.col("task_state")
    letter = state.cast(pl.String)
    # A process that a signal, a tracer or its control group stopped is not in a wait of its own.
    by = pl.when(letter.is_in(_HALTED)).then(pl.lit("Signal")).when(letter == _FROZEN).then(pl.lit("Frozen"))
    stopped = {"wait_class": pl.when(by.is_not_null()).then(pl.lit(STOPPED)), "wait_event": by}
    rows = chunk.select(
        *("cell", "via", "sample", "pid", "tid", "skew_ns"),
        pl.col("state").cast(_WORDS),
        *(pl.coalesce(word, pl.col(n).cast(pl.String)).alias(n).cast(_WORDS) for n, word in stopped.items()),
        its_start="start_ticks",
        read_ns="at_ns",
        asleep=state.is_not_null() & (state != "R") & ~state.is_in(_GONE),
        awake=(state == "R").fill_null(False),
        wordless=(state.is_null() & pl.col("status").is_in(_LABEL_ONLY)).fill_null(False),
        active=(pl.col("state") == "active").fill_null(False),
    )
    rows = _at_instants(rows, spans).join(tasks, on=["cell", "pid", "tid"], maintain_order="left")
    same = pl.col("its_start").is_null() | pl.col("start_ticks").is_null()
    rows = rows.filter(same | (pl.col("its_start") == pl.col("start_ticks")))
    began = (pl.col("read_ns") - pl.col("skew_ns").fill_null(0)).min().over("instant")
    rows = rows.with_columns(held_ns=(pl.col("late_ns") + pl.col("read_ns") - began).clip(0))
    inside = ~pl.col("partial") | pl.col("at_ns").is_between("from_ns", "to_ns")
    rows = rows.with_columns(
        inside=inside, word=pl.col("wordless") & ~pl.col("known"), weight=_inside("low_ns", "high_ns")
    )
    rows = rows.with_columns(kind=_kind())
    return rows.select("task", "instant", *SEEN, "skew_ns", "held_ns", "weight", code=_code())


def _at_instants(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Joins ``rows`` with their sample's span. As rows of a sample are mostly consecutive, it joins only
    the first of each run."""
    key = ["cell", "via", "sample"]
    begins = pl.any_horizontal(
        pl.col(n).to_physical().ne_missing(pl.col(n).to_physical().shift()) for n in key
    )
    rows = rows.with_columns(begins=begins | (pl.int_range(pl.len()) == 0))
    heads = rows.filter("begins").select(key).join(spans, on=key, how="left", maintain_order="left")
    nth = rows["begins"].cast(pl.UInt32).cum_sum() - 1
    placed = pl.concat([rows.drop("sample", "begins"), heads.drop(key)[nth]], how="horizontal")
    return placed.filter(pl.col("instant").is_not_null())


def _kind() -> pl.Expr:
    """Returns the position in ``KINDS``."""
    labelled = pl.col("wait_class").is_not_null()
    return (
        pl.when(pl.col("asleep") | (pl.col("word") & labelled))
        .then(0)
        .when("awake")
        .then(1)
        .when(pl.col("word") & pl.col("active"))
        .then(2)
        .otherwise(3)
    )


def _code() -> pl.Expr:
    """Packs an observation into 64 bits. The fields are far wider than the number of distinct strings."""
    # 14 + 14 + 27 bits and 4 bits of flags leave 5 of 64 for the sampler.
    words = (("state", 14), ("wait_class", 14), ("wait_event", 27))
    code = pl.col("via").to_physical().cast(pl.UInt64)
    for name, bits in words:
        code = code * (1 << bits) + pl.col(name).to_physical().cast(pl.UInt64).fill_null((1 << bits) - 1)
    flags = (pl.col("kind") * 4 + pl.col("word") * 2 + pl.col("inside")).cast(pl.UInt64)
    return code * 16 + flags


def _sums_by_task(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums the rows of one chunk by task and observation."""
    weight = pl.col("weight")
    kinds = dict(enumerate(KINDS))
    return rows.group_by("task", "code", maintain_order=True).agg(
        pl.col("via", "state", *LABEL, "word", "inside").first(),
        pl.col("kind").first().replace_strict(kinds, return_dtype=pl.String),
        first=pl.col("instant").min(),
        n=pl.len(),
        with_weight=(weight > 0).sum(),
        weight=weight.sum(),
        weight_2=(weight.cast(pl.Float64) ** 2).sum(),
        skew_ns=pl.col("skew_ns").sum(),
        skews=pl.col("skew_ns").count(),
        held_ns=pl.col("held_ns").sum(),
    )


def _with_whole(totals: pl.DataFrame, spans: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    ends = spans.group_by("cell", "via").agg(
        sampled_from=pl.col("low_ns").min(), sampled_to=pl.col("high_ns").max()
    )
    whole = tasks.with_columns(pl.col("cell").cast(pl.String)).join(ends, on="cell")
    whole = whole.select("task", "cell", "via", sampled_ns=_inside("sampled_from", "sampled_to"))
    return totals.join(whole, on=["task", "via"], how="left", maintain_order="left")


def hidden() -> pl.Expr:
    """Returns an expression: our role may not see the session's activity, so that the row has no
    information."""
    return ((pl.col("via") == "sql") & (pl.col("state") == HIDDEN)).fill_null(False)


def chosen(totals: pl.DataFrame) -> pl.DataFrame:
    """Selects one sampler for each task: memory, unless the samples through SQL have more information."""
    informative = (pl.col("kind") != "unknown").cast(pl.Float64)
    w, w2 = ((pl.col(n) * informative).sum() for n in ("weight", "weight_2"))
    by_sampler = totals.group_by("task", "via").agg(n=(w**2 / w2).fill_nan(0.0))
    ranked = by_sampler.sort(["n", "via"], descending=[True, False], maintain_order=True).unique(
        "task", keep="first", maintain_order=True
    )
    return totals.join(ranked.select("task", "via"), on=["task", "via"], how="semi", maintain_order="left")


def _inside(low: str, high: str) -> pl.Expr:
    """Returns the part of a span inside the task's bracket. A task that existed all the time gets the
    whole span."""
    cut_low = pl.when("partial").then(pl.max_horizontal(low, "from_ns")).otherwise(low)
    cut_high = pl.when("partial").then(pl.min_horizontal(high, "to_ns")).otherwise(high)
    return (cut_high - cut_low).clip(0)


def with_states(chosen_rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Divides samples from memory, which have labels but no states (active, idle, ...), among states.

    ``part``: the share of a row, and of its weight, that each state gets. It comes from the samples
    through SQL (``seen``) of this label of this task, else of this label in its cell; else the state is
    NULL. ``answers``: the number of such samples (a task's part of a cell's), NULL if the state itself was
    sampled.
    """
    read = pl.col("via") == "memory"
    memory = chosen_rows.filter(read)
    with_state = chosen_rows.filter(~read).with_columns(answers=pl.lit(None, dtype=pl.Float64), part=1.0)
    if memory.is_empty():
        return with_state
    asked = seen.filter(~read & (pl.col("with_weight") > 0))
    labels = memory.select("task", "cell", *LABEL).unique(maintain_order=True)
    key = ["task", *LABEL]
    parts = _state_shares(labels, asked, key)
    rest = labels.join(parts, on=key, how="anti", nulls_equal=True)
    if rest.height:
        parts = pl.concat([parts, _state_shares(rest, asked, ["cell", *LABEL])])
        unknown = rest.join(parts, on=key, how="anti", nulls_equal=True)
        unknown = unknown.select(*key, state=pl.lit(None, dtype=pl.String), part=1.0, answers=0.0)
        parts = pl.concat([parts, unknown.select(parts.columns)])
    split = memory.drop("state").join(parts, on=key, nulls_equal=True, maintain_order="left")
    return pl.concat([with_state, split.select(with_state.columns)])


def _state_shares(labels: pl.DataFrame, asked: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Returns P(state

    label) of ``labels`` from the samples ``asked``, by ``key``.
    """
    weights = asked.group_by(*key, "state").agg(w=pl.col("weight").sum(), n=pl.col("with_weight").sum())
    whole = weights.group_by(key).agg(all=pl.col("w").sum(), answers=pl.col("n").sum().cast(pl.Float64))
    shares = weights.join(whole, on=key, nulls_equal=True)
    with_shares = labels.join(shares, on=key, nulls_equal=True, maintain_order="left")
    sharing = pl.col("task").n_unique().over(*key)
    return with_shares.select(
        "task", *LABEL, "state", part=pl.col("w") / pl.col("all"), answers=pl.col("answers") / sharing
    )


LABELLED = 0.02
"""Seed of run : run queue under a wait label; it is 1 : 1 without one.

A labelled session is runnable because it was woken and waits for a CPU. CPU time under its label is only the
begin and the end of a system call."""
EVEN = STORAGE
"""Families of waits that may be CPU time: a read that the OS cache serves never sleeps."""


def run_shares(labels: pl.DataFrame, tasks: pl.DataFrame, families: WaitFamilies) -> pl.DataFrame:
    """Returns the share of each label's runnable time that was on a CPU: ``share``, and its range over seeds.

    ``labels``: per task and label ``weight``, the weight of runnable samples. ``tasks``: ``task``,
    ``run_ns``, ``runq_ns``. ``share_low`` and ``share_high`` let the seed of each labelled class be any
    value from 0 (no CPU time under a label) to 1 (as without a label), independently. They lie within
    Fréchet's bounds max(0, r - runq) <= run <= min(r, run).
    """
    table = labels.join(tasks.select("task", "run_ns", "runq_ns"), on="task", maintain_order="left")
    index = table["task"].rank("dense").cast(pl.Int64).to_numpy() - 1
    run, runq = (table[n].cast(pl.Float64).to_numpy() for n in ("run_ns", "runq_ns"))
    weight = table["weight"].cast(pl.Float64).to_numpy()
    size = int(index.max()) + 1 if len(index) else 0
    both = run + runq
    rows = both * ratio(weight, sums_of(index, weight, size)[index])
    columns = np.zeros((size, 2))
    columns[index, 0], columns[index, 1] = run, runq
    free = table["wait_class"].is_null().to_numpy()
    even = free | table.select(even=families.among(*EVEN))["even"].to_numpy()
    # Raking preserves odds, so only the ratio of both columns matters.
    seed = np.stack([np.where(even, 1.0, LABELLED), np.ones(len(rows))], axis=1)
    fitted = ipf(seed, index, rows, columns)
    low, high = _range(rows, run, both, free, sums_of(index, rows * free, size)[index])
    shares = {"share": fitted[:, 0], "share_low": low, "share_high": high}
    return table.select("task", *LABEL).with_columns(
        pl.Series(name, np.clip(ratio(part, rows), 0.0, 1.0)) for name, part in shares.items()
    )


def _range(
    rows: Floats, run: Floats, both: Floats, free: NDArray[np.bool_], frees: Floats
) -> tuple[Floats, Floats]:
    """Returns least and most CPU time of each row over all seeds in [0, 1] of the labelled rows.

    With odds 0 or 1 a fit of two columns has a closed form: rows of odds 1 share the CPU time evenly, and
    rows of odds 0 get the rest. A row has most CPU time if the other labelled rows have odds 0.
    """
    least = np.where(free, rows * ratio(run, both), np.maximum(0.0, run - (both - rows)))
    beside = np.where(free, frees, frees + rows)
    most = rows * np.minimum(1.0, ratio(run, beside))
    return least, most
