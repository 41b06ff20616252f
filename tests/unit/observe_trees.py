"""Recorded machines as directory trees: `tests/golden/machines`."""

from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "machines"


def unpack(name: str, into: Path) -> Path:
    """Lays out ``NAME.tree``: ``== path``, then the file's text; lines before the first are its head."""
    for section in f"\n{(GOLDEN / f'{name}.tree').read_text()}".split("\n== ")[1:]:
        path, _, text = section.partition("\n")
        _write(into / path, text)
    return into


def big_numa_machine(into: Path) -> Path:
    """The machine of 8 nodes and 160 CPUs, from the rows of lscpu and cpu_topology as they were printed."""
    rows = dict(_row(line) for line in (GOLDEN / "xeon-e7-4850-160cpu.txt").read_text().splitlines())
    sockets, cores = rows["physical id"].split(), rows["core id"].split()
    places = list(zip(sockets, cores, strict=True))
    cpu = into / "sys/devices/system/cpu"
    for n, place in enumerate(places):
        siblings = ",".join(str(i) for i, other in enumerate(places) if other == place)
        _write(cpu / f"cpu{n}/topology/physical_package_id", place[0])
        _write(cpu / f"cpu{n}/topology/core_id", place[1])
        _write(cpu / f"cpu{n}/topology/thread_siblings_list", siblings)
    _write(cpu / "online", rows["On-line CPU(s) list"])
    _write(into / "sys/devices/system/node/online", f"0-{sum(k.startswith('NUMA node') for k in rows) - 2}")
    blocks = [f"processor\t: {n}\nmodel name\t: {rows['model name']}\n" for n in range(len(places))]
    _write(into / "proc/cpuinfo", "\n".join(blocks))
    _write(into / "proc/self/status", f"Cpus_allowed_list:\t{rows['NUMA node0 CPU(s)']}")
    return into


def _row(line: str) -> tuple[str, str]:
    """``NUMA node0 CPU(s):   1-10`` and ``core id   (# assigned to a core)   0 0 1`` alike."""
    if ":" in line:
        key, _, value = line.partition(":")
        return key.strip(), value.strip()
    key, _, value = line.partition("(")
    return key.strip(), value.partition(")")[2].strip()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
