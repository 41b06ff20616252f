"""Accounts of time asleep and the unaccounted rest; run queue by label; memos: W, CPU by label, both by
the server's state, workers, and naive estimates of CPU time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dbdyno.account.ledger.apportion import Joint, Moments
from dbdyno.account.ledger.group_sums import asleep, missed, not_asleep, not_awake, runnable, slack, sums
from dbdyno.account.ledger.groups import Groups
from dbdyno.account.ledger.margins import TASKS, steal
from dbdyno.account.ledger.samples import ASKED, SOURCES
from dbdyno.model.results.ledger_rows import divided
from dbdyno.model.results.session_time import NO_EVENT, UNLABELLED, wait_label
from dbdyno.model.schema.tables import Tables
from dbdyno.model.sources.source import HIDDEN_STATUS
from dbdyno.model.sources.wait_families import AT_CLIENT

LEFT = "W less all other accounts"
UNSEEN = "seen by no sample"
_HIDDEN = pl.lit(HIDDEN_STATUS)
_SUMMED = ("run", "runq", "sleep", "client", UNLABELLED)


def wait_accounts(joint: Joint, groups: Groups, cut: Tables) -> pl.DataFrame:
    """Returns rows of accounts sleep (one per wait; one in all if no wait was sampled), client, and active
    without wait event."""
    unlabelled = pl.col("kind") == "unlabelled"
    client = joint.families.among(*AT_CLIENT)
    account = pl.when(unlabelled).then(pl.lit(UNLABELLED)).when(client).then(pl.lit("client"))
    name = account.otherwise(pl.lit("sleep"))
    keys = {"account": name, "detail": pl.when(name == "sleep").then(wait_label())}
    rows = asleep(joint, groups, keys).filter(pl.col("value") > 0).with_columns(status=pl.lit("ok"))
    hidden = not_asleep(groups).with_columns(account=pl.lit("sleep"), status=pl.lit("ok"))
    rows = pl.concat([rows, groups.named(hidden, source="wait_source")], how="diagonal")
    rows = _with_hidden(rows, groups)
    whole = groups.only("session", "brief", "rung").table
    unseen, sampling = missed(groups), _sampler_status(cut)
    absent = (
        _absent_accounts(rows, g, name, unseen, sampling)
        for g, name in ((groups.table, "sleep"), (whole, "client"))
    )
    return pl.concat([rows, *absent], how="diagonal").select(
        "group", "account", "detail", "low", "high", "status", "source", aas="value"
    )


def _with_hidden(rows: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Widens groups with sessions hidden from our role: values cover the others, upper ends include all
    time of hidden ones."""
    rows = groups.named(rows, "hidden", "tasks", "unobserved")
    some = pl.col("hidden") > 0
    more = pl.when(some).then("unobserved").otherwise(0.0)
    status = pl.when(some).then(_hidden_status()).otherwise("status")
    return rows.with_columns(status=status, high=pl.col("high") + more).drop("hidden", "tasks", "unobserved")


def _hidden_status() -> pl.Expr:
    """Returns the status of a group with hidden sessions."""
    others = pl.format("{} of {} sessions, others {}", pl.col("tasks") - pl.col("hidden"), "tasks", _HIDDEN)
    return pl.when(pl.col("hidden") == pl.col("tasks")).then(_HIDDEN).otherwise(others)


def _absent_accounts(
    rows: pl.DataFrame, groups: pl.DataFrame, account: str, unseen: pl.DataFrame, why: pl.DataFrame
) -> pl.DataFrame:
    """Returns rows for groups without the account: 0, with an upper end from the number of samples and the
    unobserved tasks. NULL, with the reason, if no task was observed or its figures are unknown."""
    empty = groups.join(rows.filter(pl.col("account") == account), on="group", how="anti")
    if empty.is_empty():
        return rows.clear()
    empty = empty.join(why, on="cell", how="left", maintain_order="left")
    hidden, all_observed = pl.col("hidden") > 0, pl.col("observed") == pl.col("tasks")
    # A task that could have been read, but whose run and run queue are unknown, has no account of sleep.
    whole = pl.col("whole") > 0
    known = ~hidden & whole
    some = pl.format("{} of {} tasks", "observed", "tasks")
    empty = empty.join(unseen, on="group", how="left", maintain_order="left")
    return empty.select(
        "group",
        account=pl.lit(account),
        value=pl.when(known).then(0.0),
        low=pl.when(known).then(0.0),
        high=pl.when(known).then(pl.col("asleep_missed").fill_null(0.0) + pl.col("unobserved")),
        status=pl.when(hidden)
        .then(_hidden_status())
        .when(all_observed & whole)
        .then(pl.lit("ok"))
        .when(known)
        .then(some)
        .otherwise(pl.coalesce("why", "sampling", pl.lit("off"))),
        source=pl.when(known).then("wait_source").otherwise(pl.lit("activity samples")),
    )


def _sampler_status(cut: Tables) -> pl.DataFrame:
    """Returns per cell the status of the samplers that failed."""
    failed = cut["cell_sources"].filter(
        pl.col("name").is_in(list(SOURCES.values())) & (pl.col("status") != "ok")
    )
    return failed.sort("name").group_by("cell", maintain_order=True).agg(sampling=pl.col("status").first())


def sampled_asleep(seen: Moments, groups: Groups) -> pl.DataFrame:
    """Returns per group the time asleep by the samples alone: ``value``, ``low``, ``high``."""
    matching = pl.col("kind").is_in(["sleep", "unlabelled"])
    return _matching_interval(sums(seen.for_measure("raw"), groups, {"matching": matching}), "group")


def _matching_interval(sums_: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Returns ``value``, ``low``, ``high`` of the rows that are ``matching``. A group without any has 0,
    with an upper end from the number of samples."""
    sums_ = sums_.sort("matching", descending=True, maintain_order=True)
    whole = pl.col("whole")
    return sums_.unique(by, keep="first", maintain_order=True).select(
        *by,
        value=pl.when("matching").then("value").otherwise(0.0),
        low=pl.when("matching").then(pl.col("p_low") * whole).otherwise(0.0 * whole),
        high=pl.when("matching").then("p_high").otherwise("p_unseen") * whole,
    )


def unaccounted(joint: Joint, groups: Groups, accounts: pl.DataFrame, cut: Tables) -> pl.DataFrame:
    """Returns W less all ``accounts``: signed, always a number, and including NULL accounts.

    Its interval is the margins' time off less the samples' time asleep, each with its error; for exactly
    traced tasks it is the brackets of the reads. Time stolen from the machine while a session was runnable
    may be part of it, so that the upper end includes it.
    """
    accounted = (
        accounts.filter(pl.col("account").is_in(_SUMMED)).group_by("group").agg(added=pl.col("aas").sum())
    )
    slept = sampled_asleep(joint.seen.sampled, groups)
    base = groups.table.join(steal(cut), on="cell", how="left", maintain_order="left")
    for frame in (accounted, slept, groups.summed(**_time_off())):
        base = base.join(frame, on="group", how="left", maintain_order="left")
    base = base.with_columns(
        pl.col("off", "low", "high", "rest", "error", "busy", "steal").fill_null(0.0),
        aas=pl.col("total") - pl.col("added").fill_null(0.0),
    )
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


def _time_off() -> dict[str, pl.Expr]:
    """Returns expressions per group: time ``off`` of sampled tasks; ``rest``, for exactly traced ones W
    less run, run queue and sleep by label; ``error`` of both; and ``busy``, the time that steal can have
    reduced."""
    over, exact = pl.col("over_ns"), pl.col("exact")
    loose = ~exact & (~pl.col("ended") | pl.col("samples").is_not_null())  # else it is all asleep
    slept = pl.coalesce("label_sleep", pl.col("slept_ns") / over)
    return {
        "off": (pl.col("off_ns") / over).filter(loose).sum(),
        "rest": (pl.col("off_ns") / over - slept).filter(exact).sum(),
        "error": slack()["off"],
        "busy": ((pl.col("run_ns") + pl.col("runq_ns")) / over).filter("known").sum(),
    }


_ENDS = ("", "_low", "_high")


def by_label(joint: Joint, groups: Groups) -> pl.DataFrame:
    """Returns CPU and run queue under each wait label, by group: :func:`runnable`."""
    return runnable(joint, groups, {"detail": wait_label()})


def queued(labels: pl.DataFrame, cpu: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    """Returns parts of the account ``runq`` among ``cpu``'s rows of ``groups``: one per label."""
    rows = labels.drop_nulls("runq").select(
        "group", "detail", "source", status=pl.lit("ok"), **_end_columns("runq")
    )
    totals = cpu.filter(pl.col("account") == "runq").join(groups.table, on="group", how="semi")
    return divided(totals, rows, "group")


def memos(joint: Joint, groups: Groups, labels: pl.DataFrame) -> pl.DataFrame:
    """Returns all memos of ``groups`` (sessions and rungs)."""
    parts = (
        _wall(groups),
        *_sampled_runnable(joint, groups),
        _cpu_by_label(groups, labels),
        *_states(joint, groups),
        *_workers(joint, groups),
        *_naive(joint, groups),
        _margin_difference(joint, groups),
    )
    present = [p for p in parts if p.height] or [parts[0]]  # no session: empty, with its columns
    return pl.concat(present, how="diagonal").with_columns(status=pl.lit("ok"))


def _wall(groups: Groups) -> pl.DataFrame:
    total = {"aas": "total", "low": "total", "high": "total"}
    return groups.table.select("group", account=pl.lit("wall"), source=pl.lit(TASKS), **total)


def _sampled_runnable(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """Yields sampled runnable time in all, and by the label of the wait that it hid behind."""
    names = {"runnable": pl.lit(None, pl.String), "label.runnable": wait_label()}
    rows = joint.seen.each("raw", {name: {"detail": detail} for name, detail in names.items()})
    sums_ = sums(rows, groups, {n: pl.col(n) for n in ("kind", "detail")}, apart=["account"])
    runnable = (pl.col("kind") == "runnable") & pl.col("detail").ne_missing(NO_EVENT)
    yield _shares(sums_.filter(runnable).sort("account", descending=True, maintain_order=True), groups)


def _cpu_by_label(groups: Groups, labels: pl.DataFrame) -> pl.DataFrame:
    """Returns CPU time by label. The row without a detail is time without a known label."""
    unseen = groups.summed(**not_awake(), error=slack()["run"])
    value, error = pl.col("run") + pl.col("traced_run"), pl.col("error")
    rows = labels.drop_nulls("run").select("group", "detail", "source", **_end_columns("run"))
    rest = groups.named(unseen.filter(value > 0), source=pl.coalesce("wait_source", "cpu_source"))
    rest = rest.select("group", "source", aas=value, low=(value - error).clip(0.0), high=value + error)
    return pl.concat([rows, rest], how="diagonal").with_columns(account=pl.lit("label.run"))


def _states(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """Yields time by the server's state. For exactly traced tasks, too, it comes from samples."""
    keys = {"detail": pl.col("state")}
    of_traced = pl.concat_str("raw_source", pl.lit(", estimated"))
    sampled = groups.table.select("group", source=pl.coalesce("sampled_source", of_traced))
    awake = _with_source(sampled, runnable(joint, groups, keys, traced=False).drop_nulls("detail"))
    for name in ("run", "runq"):
        yield awake.select("group", "detail", "source", account=pl.lit(f"state.{name}"), **_end_columns(name))
    slept = _with_source(
        sampled, asleep(joint, groups, {"state": pl.col("state")}, traced=False).drop_nulls("state")
    )
    yield slept.select(
        "group", "low", "high", "source", detail="state", aas="value", account=pl.lit("state.sleep")
    )


def _with_source(sources: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop("source").join(sources, on="group", how="left", maintain_order="left")


def _end_columns(name: str) -> dict[str, str]:
    return {n: f"{name}{end}" for n, end in zip(("aas", "low", "high"), _ENDS, strict=True)}


def _workers(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """Yields the part of parallel workers in their sessions' accounts."""
    workers = groups.tasks.filter("worker")
    if workers.is_empty():
        return
    some = Groups(groups.table.join(workers, on="group", how="semi", maintain_order="left"), workers)
    run, runq = ((pl.col(f"{n}_ns") / pl.col("over_ns")).sum() for n in ("run", "runq"))
    error = slack()
    sums_ = some.where("known").summed(run=run, runq=runq, run_error=error["run"], runq_error=error["runq"])
    rows = groups.named(sums_, source="cpu_source")
    for name in ("run", "runq"):
        value, error_ = pl.col(name), pl.col(f"{name}_error")
        ends = {"low": (value - error_).clip(0.0), "high": value + error_}
        yield rows.select("group", "source", account=pl.lit(f"workers.{name}"), aas=value, **ends)
    slept = asleep(joint, some, {})
    yield slept.select("group", "low", "high", "source", aas="value", account=pl.lit("workers.sleep"))


def _naive(joint: Joint, groups: Groups) -> Iterator[pl.DataFrame]:
    """Yields common estimates from the server's state alone: active is DB time, active without wait event
    is CPU time."""
    active = (pl.col("state") == "active").fill_null(False)
    on_cpu = active & pl.col("wait_class").is_null()
    rows = joint.asked.each("y", {"naive.cpu": {"matching": on_cpu}, "naive.active": {"matching": active}})
    shares = _matching_interval(
        sums(rows, groups, {"matching": pl.col("matching")}, apart=["account"]), "group", "account"
    )
    whole = groups.table.filter(pl.col("stateless") == 0)
    shares = shares.join(whole, on="group", how="semi", maintain_order="left")
    yield shares.sort("account", descending=True, maintain_order=True).select(
        "group", "account", "low", "high", aas="value", source=pl.lit(ASKED)
    )


def _shares(sums_: pl.DataFrame, groups: Groups) -> pl.DataFrame:
    return groups.named(sums_, "raw_source").select(
        "group",
        "account",
        "detail",
        aas="value",
        low=pl.col("p_low") * pl.col("whole"),
        high=pl.col("p_high") * pl.col("whole"),
        source="raw_source",
    )


def _margin_difference(joint: Joint, groups: Groups) -> pl.DataFrame:
    """Returns time off by the margins less time asleep by the samples alone: the disagreement of both."""
    both = pl.col("known") & pl.col("samples").is_not_null()
    some = groups.where(both)
    sums_ = some.summed(off=(pl.col("off_ns") / pl.col("over_ns")).sum(), error=slack()["off"])
    slept = sampled_asleep(joint.seen.only(joint.tasks.filter(both)), some)
    sums_ = sums_.join(slept, on="group", maintain_order="left")
    return groups.named(sums_, "raw_source", "cpu_source").select(
        "group",
        account=pl.lit("margin.off"),
        aas=pl.col("off") - pl.col("value"),
        low=pl.col("off") - pl.col("high") - pl.col("error"),
        high=pl.col("off") - pl.col("low") + pl.col("error"),
        source=pl.concat_str("cpu_source", pl.lit(" less "), "raw_source"),
    )
