"""The tool that reads names of wait events from sources, on made trees in the layouts of 18 and of 19."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tools import wait_event_names

from dbdyno.engines.postgres import versions
from dbdyno.engines.postgres.wait_events import words

_CLASSES = {"LWLOCK": ("LWLock", 1), "LOCK": ("Lock", 3), "IO": ("IO", 10)}
_IN_18 = {
    "src/include/storage/lwlocklist.h": "PG_LWLOCK(1, First)\nPG_LWLOCK(3, Third)\n",
    "src/include/storage/lwlock.h": "typedef enum BuiltinTrancheIds\n{\n\tLWTRANCHE_A,\n\tLWTRANCHE_B,\n"
    "\tLWTRANCHE_FIRST_USER_DEFINED\n} BuiltinTrancheIds;\n",
    "src/backend/storage/lmgr/lwlock.c": "static const char *const BuiltinTrancheNames[] = {\n"
    '\t[LWTRANCHE_B] = "Bees",\n\t[LWTRANCHE_A] = "Ants",\n};\n',
}
_IN_19 = {
    "src/include/storage/lwlocklist.h": "/* 0 is free */\nPG_LWLOCK(1, First)\nPG_LWLOCK(3, Third)\n"
    "/* groups */\nPG_LWLOCKTRANCHE(A, Ants)\nPG_LWLOCKTRANCHE(B, Bees)\n",
}


@pytest.mark.parametrize(
    ("version", "buffers", "event", "locks"),
    [("18.6", "BufferPin", "BUFFER_PIN", _IN_18), ("19beta2", "Buffer", "BUFFER_SHARED", _IN_19)],
)
def test_the_names_of_both_layouts(
    tmp_path: Path, version: str, buffers: str, event: str, locks: dict[str, str]
) -> None:
    classes = {**_CLASSES, buffers.upper(): (buffers, 4)}
    activity = "src/backend/utils/activity"
    files = {
        **locks,
        "configure.ac": f"AC_INIT([PostgreSQL], [{version}], [nobody])\n",
        "src/include/utils/wait_classes.h": "".join(
            f"#define PG_WAIT_{macro}\t0x{code:02X}000000U\n" for macro, (_, code) in classes.items()
        ),
        f"{activity}/wait_event.c": "".join(
            f'\t\tcase PG_WAIT_{macro}:\n\t\t\tevent_type = "{name}";\n'
            for macro, (name, _) in classes.items()
        ),
        f"{activity}/wait_event_names.txt": f"# names\nSection: ClassName - WaitEvent{buffers}\n\n"
        f'{event}\t"Waiting."\n\nABI_compatibility:\n\nSection: ClassName - WaitEventIO\n\n'
        'WAL_SYNC\t"Waiting."\nCOPY_FROM_READ\t"Waiting."\n\nABI_compatibility:\n\nBASE_READ\t"Waiting."\n',
        "src/backend/utils/adt/lockfuncs.c": 'const char *const LockTagTypeNames[] = {\n\t"relation",\n};\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    text = wait_event_names.main(tmp_path)
    assert text.startswith(f"# PostgreSQL {version}: ")
    read = tomllib.loads(text)
    assert read["classes"] == {"LWLock": 1, "Lock": 3, buffers: 4, "IO": 10}
    assert read["names"] == {
        "LWLock": ["", "First", "", "Third", "Ants", "Bees"],
        "Lock": ["relation"],
        buffers: ["BufferPin" if buffers == "BufferPin" else "BufferShared"],
        "IO": ["CopyFromRead", "WalSync", "BaseRead"],
    }


def test_renamed_events_lead_to_names_of_a_version_before() -> None:
    versions_known = range(versions.OLDEST, versions.NEWEST + 1)
    names = [{"/".join(n) for n in known.events.values()} for v in versions_known if (known := words(v))]
    for later, earlier in versions.RENAMED_EVENTS.items():
        assert any(earlier in one and later not in one for one in names)
        assert not any(earlier in one and later in one for one in names)
