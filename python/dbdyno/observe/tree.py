"""Reading a machine's files below a root that may be ``/`` or a recorded tree. What is not there is None."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dbdyno.model import cpu_lists
from dbdyno.model.errors import UsageError


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
    return tuple(sorted(cpu_lists.of_kernel(listed)))


def cpu_mask(mask: str) -> tuple[int, ...]:
    """``'3,00000003'`` -> (0, 1, 32, 33): words of 32 bits in hexadecimal, the highest first (cpuset(7))."""
    bits = int(mask.strip().replace(",", "") or "0", 16)
    return tuple(n for n in range(bits.bit_length()) if bits >> n & 1)


def cpus_listed(root: Path, *files: str, masks: Iterable[str] = ()) -> tuple[int, ...] | None:
    """CPUs that the first readable one of ``files`` holds, else of ``masks``. None: nothing tells."""
    for paths, parse in ((files, cpu_list), (tuple(masks), cpu_mask)):
        for path in paths:
            try:
                if (found := text(root, path)) is not None:
                    return parse(found)
            except (ValueError, UsageError):
                continue
    return None


def numbered(root: Path, folder: str, prefix: str) -> tuple[int, ...]:
    """Numbers n of what is called ``PREFIXn`` in a folder; empty where it is absent or may not be listed."""
    try:
        names = [p.name.removeprefix(prefix) for p in (root / folder).iterdir() if p.name.startswith(prefix)]
    except OSError:
        return ()
    return tuple(sorted(int(n) for n in names if n.isdecimal()))


def fields(listed: str | None, separator: str = ":") -> dict[str, str]:
    """``key: value`` lines; of a key that comes again the first counts."""
    found: dict[str, str] = {}
    for line in (listed or "").splitlines():
        key, _, value = line.partition(separator)
        found.setdefault(key.strip(), value.strip())
    return found
