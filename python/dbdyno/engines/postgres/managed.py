"""Managed services, known by the role of their administrators.

That role is no superuser, nobody logs in to the server's host, and only the service changes settings, so
other cures than elsewhere help.
"""

from __future__ import annotations

from typing import NamedTuple


class Service(NamedTuple):
    """A service; ``settings`` is where it lets its customers change settings of the server."""

    name: str
    role: str
    settings: str

    def change(self, setting: str, value: str) -> str:
        """Returns how to set a value, in words."""
        return f"in {self.settings}: {setting} = {value}"


_SERVICES = {
    service.role: service
    for service in (
        Service("Amazon RDS or Aurora", "rds_superuser", "the instance's parameter group"),
        Service("Cloud SQL", "cloudsqlsuperuser", "the instance's database flags"),
        Service("AlloyDB", "alloydbsuperuser", "the instance's database flags"),
        Service("Azure Database for PostgreSQL", "azure_pg_admin", "the server parameters in the portal"),
    )
}

ROLES = list(_SERVICES)


def named(role: str | None) -> Service | None:
    """Returns the service whose administrators have this role."""
    return _SERVICES.get(role or "")
