"""Fields of models that are options of commands, too."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dbdyno.model.plan.flags import FLAGS


def flagged(key: str, **more: Any) -> Any:
    """Returns the field of a flag, with its default, its range and its help as the description.

    ``more``: arguments of pydantic's ``Field`` that hold over these. A text below the field holds over the
    help where a recipe's schema describes the key.
    """
    flag = FLAGS[key]
    bounds = {name: bound for name, bound in (("ge", flag.least), ("le", flag.most)) if bound is not None}
    given = {"description": flag.text, **bounds, **more}
    return Field(**given if "default_factory" in more else {"default": flag.default, **given})
