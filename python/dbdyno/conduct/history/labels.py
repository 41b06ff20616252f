"""Names, tags and notes of runs: which ones can be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dbdyno.model.errors import UsageError
from dbdyno.model.text.visible import one_line, visible

_LONGEST_LABEL, _LONGEST_NOTE = 60, 2_000  # characters
_RESERVED = re.compile(r"last|.*~.*|-.*|\d{8}-\d{6}-.*", re.DOTALL)


def labels_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``name``, ``tags`` and ``note`` as far as they were given. Raises :class:`UsageError` if one
    cannot be used."""
    tags = tuple(dict.fromkeys(tag.strip() for tag in given["tags"]))
    labels = {k: given[k].strip() for k in ("name", "note") if given[k] is not None}
    for kind, text in (*(("tag", t) for t in tags), ("name", labels.get("name", "-"))):
        if len(text) > _LONGEST_LABEL or one_line(text) != text or (kind == "tag" and not text):
            raise UsageError(f"{kind} {text[:80]!r}", f"one line of at most {_LONGEST_LABEL} characters")
    if _RESERVED.fullmatch(name := labels.get("name", "")):
        raise UsageError(f"name {name!r} could be taken for something else", "not last, no ~, no id of a run")
    if (note := labels.get("note", "")) != visible(note):
        raise UsageError("the note has characters that a terminal would obey, or not show", "write it anew")
    if len(note) > _LONGEST_NOTE:
        raise UsageError("the note is too long", f"at most {_LONGEST_NOTE:,} characters")
    return labels | ({"tags": tags} if tags else {})
