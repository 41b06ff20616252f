"""Servers of variants: checked, with absolute directories, and listed by ``--servers`` as variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dbdyno import engines
from dbdyno.model.errors import DbdynoError, UsageError
from dbdyno.model.plan.plan import Experiment, Plan, VariantSpec
from dbdyno.model.plan.servers import is_dsn, listed
from dbdyno.plan import check_comparable

_ONE_SERVER = {"dsn": "--dsn", "bin_dir": "--pg-bin", "server_ssh": "--server-ssh"}
_ONE = "one server alone is named by --dsn or --pg-bin"


def with_directory(experiment: Experiment, directory: Path) -> Experiment:
    """Returns the experiment with absolute directories of servers; relative ones are below ``directory``.
    Raises :class:`UsageError` for a text that names no server, or holds a password."""
    texts = {name: v.server for name, v in experiment.variants.items() if v.server is not None}
    changed: dict[str, object] = {}
    if texts:
        named = engines.named_servers(experiment.engine, list(texts.values()), directory)
        servers = dict(zip(texts, (n.text for n in named), strict=True))
        changed["variants"] = {
            name: v.model_copy(update={"server": servers.get(name)})
            for name, v in experiment.variants.items()
        }
    if experiment.servers is not None:
        named = engines.named_servers(experiment.engine, listed(experiment.servers), directory)
        changed["servers"] = ",".join(n.text for n in named)
    return experiment.model_copy(update=changed) if changed else experiment


def as_variants(experiment: Experiment) -> Experiment:
    """Returns the experiment with a variant for each of its ``servers``. Raises :class:`UsageError`."""
    experiment = with_directory(experiment, Path.cwd())
    if experiment.servers is not None:
        if experiment.variants:
            raise UsageError(
                "--servers makes the variants, and the recipe has variants of its own",
                'give each of them a server: server = "17" below [variants.NAME]',
            )
        named = engines.named_servers(experiment.engine, listed(experiment.servers), Path.cwd())
        if len(named) < 2:
            raise UsageError(f"--servers {experiment.servers}: fewer than two servers", _ONE)
        variants = {n.name: VariantSpec(server=n.text) for n in named}
        experiment = experiment.model_copy(update={"variants": variants, "servers": None})
    _check_settings(experiment)
    return experiment


def _check_settings(experiment: Experiment) -> None:
    """Raises :class:`UsageError` if servers are to get the same settings, and there are not several that
    dbdyno starts."""
    if experiment.server_settings != "same":
        return
    servers = [v.server for v in experiment.variants.values()]
    if not any(servers):
        raise UsageError("--settings same is for several servers, and none was named", "add --servers 17,18")
    if running := [s for s in servers if s is not None and is_dsn(s)]:
        raise UsageError(
            f"--settings same: dbdyno changes no settings of a server that runs already: {running[0]}",
            "leave it out, or name versions or directories of programs",
        )


def programs_by_server(experiment: Experiment) -> dict[str | None, str]:
    """Returns the directory of the programs of each server that variants name, without those that cannot be
    used here; empty if they name none."""
    texts = {v.server for v in experiment.variants.values()}
    places: dict[str | None, str] = {}
    for text in texts if any(texts) else ():
        with suppress(DbdynoError):
            if (place := engines.server_programs(experiment.engine, text)) is not None:
                places[text] = place
    return places


def impossible_variants(plan: Plan, *, all_variants: bool) -> Sequence[str]:
    """Returns a sentence for each variant whose server is not installed here. Raises the error with which the
    run would end, if too few others remain to compare."""
    refused: dict[str, DbdynoError] = {}
    for variant, server in plan.servers.items():
        try:
            engines.server_programs(plan.experiment.engine, server)
        except DbdynoError as e:
            refused[variant] = e
    check_comparable(plan, refused, all_variants=all_variants)
    return [
        f"Variant {name} is not possible here: {'; '.join(filter(None, (e.message, e.cure)))}"
        for name, e in refused.items()
    ]


def check_alone(plan: Plan, given: Mapping[str, object]) -> None:
    """Raises :class:`UsageError` for options that name one server if variants name theirs. ``given``: values
    of options by name; None if not given."""
    for name, option in _ONE_SERVER.items():
        if plan.servers and given.get(name) is not None:
            raise UsageError(
                f"the variants name their servers, and {option} names another", f"leave out {option}"
            )
    if plan.servers and plan.experiment.cluster is not None:
        raise UsageError(
            "servers that variants name are driven from this host, and --cluster drives from others",
            "leave out --cluster",
        )
