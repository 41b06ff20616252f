"""The one place where engines make the loads of the core's driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from dbdyno import _core
from dbdyno.model.engine.protocols import Load


def here(engine: str, spec: Mapping[str, Any]) -> Load:
    """A load driven by this process."""
    return cast(Load, _core.Load(engine, json.dumps(spec)))
