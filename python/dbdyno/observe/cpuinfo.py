"""/proc/cpuinfo: the CPU's name, and where each processor sits, as far as the architecture tells."""

from __future__ import annotations

from pathlib import Path

from dbdyno.observe.tree import fields, text

_MODEL_KEYS = ("model name", "cpu model", "cpu", "Model", "Hardware")  # x86, MIPS, POWER, ARM boards
# "CPU implementer", "CPU part" -> name: arch/arm64/include/asm/cputype.h. Cores that servers are made of.
_ARM_PARTS = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd84"): "Neoverse-V3",
    ("0x41", "0xd8e"): "Neoverse-N3",
    ("0x43", "0x0af"): "ThunderX2-99xx",
    ("0x48", "0xd01"): "Kunpeng-920",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}


def blocks(root: Path) -> list[dict[str, str]]:
    """A dictionary of each paragraph."""
    return [fields(block) for block in (text(root, "proc/cpuinfo") or "").split("\n\n")]


def processors(root: Path) -> dict[int, dict[str, str]]:
    """CPU number -> its paragraph."""
    return {int(b["processor"]): b for b in blocks(root) if b.get("processor", "").isdigit()}


def flags(root: Path) -> frozenset[str]:
    """Of the first CPU; empty where the architecture lists none (all but x86)."""
    return frozenset(fields(text(root, "proc/cpuinfo")).get("flags", "").split())


def model_name(root: Path) -> str | None:
    known: dict[str, str] = {}
    for block in blocks(root):
        known = block | known
    named = next((known[key] for key in _MODEL_KEYS if known.get(key)), None)
    return named or _arm_name(known.get("CPU implementer"), known.get("CPU part"))


def _arm_name(implementer: str | None, part: str | None) -> str | None:
    if implementer is None or part is None:
        return None
    return _ARM_PARTS.get((implementer, part), f"ARM CPU, implementer {implementer}, part {part}")
