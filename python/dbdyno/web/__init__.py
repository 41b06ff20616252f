"""Room ``web``: the lab, a local web application over the runs of a store.

It asks ``conduct`` and shows the documents of ``present``: it has no figure, sentence or criterion of its
own. Its libraries are the extra ``dbdyno[web]``.
"""

from __future__ import annotations

from dbdyno.kernel.extras import check_extra


def check_installed() -> None:
    """Raises :class:`dbdyno.model.errors.NotInstalled` if a library of the extra is missing."""
    check_extra("web", "dbdyno web", "starlette", "uvicorn")
