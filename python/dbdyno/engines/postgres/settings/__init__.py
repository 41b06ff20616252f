"""Settings of a server as a variant asks for them: checked, put in force, put back."""

from __future__ import annotations

from dbdyno.engines.postgres.settings.keeper import Keeper
from dbdyno.engines.postgres.settings.values import Site

__all__ = ["Keeper", "Site"]
