"""Colours: one a meaning, the same in all charts, apart for colour-blind eyes, in a light and a dark set.

The hues follow Okabe and Ito (2008, "Color Universal Design"). A chart names a colour ``var(--x)``; the
page puts the value of the theme in force in its place.
"""

from __future__ import annotations

from dbdyno.report.accounts import OTHER_SLEEP, Account

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
    "runq": ("#d55e00", "#ee7d2b"),
    "sleep-1": ("#a0568a", "#cf84b6"),
    "sleep-2": ("#009e73", "#23b98e"),
    "sleep-3": ("#c9a400", "#e0c341"),
    "sleep-4": ("#6f5fb0", "#9a8be0"),
    "sleep-5": ("#7a6a3f", "#b3a06b"),
    "sleep-other": ("#8d7b8a", "#a896a5"),
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
    # statistics of the response time
    "stat-mean": ("#1b2026", "#e6eaee"),
    "stat-p50": ("#0072b2", "#4ba7e5"),
    "stat-p95": ("#b58f00", "#e0c341"),
    "stat-p99": ("#d55e00", "#ee7d2b"),
}
# The engine's classes with a hue of their own, so that two reports agree; further classes take what is left.
_CLASSES = {
    "Lock": "sleep-1",
    "IO": "sleep-2",
    "LWLock": "sleep-3",
    "IPC": "sleep-4",
    OTHER_SLEEP: "sleep-other",
}
_SPARE = ("sleep-5", "sleep-4", "sleep-2", "sleep-1", "sleep-3")
SERIES = tuple(n for n in _COLOURS if n.startswith("series-"))


def css() -> str:
    """The custom properties of both themes; ``data-theme`` on the root overrides the system's choice."""
    light, dark = (";".join(f"--{n}:{c[i]}" for n, c in _COLOURS.items()) for i in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
    )


def light(name: str) -> str:
    """The colour as ``#rrggbb`` on a white ground, for what knows no themes."""
    return _COLOURS[name][0]


def var(name: str) -> str:
    """A colour as charts and styles write it."""
    return f"var(--{name})"


def account_colours(accounts: list[Account]) -> dict[str, str]:
    """Account key -> colour."""
    families = [a.family for a in accounts if a.family.startswith("sleep:")]
    names = {f: _CLASSES.get(f.removeprefix("sleep:")) for f in families}
    spare = iter([s for s in _SPARE if s not in names.values()])
    for family, name in names.items():
        names[family] = name or next(spare, "sleep-other")
    return {a.key: var(_account(a, names)) for a in accounts}


def shade(account: Account) -> float:
    """Opacity: the events of one wait class differ by it."""
    return (1.0, 0.72, 0.5, 0.34)[min(account.shade, 3)]


def _account(account: Account, sleeps: dict[str, str | None]) -> str:
    name = sleeps.get(account.family) or account.family.replace(".", "-")
    return name if name in _COLOURS else "sleep-other"
