"""Room ``web``: the lab, a local web application over the runs of a store.

It asks ``conduct`` and shows the documents of ``present``: it has no figure, sentence or criterion of its
own. Its libraries are the extra ``dbdyno[web]``.
"""

from __future__ import annotations

from importlib.util import find_spec

from dbdyno.model.errors import UsageError

_LIBRARIES = ("starlette", "uvicorn")


def check_installed() -> None:
    """Raises :class:`UsageError` if a library of the extra is missing."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(f"dbdyno web needs {' and '.join(missing)}", "pip install 'dbdyno[web]'")
