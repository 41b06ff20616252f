"""Defines colours: one per meaning, the same in all charts, distinct for colour-blind eyes, light and
dark.

The hues follow Okabe and Ito (2008, "Color Universal Design"). A chart names a colour ``var(--x)``; the
page substitutes the value of the current theme.
"""

from __future__ import annotations

from collections.abc import Iterable

# name -> (light, dark)
_COLOURS = {
    # the page
    "page": ("#f5f6f8", "#101418"),
    "card": ("#ffffff", "#181d23"),
    "line": ("#dde1e6", "#2d353e"),
    "text": ("#1b2026", "#e6eaee"),
    "muted": ("#5a6470", "#9aa5b1"),
    "accent": ("#0067a8", "#62b5f0"),
    "good": ("#006e50", "#3cc79b"),
    "note": ("#0067a8", "#62b5f0"),
    "warning": ("#9a4a00", "#f0a050"),
    "invalid": ("#b3261e", "#ff8a80"),
    # accounts
    "run": ("#0072b2", "#3d9bdc"),
    "run-user": ("#0072b2", "#3d9bdc"),
    "run-system": ("#56b4e9", "#9ad6f7"),
    "run-whole": ("#1f3f73", "#2a62a6"),
    "runq": ("#d55e00", "#ee7d2b"),
    "sleep-1": ("#a0568a", "#cf84b6"),
    "sleep-2": ("#009e73", "#23b98e"),
    "sleep-3": ("#c9a400", "#e0c341"),
    "sleep-4": ("#6f5fb0", "#9a8be0"),
    "sleep-5": ("#7a6a3f", "#b3a06b"),
    "sleep-6": ("#3f8f93", "#5fb9bd"),
    "sleep-other": ("#8d7b8a", "#a896a5"),
    "sleep-unseen": ("#c9b3d9", "#6d5a80"),
    "runq-whole": ("#f0a76f", "#b3591a"),
    "rest": ("#b7c9a8", "#6e8560"),
    "pool-queue": ("#f0a6a0", "#a8524c"),
    "client": ("#c3cad2", "#56616d"),
    "unaccounted": ("#3f4752", "#c9d1da"),
    # series and sources, in their order
    "series-1": ("#0072b2", "#4ba7e5"),
    "series-2": ("#d55e00", "#ee7d2b"),
    "series-3": ("#009e73", "#23b98e"),
    "series-4": ("#a0568a", "#cf84b6"),
    "series-5": ("#b58f00", "#e0c341"),
    "series-6": ("#3f4752", "#c9d1da"),
    "series-7": ("#56b4e9", "#9ad6f7"),
    "series-8": ("#7a6a3f", "#b3a06b"),
    # counts of a heat map, from few to many: one hue, lighter or darker
    "heat-1": ("#bcd9ef", "#2c4d6b"),
    "heat-2": ("#8fc1e3", "#356c96"),
    "heat-3": ("#5ba3d0", "#418bc0"),
    "heat-4": ("#2b7fb8", "#66abd9"),
    "heat-5": ("#0b5a90", "#9bcfee"),
    "heat-6": ("#08335a", "#e0f2ff"),
    # statistics of the response time
    "stat-mean": ("#1b2026", "#e6eaee"),
    "stat-p50": ("#0072b2", "#4ba7e5"),
    "stat-p95": ("#b58f00", "#e0c341"),
    "stat-p99": ("#d55e00", "#ee7d2b"),
}
# Families of waits with a fixed hue, so that two reports agree; further classes take the spare ones.
_FAMILIES = {
    "lock": "sleep-1",
    "io": "sleep-2",
    "latch": "sleep-3",
    "other": "sleep-4",
    "timer": "sleep-5",
    "asleep": "sleep-other",
    "no wait event": "sleep-other",
    "active without wait event": "sleep-other",
    "reason unknown": "sleep-unseen",
}
_SPARE = ("sleep-6", "sleep-5", "sleep-4", "sleep-1", "sleep-2", "sleep-3")
SERIES = tuple(n for n in _COLOURS if n.startswith("series-"))
HEAT = tuple(n for n in _COLOURS if n.startswith("heat-"))


def css() -> str:
    """Returns the custom properties of both themes.

    ``data-theme`` on the root overrides the choice of the system. Paper is light.
    """
    light, dark = (";".join(f"--{n}:{c[i]}" for n, c in _COLOURS.items()) for i in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}"
        "@media screen and (prefers-color-scheme:dark)"
        f"{{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}"
    )


def dark(name: str) -> str:
    """Returns the colour as ``#rrggbb`` for a dark ground, for media without custom properties."""
    return _COLOURS[name][1]


def light(name: str) -> str:
    """Returns the colour as ``#rrggbb`` for a light ground, for media without themes."""
    return _COLOURS[name][0]


def var(name: str) -> str:
    """Returns the reference to a colour in charts and styles."""
    return f"var(--{name})"


def account_colours(families: Iterable[str]) -> dict[str, str]:
    """Returns the name of a colour per family: an account, a family of waits or a further wait class."""
    names: dict[str, str | None] = {}
    for family in dict.fromkeys(families):
        own = family.replace(".", "-")
        names[family] = own if own in _COLOURS else _FAMILIES.get(family)
    spare = iter([s for s in _SPARE if s not in names.values()])
    return {family: name or next(spare, "sleep-other") for family, name in names.items()}


def hatched(name: str) -> str:
    """Returns the fill of time in the run queue under a wait label: stripes of that label's colour on CPU
    WAIT's."""
    return f"url(#hatch-{name})"


def hatch_css(name: str) -> str:
    """Returns the same stripes as a CSS gradient."""
    return f"repeating-linear-gradient(135deg,{var('runq')} 0 2px,{var(name)} 2px 5px)"


def hatches() -> list[str]:
    """Returns the names of colours that can be hatched: those of wait classes and of the client."""
    return [n for n in _COLOURS if n.startswith("sleep-") or n == "client"]
