"""Prepares the ledger for showing: its leaves (nothing counted twice), and these as a stack by place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from dbdyno.model.results.results import Results
from dbdyno.model.schema.tables import sum_if_all_known
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.sources.wait_families import AT_CLIENT, WaitFamilies, families_of
from dbdyno.model.text.nouns import noun
from dbdyno.model.units import format_average
from dbdyno.present.figures.figures import Series, by_load, load_of, of_series

BRACKET = "runq.throttled_bracket"  # part of runq: shown beside it, never added
THROTTLED = "runq.throttled"
POOLER = "pooler"  # the data source of the queue for a pool's connections
INSIDE = (BRACKET, THROTTLED, "block_io")  # parts of other accounts
NO_LABEL = "no wait event"
UNSEEN = "reason unknown"
NAMES = {
    "run": "CPU",
    "run.user": "CPU, user",
    "run.system": "CPU, kernel",
    "runq": "CPU WAIT",
    "client": "client",
    "pool.queue": "pool queue",
    "unaccounted": "unaccounted",
}


class Segment(NamedTuple):
    """One segment of a stack."""

    key: str  # "run.user", "sleep:" or "runq:" and a wait class
    label: str
    family: str  # decides the colour: an account, or the family of a wait for its sleep and run queue
    waiting: bool  # whether it is time in the run queue under a wait label, which is hatched


def leaves(ledger: pl.DataFrame, scope: str) -> pl.DataFrame:
    """Returns the rows of ``scope`` that add up to the whole, without double counting.

    An account is represented by its parts if it and all of them are known, else by its total. An unknown
    ``sleep`` without detail is left out if its events are there.
    """
    rows = ledger.filter((pl.col("scope") == scope) & ~pl.col("account").is_in(INSIDE))
    group = ["cell", "session", "who"]
    whole = [*group, pl.coalesce("parent", "account")]
    part, known = pl.col("parent").is_not_null(), pl.col("aas").is_not_null()
    divided = part.any().over(whole) & known.all().over(whole)
    total = (~part).any().over(whole)
    event = (pl.col("account") == "sleep") & pl.col("detail").is_not_null()
    unseen = (pl.col("account") == "sleep") & pl.col("detail").is_null() & ~known
    drop = pl.when(divided).then(~part).otherwise(part & total) | (unseen & event.any().over(group))
    return rows.filter(~drop)


def throttled(results: Results, series: Series) -> dict[float, str]:
    """Returns throttled time by rung in seconds per second, measured or as a bracket, where known and not
    0."""
    column = load_of(results).column
    rows = of_series(by_load(results, results.tables["ledger"]), series).filter(
        (pl.col("scope") == "rung") & pl.col("account").is_in([BRACKET, THROTTLED])
    )
    measured = pl.col("account") == THROTTLED
    rows = rows.filter(measured | ~measured.any().over("cell"))
    ends = rows.group_by(column).agg(
        pl.coalesce("low", pl.lit(0.0)).mean().alias("low"), pl.coalesce("high", "aas").mean().alias("high")
    )
    return {
        n: format_average(low) if low == high else f"{format_average(low)} to {format_average(high)}"
        for n, low, high in ends.filter(pl.col("high") > 0).select(column, "low", "high").rows()
    }


def wait_class(detail: str | None) -> str:
    """Returns ``A`` of ``A/b``; a sleep without detail was in no sample."""
    return UNSEEN if detail is None else detail.split("/", 1)[0].split(":", 1)[0]


def wait_classes(detail: str = "detail") -> pl.Expr:
    """Returns :func:`wait_class` as an expression over a column."""
    return pl.col(detail).str.extract(r"^([^/:]+)").fill_null(UNSEEN)


# The stack of session time, place by place: CPU, CPU WAIT and the sleep of every wait class. In its divided
# form, CPU WAIT lies beside the sleep of the class that a session waited for before.
#
# A place is a rung (mean of its repeats) or a stretch of an observation (mean of its windows).

_FIRST = ("run", "run.user", "run.system", "runq", f"runq:{NO_LABEL}")
_LAST = ("client", "unaccounted")
_FIGURES = ("aas", "low", "high")
_SEGMENT: dict[str, Any] = {
    "key": pl.String,
    "label": pl.String,
    "family": pl.String,
    "waiting": pl.Boolean,
    "order": pl.Int64,
}


def at_rungs(results: Results, series: Series) -> pl.DataFrame:
    """Returns the cells of a ladder with their rung as the place."""
    cells = of_series(results.tables["windows"], series)
    return cells.select("cell", place=pl.col(load_of(results).column), weight=pl.lit(1.0))


def stack(
    results: Results, places: pl.DataFrame, *, divided: bool = False, known_means: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Returns one row per place and segment; a negative remainder hangs below zero.

    Columns: place, key, label, family, waiting, order, aas, low, high, runq, events, source, y0, y1.
    ``places`` has cell, place and weight. ``divided``: CPU WAIT by wait class, not as one segment.
    Unknown time has no row; :func:`missing_parts` names it. ``known_means``: :func:`means`.
    """
    known = pl.col("aas").is_not_null() & (pl.col("aas") != 0)
    rows = (every_mean(results, places) if known_means is None else known_means).filter(known)
    if not divided:
        rows = _with_one_cpu_wait(rows)
    ordered = pl.DataFrame(
        [(*s, n) for n, s in enumerate(segments(rows, families_of(results.tables)))],
        schema=_SEGMENT,
        orient="row",
    )
    return piled(rows.join(ordered, on="key").sort("place", "order"))


_AT_A_TIME = 1_000
"""Places whose means are made together: those of a long observation at once would take much memory."""


def every_mean(results: Results, places: pl.DataFrame, *, words: bool = True) -> pl.DataFrame:
    """Returns :func:`means` of many places."""
    return pl.concat([means(results, some, words=words) for some in _some_at_a_time(places)])


def _some_at_a_time(places: pl.DataFrame) -> list[pl.DataFrame]:
    if places.height <= _AT_A_TIME:
        return [places]
    part = pl.col("place").rank("dense") // _AT_A_TIME
    return [some.drop("part") for some in places.with_columns(part=part).sort("part").partition_by("part")]


def _with_one_cpu_wait(rows: pl.DataFrame) -> pl.DataFrame:
    """Replaces the parts of CPU WAIT of each place by their sum. ``events`` names the largest parts."""
    part = pl.col("account") == "runq"
    under = pl.format("under {} {}", pl.col("key").str.strip_prefix("runq:"), pl.col("aas").round(3))
    under = under.filter(~pl.col("key").is_in(["runq", f"runq:{NO_LABEL}"]))
    whole = (
        rows.filter(part)
        .sort("aas", descending=True, maintain_order=True)
        .group_by("place", maintain_order=True)
        .agg(
            pl.lit("runq").alias("key"),
            pl.col("account").first(),
            *(sum_if_all_known(c) for c in _FIGURES),
            under.head(3).str.join(", ").alias("events"),
            pl.col("source").unique(maintain_order=True).str.join(", "),
            pl.col("runq").first(),
        )
    )
    others = rows.filter(~part)
    return pl.concat([others, whole.select(others.columns)], how="vertical_relaxed")


_ROOM = 8
_SMALL = 0.005
"""Share of a place's time; a segment that is nowhere larger is not worth an entry of the legend."""


class _Size(NamedTuple):
    """Largest share of the time of a place, and share of the time of all places."""

    most: float
    total: float

    def within(self, other: _Size) -> bool:
        """Returns whether it is not larger than ``other``, or too small to be seen."""
        return self.most <= max(other.most, _SMALL) and self.total <= max(other.total, _SMALL)


def merge_small(rows: pl.DataFrame, room: int = _ROOM) -> pl.DataFrame:
    """Merges the smallest segments where there are too many for a legend (more than ``room``), or they are
    too small to be seen.

    So many segments keep their names that the merged one is not larger than any of them. The remainder is no
    class and sets no limit.
    """
    if rows.is_empty():
        return rows
    small = _small(rows, room)
    if len(small) < 2:
        return rows
    rest, last = pl.col("key").is_in(small), max(rows["order"].to_list())
    as_one = {
        "key": pl.lit("rest"),
        "account": pl.lit("rest"),
        "label": pl.lit(f"other ({len(small)})"),
        "family": pl.lit("rest"),
        "waiting": pl.lit(False),
        "order": pl.lit(last - 2),
    }
    merged = (
        rows.filter(rest)
        .sort("place", "aas", descending=[False, True], maintain_order=True)
        .with_columns(pl.format("{} {}", "label", pl.col("aas").round(3)).alias("words"))
        .with_columns(**as_one)
        .group_by("place", *as_one, maintain_order=True)
        .agg(
            *(pl.col(c).sum() for c in ("aas", "low", "high")),
            pl.col("runq").first(),
            pl.col("words").head(3).str.join(", ").alias("events"),
            pl.col("source").first(),
        )
    )
    kept = rows.filter(~rest).drop("y0", "y1")
    both = pl.concat([kept, merged.select(kept.columns)], how="vertical_relaxed")
    return piled(both.sort("place", "order", maintain_order=True))


def _small(rows: pl.DataFrame, room: int) -> list[str]:
    """Returns the keys of the segments to merge."""
    amounts = rows.with_columns(pl.col("aas").abs().alias("size")).with_columns(
        share=pl.col("size") / pl.col("size").sum().over("place")
    )
    whole = float(amounts["size"].sum())

    def size(keys: list[str]) -> _Size:
        some = amounts.filter(pl.col("key").is_in(keys))
        by_place = some.group_by("place").agg(pl.col("share").sum())
        return _Size(float(by_place["share"].max()), float(some["size"].sum()) / whole)  # type: ignore[arg-type]

    sizes = {key: size([key]) for key in amounts["key"].unique(maintain_order=True).to_list()}
    mergeable = sorted((k for k in sizes if k not in (*_FIRST, *_LAST)), key=lambda k: (sizes[k], k))
    over = len(sizes) - room + 1
    small = [k for n, k in enumerate(mergeable) if sizes[k].most < _SMALL or (n < over and over > 1)]
    while len(small) > 1:
        rest = size(small)
        if all(rest.within(sizes[k]) for k in sizes if k not in small and k != "unaccounted"):
            break
        small.pop()
    return small


def piled(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds y0 and y1, which pile up the segments of each place; a negative remainder hangs below zero."""
    aas = pl.col("aas")
    top = pl.when(aas > 0).then(aas.clip(lower_bound=0.0).cum_sum().over("place")).otherwise(aas)
    bottom = pl.when(aas > 0).then(pl.col("y1") - aas).otherwise(0.0)
    return rows.with_columns(y1=top).with_columns(y0=bottom)


def missing_parts(
    results: Results, places: pl.DataFrame, known_means: pl.DataFrame | None = None
) -> list[str]:
    """Returns the accounts whose time is unknown at one place or more. ``known_means``: :func:`means`."""
    rows = (means(results, places) if known_means is None else known_means).filter(pl.col("aas").is_null())
    names = [NAMES.get(a, a) for a in rows["account"].unique(maintain_order=True).to_list()]
    return [f"waits of sessions {HIDDEN_STATUS}", *names] if hidden(results, places) else names


def undrawn(missing: Sequence[str], bars: int) -> str:
    """Returns the sentence of a chart of so many bars on the accounts that :func:`missing_parts` names."""
    some, there = (" for some bars", " there") if bars > 1 else ("", "")
    return f"Not the whole account: unknown{some}, and so not drawn{there}: {', '.join(missing)}."


def hidden(results: Results, places: pl.DataFrame) -> bool:
    """Returns whether a place has sessions whose waits this role may not see; its waits are those of the
    others."""
    rows = results.tables["ledger"].join(places, on="cell", how="semi").filter(pl.col("scope") == "rung")
    waits = rows.filter(pl.col("account").is_in(["sleep", "client"]))
    return bool(waits["status"].str.contains(HIDDEN_STATUS).any())


def means(results: Results, places: pl.DataFrame, *, words: bool = True) -> pl.DataFrame:
    """Returns weighted means of cells: place, key, account, aas, low, high, runq, events, source.

    ``runq`` is CPU WAIT in total. A cell without a row did not have that wait, so it counts as 0; a cell
    with NULL is unknown and is left out. The ends of a class's interval are the sums of its events' ends,
    which is rather too wide. Without ``words`` events are NULL and one source is named: half the time.
    """
    rows = _classes(leaves(results.tables["ledger"].join(places, on="cell"), "rung"), words)
    source = pl.col("source")
    weight = pl.col("weight")
    whole = places.group_by("place").agg(weight.sum().alias("whole"))
    known_weight = pl.col("whole").first() - weight.filter(pl.col("aas").is_null()).sum()
    return (
        rows.join(whole, on="place", maintain_order="left")
        .group_by("place", "key", maintain_order=True)
        .agg(
            pl.col("account").first(),
            *(pl.when(known_weight > 0).then(_summed(c) / known_weight).alias(c) for c in _FIGURES),
            pl.col("events").drop_nulls().first(),
            source.unique(maintain_order=True).str.join(", ") if words else source.first(),
        )
        .with_columns(pl.col("aas").filter(pl.col("account") == "runq").sum().over("place").alias("runq"))
        .sort("place", maintain_order=True)
    )


def _summed(column: str) -> pl.Expr:
    """Returns the weighted sum; an end of an interval is known only if it is known in all cells."""
    total = (pl.col(column) * pl.col("weight")).sum()
    known = pl.col(column).is_not_null() | pl.col("aas").is_null()
    return pl.when(known.all()).then(total) if column != "aas" else total


def segments(rows: pl.DataFrame, families: WaitFamilies) -> list[Segment]:
    """Returns the segments of a stack from the bottom up. ``rows`` has key and account.

    The run queue of each wait class lies beside its sleep. The run queue under a label of the client lies
    below the client's time.
    """
    keyed = rows.select("key", "account").unique(maintain_order=True)
    accounts = dict(keyed.rows())
    named = sorted({k.split(":", 1)[1] for k in accounts if ":" in k} - {NO_LABEL})
    classes = [c for c in named if families.of(c) not in AT_CLIENT]
    clients = [f"runq:{c}" for c in named if families.of(c) in AT_CLIENT]
    further = [k for k in accounts if ":" not in k and k not in (*_FIRST, *_LAST)]
    middle = [k for c in (NO_LABEL, *classes) for k in (f"runq:{c}", f"sleep:{c}")]
    keys = [k for k in dict.fromkeys((*_FIRST, *further, *middle, *clients, *_LAST)) if k in accounts]
    found = [_segment(k, families) for k in keys]
    # Some places have CPU or CPU WAIT in parts, others only as a whole: the latter is named apart.
    wholes = {
        "run": Segment("run", "CPU, not divided", "run-whole", False),
        "runq": Segment("runq", "CPU WAIT, not divided", "runq-whole", False),
    }
    divided = {"run": "run.", "runq": "runq:"}
    in_parts = {whole for whole, part in divided.items() if any(k.startswith(part) for k in keys)}
    return [wholes[s.key] if s.key in in_parts else s for s in found]


def _segment(key: str, families: WaitFamilies) -> Segment:
    account, _, name = key.partition(":")
    if not name or key in _FIRST:
        label = f"CPU WAIT, {noun('not_labelled')}" if name else NAMES.get(account, account)
        return Segment(key, label, account, False)
    hue = families.hue(name)
    if account == "runq":
        return Segment(key, f"CPU WAIT under {name}", hue, True)
    label = f"asleep, {noun('not_labelled')}" if name == NO_LABEL else f"asleep in {name}"
    return Segment(key, label, hue, False)


def _classes(rows: pl.DataFrame, words: bool = True) -> pl.DataFrame:
    """Returns waits and run queues of each cell by class; ``events`` names the longest events of a class."""
    labelled = (pl.col("account") == "runq") & pl.col("detail").is_not_null()
    by_class = (pl.col("account") == "sleep") | labelled
    key = pl.concat_str("account", pl.lit(":"), wait_classes())
    known = [sum_if_all_known(c) for c in _FIGURES]
    group = ["cell", "place", "weight", "key"]
    if not words:
        keyed = rows.with_columns(pl.when(by_class).then(key).otherwise("account").alias("key"))
        summed = keyed.group_by(group, maintain_order=True).agg(
            pl.col("account").first(), *known, pl.col("source").first()
        )
        return summed.with_columns(events=pl.lit(None, pl.String))
    event = pl.col("detail").str.extract(r"^[^/:]+[/:](.*)$").fill_null("")
    event_text = pl.when(by_class & (event != "") & (pl.col("aas") > 0)).then(
        pl.format("{} {}", event, pl.col("aas").round(3))
    )
    return (
        rows.with_columns(
            pl.when(by_class).then(key).otherwise("account").alias("key"), event_text.alias("words")
        )
        .sort("aas", descending=True, nulls_last=True, maintain_order=True)
        .group_by(group, maintain_order=True)
        .agg(
            pl.col("account").first(),
            *known,
            pl.col("words").drop_nulls().head(3).str.join(", ").alias("events"),
            pl.col("source").first(),
        )
    )
