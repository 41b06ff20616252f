"""The Grafana dashboard: panels from ``dashboard.toml``, and variables to select job, instance and server."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from dbdyno.present.metrics.records import SERVER

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _HEIGHT = 24, 8
_SCHEMA = 39  # of Grafana 10.4; later versions convert it
_OF_TARGET = 'job=~"$job",instance=~"$instance"'
_SELECTED = f'{_OF_TARGET},{SERVER}=~"$server"'
_TYPES = {
    "stack": "timeseries",
    "lines": "timeseries",
    "heatmap": "heatmap",
    "states": "state-timeline",
    "table": "table",
}
_NO_SERVER = "dbdyno_build_info"


def dashboard() -> dict[str, Any]:
    """Returns the document that Grafana imports."""
    content = tomllib.loads((files(__package__) / "dashboard.toml").read_text(encoding="utf-8"))
    return {
        "title": content["title"],
        "description": content["description"],
        "uid": "dbdyno-sessions",
        "tags": ["dbdyno", "postgresql"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,  # one crosshair for all panels
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": _variables()},
        "panels": list(_panels(content["row"])),
    }


def queries() -> Iterator[str]:
    """Yields all queries of the dashboard, those of its variables included."""
    document = dashboard()
    for panel in document["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    by_label = (
        ("job", "label_values(dbdyno_build_info, job)"),
        ("instance", 'label_values(dbdyno_build_info{job=~"$job"}, instance)'),
        (SERVER, f"label_values(dbdyno_windows_total{{{_OF_TARGET}}}, {SERVER})"),
    )
    spans = ("30s", "1m", "2m", "5m", "10m", "30m", "1h")
    return [
        source,
        *(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": query, "refId": name},
                "refresh": 2,  # whenever the time range changes
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in by_label
        ),
        {
            "name": "range",
            "label": "Range of rates",
            "type": "custom",
            "query": ",".join(spans),
            "options": [{"text": s, "value": s, "selected": s == "2m"} for s in spans],
            "current": {"text": "2m", "value": "2m"},
        },
    ]


def _panels(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    number = y = 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": row["title"], "gridPos": place, "panels": []}
        y, x = y + 1, 0
        for panel in row["panel"]:
            number += 1
            if x + panel["width"] > _COLUMNS:
                x, y = 0, y + _HEIGHT
            yield _panel(panel, number, {"x": x, "y": y, "w": panel["width"], "h": _HEIGHT})
            x += panel["width"]
        y += _HEIGHT


def _panel(panel: dict[str, Any], number: int, place: dict[str, int]) -> dict[str, Any]:
    kind = panel["kind"]
    formats = {"heatmap": "heatmap", "table": "table"}
    custom: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if kind in ("stack", "lines"):
        stacking = {"mode": "normal"} if kind == "stack" else {"mode": "none"}
        custom = {"stacking": stacking, "fillOpacity": 60 if kind == "stack" else 0, "showPoints": "never"}
        options = {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list"}}
    elif kind == "heatmap":
        options = {"calculate": False, "yAxis": {"unit": panel["unit"]}, "cellGap": 0}
    return {
        "id": number,
        "type": _TYPES[kind],
        "title": panel["title"],
        "description": panel["description"],
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": None, "custom": custom}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": _SOURCE,
                "expr": _selected(query),
                "legendFormat": legend or "__auto",
                "format": formats.get(kind, "time_series"),
                "instant": kind == "table",
                "range": kind != "table",
            }
            for n, (query, legend) in enumerate(panel["query"])
        ],
    }


_PER_SECOND = (
    r"rate(\1{\2}[$range]) / on (job, instance, server) group_left "
    "rate(dbdyno_observed_seconds_total{}[$range])"
)


def _selected(query: str) -> str:
    """Returns the query with the selection in all its braces. ``per_second`` of a counter becomes its growth
    over that of the observed time, so that gaps between windows do not lower it."""
    query = re.sub(r"per_second\((\w+)\{([^{}]*)\}\)", _PER_SECOND, query)

    def braces(match: re.Match[str]) -> str:
        name, more = match.groups()
        selection = _OF_TARGET if name == _NO_SERVER else _SELECTED
        return f"{name}{{{selection}{',' if more else ''}{more}}}"

    return re.sub(r"(\w+)\{([^{}]*)\}", braces, query)
