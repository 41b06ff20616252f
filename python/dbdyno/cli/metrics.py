"""``dbdyno metrics``: the metrics that ``--metrics`` serves, and a dashboard for them."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import click

from dbdyno.cli.options import json_option, print_json
from dbdyno.model.errors import UsageError

_COLUMNS = 80


@click.group()
def metrics() -> None:
    """List the metrics for Prometheus, or print a Grafana dashboard.

    dbdyno observe --metrics 127.0.0.1:9187 serves them, and so does dbdyno run (dbdyno help metrics).

    \b
    Examples:
      dbdyno metrics list
      dbdyno metrics dashboard -o dbdyno.json
      dbdyno observe --metrics 127.0.0.1:9187 --window 10s
    """


@metrics.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """List all metrics: name, kind, labels, meaning.

    \b
    Examples:
      dbdyno metrics list
      dbdyno metrics list --json | jq -r '.metrics[].series[]'
    """
    from dbdyno.present.metrics.records import METRICS

    if as_json:
        keys = ("name", "kind", "unit", "labels", "help")
        records = [
            {**{key: getattr(m, key) for key in keys}, "series": m.samples, "table": m.source}
            for m in METRICS
        ]
        print_json({"metrics": records})
        return
    for metric in METRICS:
        name = metric.name if metric.kind == "histogram" else metric.samples[0]
        click.echo(f"{name} ({metric.kind})")
        labels = f"By {', '.join(metric.labels)}."
        click.echo(
            textwrap.fill(f"{metric.help} {labels}", _COLUMNS, initial_indent="  ", subsequent_indent="  ")
        )


@metrics.command("dashboard")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the dashboard to this file.  [default: standard output]",
)
def dashboard_command(output: Path | None) -> None:
    """Print a Grafana dashboard for the metrics, as JSON.

    Import it in Grafana under Dashboards, New, Import.

    \b
    Examples:
      dbdyno metrics dashboard -o dbdyno.json
    """
    from dbdyno.present.metrics.dashboard import dashboard

    text = json.dumps(dashboard(), indent=1) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as e:
        raise UsageError(f"cannot write {output}: {e.strerror}", "name another file: -o FILE") from None
    click.echo(f"{output}")
