"""The charts' JavaScript (Vega, Vega-Lite, vega-embed) as one text, from vl-convert's own copies: no network.

Bundling takes about 1.6 s, so the result is kept in the cache directory, named after vl-convert's version.
A cache that cannot be used costs time, never the report.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

_END = "\n/* dbdyno: complete */\n"  # a cached file without it was cut short


def cache_path() -> Path:
    """Where the bundle is kept ($XDG_CACHE_HOME, else ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dbdyno" / f"vega-{version('vl-convert-python')}.js"


def begin() -> Future[str]:
    """Starts getting the bundle beside other work: vl-convert does not hold Python's lock meanwhile."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(bundle)
    finally:
        pool.shutdown(wait=False)


def bundle() -> str:
    """The bundle, safe inside a ``<script>`` element."""
    try:
        path: Path | None = cache_path()
    except RuntimeError:  # no home directory
        path = None
    cached = _read(path)
    return cached if cached is not None else _make(path)


def _read(path: Path | None) -> str | None:
    try:
        text = path.read_text("utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.endswith(_END) else None


def _make(path: Path | None) -> str:
    import vl_convert

    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = made.replace("</script", "<\\/script").replace("<!--", "<\\!--") + _END
    if path is not None:
        _keep(path, text)
    return text


def _keep(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except OSError:
        return


if (
    __name__ == "__main__"
):  # `python -m dbdyno.present.bundle` fills the cache, so that no report waits for it
    bundle()
