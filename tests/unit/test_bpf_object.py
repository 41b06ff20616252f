"""The BPF objects in the tree are what their sources compile to, and their readers read them right."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
CRATE = ROOT / "crates" / "dyno-trace"
OBJECT = CRATE / "bpf" / "sched.bpf.o"
WEAK = CRATE / "bpf" / "sched-weakly-ordered.bpf.o"
LABEL = ROOT / "crates" / "dyno-profile" / "bpf" / "label.bpf.o"
OBJECTS = pytest.mark.parametrize("committed", [OBJECT, WEAK, LABEL], ids=["sched", "weak", "label"])
SHARED = ("wait", "slot", "call", "calls", "places", "control")
PROGRAMS = {
    "sched_switch",
    "sched_wakeup",
    "sched_process_fork",
    "sys_enter",
    "sys_exit",
    "look_throttled",
    "on_tick",
    "find_wait",
    "add_duration",
    "queue_of",
    "note_end",
}
MAPS = {"control", "places", "slots", "calls", "vacant", "ring"}


class Object(NamedTuple):
    """Parts of an object that are alike from any compiler."""

    sections: set[str]
    programs: set[str]
    maps: set[str]
    license: bytes
    structs: dict[str, tuple[int, tuple[str, ...]]]  # by name: size in bytes, members in order


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


def _sections(data: bytes) -> tuple[list[str], list[tuple[int, ...]], list[bytes]]:
    """Names, headers and bodies. ELF-64, little-endian: elf(5)."""
    assert data[:6] == b"\x7fELF\x02\x01"
    start, size, count, names_at = *struct.unpack_from("<40xQ", data), *struct.unpack_from("<58xHHH", data)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + n * size) for n in range(count)]
    bodies = [data[h[4] : h[4] + h[5]] for h in headers]
    return [_text(bodies[names_at], h[0]) for h in headers], headers, bodies


def section(data: bytes, name: str) -> bytes:
    names, _, bodies = _sections(data)
    return bodies[names.index(name)]


def read(data: bytes) -> Object:
    names, headers, bodies = _sections(data)
    by_name = dict(zip(names, bodies, strict=True))
    symbols = list(struct.iter_unpack("<IBBHQQ", by_name[".symtab"]))
    strings = bodies[headers[names.index(".symtab")][6]]
    maps = names.index(".maps")
    functions, variables = 2, 1
    return Object(
        set(names) - {"", ".llvm_addrsig"},
        {_text(strings, s[0]) for s in symbols if s[1] & 15 == functions},
        {_text(strings, s[0]) for s in symbols if s[1] & 15 == variables and s[3] == maps},
        by_name["license"],
        _structs(by_name[".BTF"]),
    )


# bytes after a type's first twelve, by kind; other kinds have as many as `vlen` gives, or none:
# Documentation/bpf/btf.rst
_INT, _ARRAY, _STRUCT, _UNION, _ENUM, _FUNC_PROTO, _VAR, _DATASEC, _TAG, _ENUM64 = (
    1,
    3,
    4,
    5,
    6,
    13,
    14,
    15,
    17,
    19,
)
_FIXED = {_INT: 4, _ARRAY: 12, _VAR: 4, _TAG: 4}
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _FUNC_PROTO: 8, _DATASEC: 12, _ENUM64: 12}


def _structs(btf: bytes) -> dict[str, tuple[int, tuple[str, ...]]]:
    header, types, types_bytes, strings, strings_bytes = struct.unpack_from("<4xIIIII", btf)
    text = btf[header + strings : header + strings + strings_bytes]
    structs = {}
    at, end = header + types, header + types + types_bytes
    while at < end:
        name, info, size = struct.unpack_from("<III", btf, at)
        kind, count = info >> 24 & 31, info & 0xFFFF
        at += 12
        if kind == _STRUCT and _text(text, name) in SHARED:
            members = [struct.unpack_from("<III", btf, at + 12 * n)[0] for n in range(count)]
            structs[_text(text, name)] = (size, tuple(_text(text, m) for m in members))
        at += _FIXED.get(kind, 0) + _EACH.get(kind, 0) * count
    return structs


@OBJECTS
def test_the_object_is_what_its_source_compiles_to(committed: Path, tmp_path: Path) -> None:
    if shutil.which("clang") is None or shutil.which("llvm-strip") is None:
        assert not os.environ.get("CI"), "no clang here: .ci/run installs it"
        pytest.skip("no clang here: apt-get install clang llvm libbpf-dev")
    compiled = tmp_path / committed.name
    subprocess.run([str(ROOT / "tools" / "build_bpf.sh"), str(tmp_path)], check=True)
    recorded, ours = (o.with_name(o.name + ".compiler").read_text() for o in (committed, compiled))
    if _major(recorded) == _major(ours):
        assert compiled.read_bytes() == committed.read_bytes(), "run tools/build_bpf.sh and commit the object"
    else:
        print(f"by {ours.strip()}, not {recorded.strip()}: what both must have in common is compared")
        assert read(compiled.read_bytes()) == read(committed.read_bytes())


def _major(compiler: str) -> str:
    version = re.fullmatch(r"clang (\d+)\.[\d.]+\n", compiler)
    assert version, compiler
    return version[1]


def test_the_object_has_these_programs_and_maps() -> None:
    main_object = read(OBJECT.read_bytes())
    assert main_object.programs == PROGRAMS
    assert main_object.maps == MAPS
    assert main_object.license == b"Dual BSD/GPL\0"
    assert {
        f"tp_btf/{p}"
        for p in PROGRAMS - {"look_throttled", "on_tick", "find_wait", "add_duration", "queue_of", "note_end"}
    } < main_object.sections
    assert set(main_object.structs) == set(SHARED)


def _atomics(program: bytes) -> tuple[int, int]:
    """How many atomic operations of 32 bits give their result, and so order all accesses, and how many not.

    An instruction has 8 bytes: operation, registers, offset, operand (linux/bpf.h)."""
    atomic, fetch = 0xC3, 1  # BPF_STX | BPF_ATOMIC | BPF_W; BPF_FETCH
    operations = [
        i for op, _, _, i in struct.iter_unpack("<BBhi", program[: len(program) // 8 * 8]) if op == atomic
    ]
    return sum(i & fetch for i in operations), sum(not i & fetch for i in operations)


def test_sequence_numbers_order_all_stores_where_processors_do_not() -> None:
    weak, strong = (read(o.read_bytes()) for o in (WEAK, OBJECT))
    assert weak == strong, "the same programs, maps and layouts"
    writers = (
        "tp_btf/sched_switch",
        "tp_btf/sched_wakeup",
        "tp_btf/sched_process_fork",
        "tp_btf/sys_enter",
        "tp_btf/sys_exit",
        "perf_event",
    )
    for name in writers:
        ordered, loose = _atomics(section(WEAK.read_bytes(), name))
        assert ordered >= 2 and loose == 0, name
        assert _atomics(section(OBJECT.read_bytes(), name)) == (0, 0), f"{name}: not before Linux 5.12"


def test_the_object_of_the_profile_has_one_program() -> None:
    profile_object = read(LABEL.read_bytes())
    assert (profile_object.programs, profile_object.maps) == ({"on_clock"}, {"processes", "rings"})
    assert profile_object.license == b"Dual BSD/GPL\0"
    assert "perf_event" in profile_object.sections


@OBJECTS
def test_the_object_holds_no_path_of_the_machine_it_was_made_on(committed: Path) -> None:
    data = committed.read_bytes()
    assert str(ROOT).encode() not in data
    assert not re.search(rb"/(home|root|usr|tmp|work)/", data)


def test_the_reader_has_the_same_layout() -> None:
    """Members by name and in order, and sizes where the source asserts them."""
    text = (CRATE / "src" / "layout.rs").read_text()
    for name, (size, members) in read(OBJECT.read_bytes()).structs.items():
        body = re.search(rf"pub struct {name.capitalize()} {{(.*?)\n}}", text, re.DOTALL)
        assert body, name
        assert tuple(re.findall(r"pub (\w+):", body[1])) == members, name
        assert size % 8 == 0, name
