"""Recorded machines as directory trees: `tests/golden/machines`."""

import contextlib
import os
import re
from pathlib import Path

from tests import clusters

from dbdyno.observe.cpus import cpu_list

GOLDEN = Path(__file__).parents[1] / "golden" / "machines"
BIG = "xeon-e7-4850-160cpu"
_MANY = re.compile(r"(.*)\[([-,\d]+)\](.*) = (.*)")


def golden(name: str) -> Path:
    """A machine laid out once for all tests of all workers (up to 3,300 files): nobody writes there."""
    wanted = clusters.shared("machines") / name
    if not wanted.exists():
        making = wanted.with_name(f"making-{name}-{os.getpid()}")
        big_numa_machine(making) if name == BIG else unpack(name, making)
        with contextlib.suppress(OSError):  # another worker was first
            making.rename(wanted)
    return wanted


def unpack(name: str, into: Path) -> Path:
    """Lays out ``NAME.tree``; lines before the first ``==`` are its head.

    ``== path`` is followed by the file's text; ``== path = text`` is a file of one line.
    ``== cpu[0-3]/core_id = 0 0 1 1`` is a file of each number with its word, or all with the only word.
    """
    for section in f"\n{(GOLDEN / f'{name}.tree').read_text()}".split("\n== ")[1:]:
        path, _, text = section.partition("\n")
        for file, content in _files(path) if " = " in path else [(path, text)]:
            _write(into / file, content)
    return into


def _files(line: str) -> list[tuple[str, str]]:
    many = _MANY.fullmatch(line)
    if many is None:
        path, _, text = line.partition(" = ")
        return [(path, text)]
    before, numbers, after, text = many.groups()
    cpus, words = cpu_list(numbers), text.split(" ")
    if len(words) == 1:
        words *= len(cpus)
    return [(f"{before}{n}{after}", word) for n, word in zip(cpus, words, strict=True)]


def big_numa_machine(into: Path) -> Path:
    """The machine of 8 nodes and 160 CPUs, from the rows of lscpu and cpu_topology as they were printed."""
    rows = printed_rows()
    places = list(zip(rows["physical id"].split(), rows["core id"].split(), strict=True))
    _write(into / "sys/devices/system/cpu/online", rows["On-line CPU(s) list"])
    _write(into / "sys/devices/system/cpu/present", rows["On-line CPU(s) list"])
    _write(into / "sys/devices/system/cpu/possible", rows["On-line CPU(s) list"])
    for n, place in enumerate(places):
        core = [i for i, other in enumerate(places) if other == place]
        package = [i for i, other in enumerate(places) if other[0] == place[0]]
        _lay_out_cpu(into / f"sys/devices/system/cpu/cpu{n}", place, core, package, rows)
    nodes = sorted(k.removesuffix(" CPU(s)") for k in rows if re.match(r"NUMA node\d", k))
    _write(into / "sys/devices/system/node/online", f"0-{len(nodes) - 1}")
    for node in nodes:
        cpus = rows[f"{node} CPU(s)"]
        _write(into / f"sys/devices/system/node/{node.removeprefix('NUMA ')}/cpulist", cpus)
    words = [
        f"processor\t: {n}\nmodel name\t: {rows['model name']}\nflags\t\t: fpu vmx\n" for n in range(160)
    ]
    _write(into / "proc/cpuinfo", "\n".join(words))
    _write(into / "proc/self/status", f"Cpus_allowed_list:\t{rows['NUMA node0 CPU(s)']}")
    return into


def _lay_out_cpu(
    cpu: Path, place: tuple[str, str], core: list[int], package: list[int], rows: dict[str, str]
) -> None:
    _write(cpu / "topology/physical_package_id", place[0])
    _write(cpu / "topology/core_id", place[1])
    _write(cpu / "topology/thread_siblings_list", _join(core))
    _write(cpu / "topology/core_siblings_list", _join(package))
    caches = {"L1d": (1, "Data", core), "L1i": (1, "Instruction", core)}
    caches |= {"L2": (2, "Unified", core), "L3": (3, "Unified", package)}
    for i, (name, (level, kind, shared)) in enumerate(caches.items()):
        files = {
            "level": level,
            "type": kind,
            "size": rows[f"{name} cache"],
            "shared_cpu_list": _join(shared),
        }
        for file, text in files.items():
            _write(cpu / f"cache/index{i}/{file}", str(text))


def printed_rows() -> dict[str, str]:
    return dict(_row(line) for line in printed_lines())


def printed_lines() -> list[str]:
    return (GOLDEN / "xeon-e7-4850-160cpu.txt").read_text().splitlines()


def add_masks(root: Path) -> None:
    """Writes the mask beside each list of CPUs: the kernel has both, old readers (lscpu) know masks only."""
    for listed in root.glob("sys/devices/system/cpu/cpu*/topology/*_list"):
        _write(listed.with_name(listed.name.removesuffix("_list")), _mask(listed))
    for listed in root.glob("sys/devices/system/cpu/cpu*/cache/*/shared_cpu_list"):
        _write(listed.with_name("shared_cpu_map"), _mask(listed))
    for listed in root.glob("sys/devices/system/node/node*/cpulist"):
        _write(listed.with_name("cpumap"), _mask(listed))


def _mask(listed: Path) -> str:
    """Words of 32 bits, the highest first; as many as 256 CPUs need, as the kernel prints them."""
    bits = sum(1 << n for n in cpu_list(listed.read_text()))
    return ",".join(f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(224, -1, -32))


def _row(line: str) -> tuple[str, str]:
    """``NUMA node0 CPU(s):   1-10`` and ``core id   (# assigned to a core)   0 0 1`` alike."""
    if ":" in line:
        key, _, value = line.partition(":")
        return key.strip(), value.strip()
    key, _, value = line.partition("(")
    return key.strip(), value.partition(")")[2].strip()


def _join(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
