"""Creates the loads of the core's driver, for all engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from dbdyno import _core
from dbdyno.model.engine.protocols import Load


def local_load(engine: str, spec: Mapping[str, Any]) -> Load:
    """Creates a load that this process drives."""
    return cast(Load, _core.Load(engine, json.dumps(spec)))
