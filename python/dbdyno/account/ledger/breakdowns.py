"""Run queue by label; memos: W, CPU by label, both by the server's state, workers, what others call CPU."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.group_sums import asleep, not_awake, runnable, slack
from dbdyno.account.ledger.groups import Groups
from dbdyno.account.ledger.margins import TASKS
from dbdyno.account.ledger.moments import sums
from dbdyno.account.ledger.sample_rows import ASKED, NO_EVENT, detail
from dbdyno.account.ledger.waits import sampled_asleep
from dbdyno.model.ledger_rows import divided

_ENDS = ("", "_low", "_high")


def by_label(joint: Joint, groups: Groups) -> pl.DataFrame:
    """CPU and run queue under each wait label, by group: :func:`runnable`."""
    return runnable(joint, groups, {"detail": detail()})


def queued(labels: pl.DataFrame, cpu: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Parts of the account ``runq`` among ``cpu``'s rows of ``groups``: one for each of their ``labels``."""
    rows = labels.drop_nulls("runq").select(
        "group", "detail", "source", status=pl.lit("ok"), **_named("runq")
    )
    totals = cpu.filter(pl.col("account") == "runq").join(groups.table, on="group", how="semi")
    return divided(totals, rows, "group")


def memos(joint: Joint, groups: Groups, labels: pl.DataFrame) -> pl.DataFrame:
    """All memos of ``groups`` (sessions and rungs)."""
    parts = (
        _wall(groups),
        *_raw(joint, groups),
        _ran(joint, groups, labels),
        *_states(joint, groups),
        *_workers(joint, groups),
        *_naive(joint, groups),
        _margin(joint, groups),
    )
    told = [p for p in parts if p.height] or [parts[0]]  # nobody was there: empty, with its columns
    return pl.concat(told, how="diagonal").with_columns(status=pl.lit("ok"))


def _wall(groups: Groups) -> pl.DataFrame:
    total = {"aas": "total", "low": "total", "high": "total"}
    return groups.table.select("group", account=pl.lit("wall"), source=pl.lit(TASKS), **total)


def _raw(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """Sampled run-queue or CPU time in all, and by the label of the wait that it hid behind."""
    rows = joint.seen.of("raw", {"detail": detail()})
    by_label = sums(rows, groups.members, ["kind", "detail"]).filter(kind="runnable")
    yield _shares(sums(rows, groups.members, ["kind"]).filter(kind="runnable"), "runnable", groups)
    yield _shares(by_label.filter(pl.col("detail") != NO_EVENT), "label.runnable", groups)


def _ran(joint: Joint, groups: Groups, labels: pl.DataFrame) -> pl.DataFrame:
    """CPU by label; without detail what no label was seen for."""
    unseen = not_awake(joint, groups)
    errors = slack(joint.tasks, groups).select("group", error="run")
    unseen = unseen.join(errors, on="group", maintain_order="left")
    sources = groups.table.select("group", source=pl.coalesce("wait_source", "cpu_source"))
    value, error = pl.col("run") + pl.col("traced_run"), pl.col("error")
    rows = labels.drop_nulls("run").select("group", "detail", "source", **_named("run"))
    rest = unseen.filter(value > 0).join(sources, on="group", maintain_order="left")
    rest = rest.select("group", "source", aas=value, low=(value - error).clip(0.0), high=value + error)
    return pl.concat([rows, rest], how="diagonal").with_columns(account=pl.lit("label.run"))


def _states(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """By the server's word; of exactly traced tasks too it comes from the samples."""
    keys = {"detail": pl.col("state")}
    of_traced = pl.concat_str("raw_source", pl.lit(", raked"))
    raked = groups.table.select("group", source=pl.coalesce("sampled_source", of_traced))
    awake = _of(raked, runnable(joint, groups, keys, traced=False))
    for name in ("run", "runq"):
        rows = awake.select("group", "detail", "source", account=pl.lit(f"state.{name}"), **_named(name))
        yield rows.filter(pl.col("detail").is_not_null())
    slept = _of(raked, asleep(joint, groups, {"state": pl.col("state")}, traced=False).drop_nulls("state"))
    yield slept.select(
        "group", "low", "high", "source", detail="state", aas="value", account=pl.lit("state.sleep")
    )


def _of(sources: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("source").join(sources, on="group", how="left", maintain_order="left")


def _named(name: str) -> dict[str, str]:
    return {n: f"{name}{end}" for n, end in zip(("aas", "low", "high"), _ENDS, strict=True)}


def _workers(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """The part that parallel workers have in their sessions' accounts."""
    theirs = joint.tasks.filter("worker")
    if theirs.is_empty():
        return
    members = groups.members.join(theirs.select("task"), on="task", how="semi")
    some = Groups(groups.table.join(members.select("group"), on="group", how="semi"), members)
    over = pl.col("over_ns")
    known = members.join(theirs.filter("known"), on="task").group_by("group", maintain_order=True)
    found = known.agg((pl.col(f"{n}_ns") / over).sum().alias(n) for n in ("run", "runq"))
    found = found.join(slack(theirs, some), on="group", suffix="_error", maintain_order="left")
    source = groups.table.select("group", source="cpu_source")
    for name in ("run", "runq"):
        value, error = pl.col(name), pl.col(f"{name}_error")
        rows = found.join(source, on="group", maintain_order="left")
        ends = {"low": (value - error).clip(0.0), "high": value + error}
        yield rows.select("group", "source", account=pl.lit(f"workers.{name}"), aas=value, **ends)
    slept = asleep(joint, some, {"one": pl.lit(1)})
    yield slept.select("group", "low", "high", "source", aas="value", account=pl.lit("workers.sleep"))


def _naive(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """What the server's word alone is taken for elsewhere: active is DB time, active without event CPU."""
    active = (pl.col("state") == "active").fill_null(False)
    for account, which in (("naive.cpu", active & pl.col("wait_class").is_null()), ("naive.active", active)):
        found = sums(joint.asked.of("y", {"told": which}), groups.members, ["told"])
        never = found.filter(~pl.col("told")).join(found.filter("told"), on="group", how="anti")
        none = never.with_columns(value=0.0, p_low=0.0, p_high="p_unseen")
        both = pl.concat([found.filter("told"), none])
        whole = groups.table.filter(pl.col("stateless") == 0).select("group")
        both = both.join(whole, on="group", how="semi", maintain_order="left")
        yield _shares(both, account, groups).with_columns(source=pl.lit(ASKED))


def _shares(found: pl.DataFrame, account: str, groups: Groups) -> pl.DataFrame:
    found = found.join(groups.table.select("group", "raw_source"), on="group", maintain_order="left")
    return found.select(
        "group",
        *(["detail"] if "detail" in found.columns else []),
        account=pl.lit(account),
        aas="value",
        low=pl.col("p_low") * pl.col("whole"),
        high=pl.col("p_high") * pl.col("whole"),
        source="raw_source",
    )


def _margin(joint: Joint, groups: Groups) -> pl.DataFrame:
    """Time off by the margins less what the samples alone call asleep: how far the two disagree."""
    tasks = joint.tasks.filter(pl.col("known") & pl.col("samples").is_not_null())
    members = groups.members.join(tasks.select("task"), on="task", how="semi")
    off = members.join(tasks, on="task").group_by("group", maintain_order=True)
    margin = off.agg(off=(pl.col("off_ns") / pl.col("over_ns")).sum())
    error = slack(tasks, Groups(groups.table, members)).select("group", error="off")
    slept = sampled_asleep(joint, Groups(groups.table, members), tasks)
    found = margin.join(slept, on="group", maintain_order="left").join(
        error, on="group", maintain_order="left"
    )
    found = found.join(groups.table.select("group", "raw_source", "cpu_source"), on="group")
    return found.select(
        "group",
        account=pl.lit("margin.off"),
        aas=pl.col("off") - pl.col("value"),
        low=pl.col("off") - pl.col("high") - pl.col("error"),
        high=pl.col("off") - pl.col("low") + pl.col("error"),
        source=pl.concat_str("cpu_source", pl.lit(" less "), "raw_source"),
    )
