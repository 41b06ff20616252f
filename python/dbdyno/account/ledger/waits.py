"""Accounts of time asleep, and what is left over."""

from __future__ import annotations

import polars as pl

from dbdyno.account.ledger.apportion import Joint
from dbdyno.account.ledger.group_sums import asleep, missed, not_asleep, slack
from dbdyno.account.ledger.groups import Groups
from dbdyno.account.ledger.moments import sums
from dbdyno.account.ledger.sample_rows import SOURCES, UNLABELLED, Tables, detail
from dbdyno.account.ledger.steal import steal
from dbdyno.model.source import HIDDEN_STATUS
from dbdyno.model.wait_families import AT_CLIENT

LEFT = "W less all other accounts"
UNSEEN = "seen by no sample"
_HIDDEN = pl.lit(HIDDEN_STATUS)
_SUMMED = ("run", "runq", "sleep", "client", UNLABELLED)


def wait_accounts(joint: Joint, groups: Groups, cut: Tables) -> pl.DataFrame:
    """Rows of sleep (one a wait; one in all where none was seen), client, active without wait event."""
    unlabelled = pl.col("kind") == "unlabelled"
    client = joint.families.among(*AT_CLIENT)
    account = pl.when(unlabelled).then(pl.lit(UNLABELLED)).when(client).then(pl.lit("client"))
    name = account.otherwise(pl.lit("sleep"))
    keys = {"account": name, "detail": pl.when(name == "sleep").then(detail())}
    rows = asleep(joint, groups, keys).filter(pl.col("value") > 0).with_columns(status=pl.lit("ok"))
    hidden = not_asleep(joint, groups).with_columns(account=pl.lit("sleep"), status=pl.lit("ok"))
    hidden = hidden.join(
        groups.table.select("group", source="wait_source"), on="group", maintain_order="left"
    )
    rows = pl.concat([rows, hidden], how="diagonal")
    rows = _with_hidden(rows, groups)
    whole = groups.only("session", "brief", "rung")
    filled = [
        rows,
        *(_absent(joint, rows, g, name, cut) for g, name in ((groups, "sleep"), (whole, "client"))),
    ]
    return pl.concat(filled, how="diagonal").select(
        "group", "account", "detail", "low", "high", "status", "source", aas="value"
    )


def _with_hidden(rows: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Of a group with sessions hidden from our role: the others' time, and up to all of theirs more."""
    rows = rows.join(
        groups.table.select("group", "hidden", "tasks", "unheard"), on="group", maintain_order="left"
    )
    some = pl.col("hidden") > 0
    more = pl.when(some).then("unheard").otherwise(0.0)
    status = pl.when(some).then(_seen()).otherwise("status")
    return rows.with_columns(status=status, high=pl.col("high") + more).drop("hidden", "tasks", "unheard")


def _seen() -> pl.Expr:
    """Status of a group with hidden sessions."""
    others = pl.format("{} of {} sessions, others {}", pl.col("tasks") - pl.col("hidden"), "tasks", _HIDDEN)
    return pl.when(pl.col("hidden") == pl.col("tasks")).then(_HIDDEN).otherwise(others)


def _absent(joint: Joint, rows: pl.DataFrame, groups: Groups, account: str, cut: Tables) -> pl.DataFrame:
    """For groups without any: 0, up to what so many samples may have missed and unheard tasks slept; NULL and
    why where no task was heard, or its figures are unknown."""
    empty = groups.table.filter(pl.col("scope") != "beside").join(
        rows.filter(pl.col("account") == account), on="group", how="anti"
    )
    empty = empty.join(_why(cut), on="cell", how="left", maintain_order="left")
    hidden, all_told = pl.col("hidden") > 0, pl.col("heard") == pl.col("tasks")
    # without run and run queue none asleep is no account of a task that we could have read
    whole = pl.col("whole") > 0
    told = ~hidden & whole
    some = pl.format("{} of {} tasks", "heard", "tasks")
    empty = empty.join(missed(joint, groups), on="group", how="left", maintain_order="left")
    return empty.select(
        "group",
        account=pl.lit(account),
        value=pl.when(told).then(0.0),
        low=pl.when(told).then(0.0),
        high=pl.when(told).then(pl.col("asleep_missed").fill_null(0.0) + pl.col("unheard")),
        status=pl.when(hidden)
        .then(_seen())
        .when(all_told & whole)
        .then(pl.lit("ok"))
        .when(told)
        .then(some)
        .otherwise(pl.coalesce("why", "sampling", pl.lit("off"))),
        source=pl.when(told).then("wait_source").otherwise(pl.lit("activity samples")),
    )


def _why(cut: Tables) -> pl.DataFrame:
    """Per cell, what became of the samples."""
    told = cut["cell_sources"].filter(
        pl.col("name").is_in(list(SOURCES.values())) & (pl.col("status") != "ok")
    )
    return told.sort("name").group_by("cell", maintain_order=True).agg(sampling=pl.col("status").first())


def sampled_asleep(joint: Joint, groups: Groups, tasks: pl.DataFrame) -> pl.DataFrame:
    """Per group the time of ``tasks`` that the samples alone call asleep: ``value``, ``low``, ``high``."""
    told = pl.col("kind").is_in(["sleep", "unlabelled"])
    rows = joint.seen.only(tasks).of("raw", {"told": told})
    found = sums(rows, groups.members, ["told"])
    shares = found.select(
        "group",
        "told",
        value="value",
        low=pl.col("p_low") * pl.col("whole"),
        high=pl.col("p_high") * pl.col("whole"),
    )
    never = found.filter(~pl.col("told")).join(found.filter("told"), on="group", how="anti")
    nothing = never.select(
        "group", told=pl.lit(True), value=0.0, low=0.0, high=pl.col("p_unseen") * pl.col("whole")
    )
    return pl.concat([shares.filter("told"), nothing]).drop("told")


def unaccounted(joint: Joint, groups: Groups, accounts: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """W less all ``accounts``: signed, always a number; NULL accounts are in it.

    Its interval is what the samples leave of the margins' time off, each with its error; or, of exactly
    traced tasks, the brackets of the reads. Time stolen from the machine while a session was on a CPU or
    waited for one may lie in it, so the upper end is higher by that.
    """
    added = accounts.filter(pl.col("account").is_in(_SUMMED)).group_by("group").agg(added=pl.col("aas").sum())
    over = pl.col("over_ns")
    sampled = joint.tasks.filter(~pl.col("exact"))
    off = groups.members.join(sampled, on="task").group_by("group").agg(off=(pl.col("off_ns") / over).sum())
    slept = sampled_asleep(joint, groups, sampled).drop("value")
    traced = groups.members.join(_remainder(joint), on="task").group_by("group").agg(pl.col("rest").sum())
    error = slack(joint.tasks, groups).select("group", error="off")
    base = groups.table.join(steal(cut), on="cell", how="left", maintain_order="left")
    for frame in (added, off, slept, traced, error, _busy(joint, groups)):
        base = base.join(frame, on="group", how="left", maintain_order="left")
    base = base.with_columns(
        pl.col("added", "off", "low", "high", "rest", "error", "busy", "steal").fill_null(0.0)
    ).with_columns(aas=pl.col("total") - pl.col("added"))
    stolen = pl.min_horizontal("steal", "busy")
    low = pl.col("off") + pl.col("rest") - pl.col("high") - pl.col("error")
    high = pl.col("off") + pl.col("rest") - pl.col("low") + pl.col("error") + stolen
    text = pl.when(stolen > 0).then(pl.lit(f"{LEFT}; bounded by steal, too")).otherwise(pl.lit(LEFT))
    return base.select(
        "group",
        account=pl.lit("unaccounted"),
        aas="aas",
        low=pl.min_horizontal(low, "aas"),
        high=pl.max_horizontal(high, "aas"),
        status=pl.lit("ok"),
        source=text,
    )


def _remainder(joint: Joint) -> pl.DataFrame:
    """Of exactly traced tasks, W less run, run queue and sleep by label."""
    labelled = joint.waits.group_by("task").agg(labelled=pl.col("asleep").sum())
    tasks = joint.tasks.filter("exact").join(labelled, on="task", how="left")
    over = pl.col("over_ns")
    slept = pl.coalesce("labelled", pl.col("slept_ns") / over)
    return tasks.select("task", rest=pl.col("off_ns") / over - slept)


def _busy(joint: Joint, groups: Groups) -> pl.DataFrame:
    """Runnable time: what steal may be taken from."""
    both = (pl.col("run_ns") + pl.col("runq_ns")) / pl.col("over_ns")
    tasks = joint.tasks.filter("known")
    return groups.members.join(tasks, on="task").group_by("group").agg(busy=both.sum())
