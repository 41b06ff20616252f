"""Reading a machine's files below a root that may be ``/`` or a recorded tree. What is not there is None."""

from __future__ import annotations

from pathlib import Path


def text(root: Path, path: str) -> str | None:
    """The stripped text of ``root/path``; None where it is absent or may not be read."""
    try:
        return (root / path).read_text(errors="replace").strip()
    except OSError:
        return None


def integer(root: Path, path: str) -> int | None:
    """A file that holds one integer; None also where it holds something else."""
    found = text(root, path)
    try:
        return None if found is None else int(found)
    except ValueError:
        return None


def cpu_list(listed: str) -> tuple[int, ...]:
    """``'0-2,5'`` -> (0, 1, 2, 5): the kernel's list format (cpuset(7), "List format")."""
    cpus: list[int] = []
    for part in filter(None, listed.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def fields(listed: str | None, separator: str = ":") -> dict[str, str]:
    """``key: value`` lines; of a key that comes again the first counts."""
    found: dict[str, str] = {}
    for line in (listed or "").splitlines():
        key, _, value = line.partition(separator)
        found.setdefault(key.strip(), value.strip())
    return found
