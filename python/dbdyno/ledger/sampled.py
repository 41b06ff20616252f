"""The sampled part: sleep by wait, client, and what is left over, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dbdyno.ledger.intervals import clustered, wilson
from dbdyno.ledger.joint import NO_EVENT, UNLABELLED, Tables, sampling

SOURCE = "activity samples"
LABEL_ONLY = "activity samples, the server's word alone"
LEFT = "W less all other accounts"
_ACCOUNTS = {"sleep": "sleep", "client": "client", "unlabelled": UNLABELLED}
_OFF = ("sleep", "client", "unlabelled")


class Sampled:
    """Accounts of the groups ``by`` of the sessions' tasks ``own``."""

    def __init__(
        self,
        cut: Tables,
        own: pl.DataFrame,
        joint: pl.DataFrame,
        by: Sequence[str],
        seen: pl.DataFrame | None = None,
    ) -> None:
        """``seen``: what the samples saw at once, for groups of many tasks; without it each counts as one."""
        self.by = list(by)
        self._joint = joint
        groups = own.group_by(self.by, maintain_order=True).agg(
            total=(pl.col("wall_ns") / pl.col("over_ns")).sum(), tasks=pl.len().cast(pl.Float64)
        )
        self.groups = groups.join(sampling(cut), on="cell", how="left").join(_why(cut), on="cell", how="left")
        self._at_once = None if seen is None else _at_once(cut, seen)

    def accounts(self) -> pl.DataFrame:
        """Rows of sleep (one a wait; one in all where none was seen), client, active without wait event."""
        found = self._shares(["kind", "detail"])
        sleeps = self._filled(found.filter(pl.col("kind") == "sleep"), "sleep")
        client = self._filled(self._shares(["kind"], "client"), "client")
        unlabelled = self._shares(["kind"], "unlabelled").select(client.columns)
        rows = pl.concat([sleeps.select(client.columns), client, unlabelled])
        return self._as_rows(rows, pl.col("kind").replace_strict(_ACCOUNTS))

    def unaccounted(self, others: pl.DataFrame) -> pl.DataFrame:
        """W less all ``others``: signed, always a number; NULL accounts are in it."""
        off = self._off().select(*self.by, below="aas", low="low", high="high")
        known = others.group_by(self.by).agg(pl.col("aas").sum().alias("known"))
        joined = self.groups.join(known, on=self.by, how="left").join(off, on=self.by, how="left")
        value = pl.col("total") - pl.col("known").fill_null(0.0)
        return joined.select(
            *self.by,
            account=pl.lit("unaccounted"),
            detail=pl.lit(None, dtype=pl.String),
            aas=value,
            low=value - (pl.col("high") - pl.col("below")),
            high=value + (pl.col("below") - pl.col("low")),
            status=pl.lit("ok"),
            source=pl.lit(LEFT),
        )

    def memos(self) -> pl.DataFrame:
        """W itself; sampled run-queue or CPU time in all, and by the label of the wait that it hid behind."""
        wall = self.groups.select(
            *self.by,
            account=pl.lit("wall"),
            detail=pl.lit(None, dtype=pl.String),
            aas="total",
            low="total",
            high="total",
            status=pl.lit("ok"),
            source=pl.lit("os tasks"),
        )
        hidden = self._shares(["kind", "detail"], "runnable").filter(pl.col("detail") != NO_EVENT)
        runnable = self._shares(["kind"], "runnable")
        return pl.concat(
            [wall, self._as_rows(runnable, pl.col("kind")), self._as_rows(hidden, pl.lit("label.runnable"))]
        )

    def _off(self) -> pl.DataFrame:
        rows = self._shares([], *_OFF)
        return self._filled(rows.with_columns(kind=pl.lit("off")), "off")

    def _shares(self, keys: Sequence[str], *kinds: str) -> pl.DataFrame:
        """Seconds per second of each group and ``keys``, of these ``kinds`` only, with intervals."""
        chosen = pl.col("kind").is_in(kinds) if kinds else pl.lit(True)
        at = [*self.by, *keys]
        grouped = self._joint.filter(chosen).group_by(at, maintain_order=True)
        aas = (pl.col("ns") / pl.col("over_ns")).sum()
        found = grouped.agg(aas=aas, label_only=pl.col("label_only").any())
        moments = self._moments(at, chosen)
        if moments is not None:
            found = found.join(moments, on=at, how="left", nulls_equal=True, maintain_order="left")
        else:
            found = found.with_columns(first=pl.lit(0.0), second=pl.lit(0.0))
        found = _bounded(found.join(self.groups, on=self.by, maintain_order="left"))
        return found if "detail" in keys else found.with_columns(detail=pl.lit(None, dtype=pl.String))

    def _moments(self, at: Sequence[str], chosen: pl.Expr) -> pl.DataFrame | None:
        """Sums over the samples of the number of tasks seen, and of its square, times the sample's span."""
        if self._at_once is None:
            return None
        counted = self._at_once.filter(chosen).group_by([*at, "sample"])
        x, span = pl.col("x"), pl.col("span")
        return (
            counted.agg(x.sum(), span.first())
            .group_by(at)
            .agg(first=(x * span).sum(), second=(x * x * span).sum())
        )

    def _filled(self, rows: pl.DataFrame, kind: str) -> pl.DataFrame:
        """``rows``, and for groups without any: 0 where there were samples, NULL and why where not."""
        absent = self.groups.join(rows, on=self.by, how="anti").with_columns(
            kind=pl.lit(kind),
            detail=pl.lit(None, dtype=pl.String),
            aas=pl.when(pl.col("samples").is_not_null()).then(0.0),
            label_only=pl.lit(False),
            first=pl.lit(0.0),
            second=pl.lit(0.0),
        )
        return pl.concat([rows, _bounded(absent).select(rows.columns)])

    def _as_rows(self, rows: pl.DataFrame, account: pl.Expr) -> pl.DataFrame:
        source = pl.when("label_only").then(pl.lit(LABEL_ONLY)).otherwise(pl.lit(SOURCE))
        return rows.select(
            *self.by, account.alias("account"), "detail", "aas", "low", "high", "status", source=source
        )


def _bounded(found: pl.DataFrame) -> pl.DataFrame:
    """Wilson's interval with the effective number of observations; status from the samples."""
    span = pl.col("sampled_to") - pl.col("sampled_from")
    alive = (pl.col("total") / pl.col("tasks")).clip(0.0, 1.0)
    n = clustered(pl.col("samples") * alive, pl.col("tasks"), pl.col("first") / span, pl.col("second") / span)
    low, high = wilson(pl.col("aas") / pl.col("total"), n.clip(1.0))
    sampled = pl.col("samples").is_not_null()
    return found.with_columns(
        low=pl.when(sampled).then(pl.min_horizontal(low * pl.col("total"), "aas")),
        high=pl.when(sampled).then(pl.max_horizontal(high * pl.col("total"), "aas")),
        status=pl.when(sampled).then(pl.lit("ok")).otherwise(pl.col("why").fill_null("off")),
    )


def _at_once(cut: Tables, seen: pl.DataFrame) -> pl.DataFrame:
    """Per sample, kind and detail: the number of tasks seen so, and the time the sample stands for."""
    span = (pl.col("high_ns") - pl.col("low_ns")).cast(pl.Float64)
    length = cut["cut_sampler"].select("cell", "sample", span=span)
    counted = seen.group_by("cell", "sample", "kind", "detail").agg(x=pl.len().cast(pl.Float64))
    return counted.join(length, on=["cell", "sample"])


def _why(cut: Tables) -> pl.DataFrame:
    """Per cell, what became of the activity samples."""
    told = cut["cell_sources"].filter((pl.col("name") == SOURCE) & (pl.col("status") != "ok"))
    return told.group_by("cell").agg(why=pl.col("status").first())
