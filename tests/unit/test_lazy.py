"""Packages whose names are loaded at their first use."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import dbdyno
from dbdyno.lazy import at_once, ready, uncollected, undisturbed

PACKAGES = (
    *("conclude.compare", "conduct", "drive", "limits", "observe", "plan", "present", "remote"),
    *("remote.cluster", "store"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_s_table_has_what_type_checkers_see(package: str) -> None:
    module = import_module(f"dbdyno.{package}")
    path = Path(dbdyno.__file__).parent.joinpath(*package.split("."), "__init__.py")
    (block,) = (n for n in ast.parse(path.read_text()).body if isinstance(n, ast.If))
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert module.__dict__["_lazy"] == seen
    for name, (place, original) in seen.items():
        assert getattr(module, name) is getattr(import_module(str(place)), original)


def test_all_is_loaded_while_another_thread_loads_modules_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """``observe`` of several servers does that: here a module comes each time that this one is looked at."""

    class Busy(ModuleType):
        @property
        def __class__(self) -> type:  # type: ignore[override]
            monkeypatch.setitem(sys.modules, f"busy_{len(sys.modules)}", ModuleType("come"))
            return ModuleType

    monkeypatch.setitem(sys.modules, "busy", Busy("busy"))
    ready()
    assert any(name.startswith("busy_") for name in sys.modules)


HEAVY = {
    *("scipy", "duckdb", "altair"),
    *(
        "dbdyno.model.plan.plan",
        "dbdyno.model.results.results",
        "dbdyno.model.results.comparison",
        "dbdyno.model.engine.environment",
    ),
}


def test_a_ladder_of_a_file_loads_neither_large_libraries_nor_the_models_of_runs(tmp_path: Path) -> None:
    """Each takes as long as all fits, or a tenth of it."""
    (path := tmp_path / "ladder.csv").write_text("N,X\n1,100\n2,190\n4,350\n8,500\n16,510\n32,505\n")
    program = (
        "import sys; from dbdyno.cli.app import app; "
        f"app(['analyze', {str(path)!r}], standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "ladder.csv: 510 units/s" in done.stdout
    assert not HEAVY & set(done.stderr.split())


@pytest.mark.parametrize("loading", [at_once, undisturbed, uncollected])
@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_is_not_looked_for_while_modules_are_loaded(
    loading: Callable[[], AbstractContextManager[None]], collecting: bool
) -> None:
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        with loading():
            assert not gc.isenabled()
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()


def test_no_garbage_is_collected_at_the_end() -> None:
    program = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count())); "
        "from dbdyno.lazy import quick_end; quick_end()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 1000
