"""Small builds: generated sources with a makefile.

Their shape determines how far they can run in parallel: modules that wait for others, or one module that
takes as long as all others together.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dbdyno.engines.command.shipped import cache
from dbdyno.model.errors import NotAvailable
from dbdyno.model.plan.jobs import JobSpec

_C = """\
#include <stdint.h>
static uint64_t f{n}(const uint64_t *v, unsigned k)
{{
    uint64_t a[16] = {{0}}, s = {n};
    for (unsigned i = 0; i < k; i++)
        switch ((v[i] ^ s) % 7) {{
        case 0: a[i % 16] += v[i] * {odd}; break;
        case 1: for (int j = 0; j < 16; j++) a[j] ^= s >> j; break;
        case 2: s = s * {odd} + a[(i + {n}) % 16]; break;
        case 3: for (int j = 1; j < 16; j++) a[j] += a[j - 1] / (s | 1); break;
        case 4: a[s % 16] = v[k - 1 - i]; break;
        default: s += a[i % 16] % {odd};
        }}
    return s;
}}
"""
_RUST = """\
fn f{n}(v: &[u64]) -> u64 {{
    let (mut a, mut s) = ([0u64; 16], {n}u64);
    for (i, x) in v.iter().enumerate() {{
        match (x ^ s) % 5 {{
            0 => a[i % 16] = a[i % 16].wrapping_add(x.wrapping_mul({odd})),
            1 => s = a.iter().fold(s, |s, x| s.rotate_left(3) ^ x),
            2 => s = s.wrapping_mul({odd}).wrapping_add(i as u64),
            3 => a.iter_mut().rev().for_each(|x| *x = x.wrapping_add(s)),
            _ => s = v.iter().zip(&a).map(|(x, y)| x ^ y).max().unwrap_or(s),
        }}
    }}
    s
}}
"""


@dataclass(frozen=True)
class Language:
    """A language, with the templates of its sources and of its lines in the makefile."""

    name: str
    program: tuple[str, ...]  # the compiler's names
    suffix: str
    function: str
    module: str  # calls all functions; returns its number whatever they return
    main: str  # exit code 0 if all modules are there
    called: str  # in main
    declared: str
    compiled: str  # lines of the makefile
    linked: str


C = Language(
    "c", ("cc", "gcc", "clang"), "c", _C,
    "unsigned m{i}(void)\n{{\n    uint64_t v[8] = {{{i}}};\n    return {i} + ({calls} & 0);\n}}\n",
    "{declared}int main(void)\n{{\n    return {called} != {sum};\n}}\n",
    "m{i}()", "unsigned m{i}(void);\n",
    "$(O)/m{i}.o: m{i}.c{after}\n\t$(COMPILER) -O2 -c -o $@ $<\n",
    "$(O)/main: main.c {modules}\n\t$(COMPILER) -O2 -o $@ main.c {modules}\n",
)  # fmt: skip
RUST = Language(
    "rust", ("rustc",), "rs", _RUST,
    "pub fn m{i}() -> u64 {{\n    let v = [{i}u64; 8];\n    {i} + (({calls}) & 0)\n}}\n",
    "fn main() {{\n    std::process::exit(i32::from({called} != {sum}u64))\n}}\n",
    "m{i}::m{i}()", "",
    "$(O)/m{i}.o: m{i}.rs{after}\n\tMAKEFLAGS= $(COMPILER) $(FLAGS) --crate-type rlib --crate-name m{i} "
    "-o $(O)/libm{i}.rlib $< && touch $@\n",
    "$(O)/main: main.rs {modules}\n\tMAKEFLAGS= $(COMPILER) $(FLAGS) -L $(O) {externs} -o $@ main.rs\n",
)  # fmt: skip
_HEAD = """\
COMPILER = {compiler}
FLAGS = --edition 2021 -C opt-level=2 -C codegen-units=1
.DELETE_ON_ERROR:
"""


@dataclass(frozen=True)
class Build:
    """A build. ``sizes`` is the number of functions per module. With ``chain`` each module depends on the one
    before."""

    doc: str
    shape: str
    languages: tuple[Language, ...]  # uses the first that has a compiler installed
    sizes: tuple[int, ...]
    chain: bool = False

    def job(self, _given: Mapping[str, object]) -> JobSpec:
        """Writes the sources and returns the job. Raises :class:`NotAvailable` without make or a compiler."""
        make = shutil.which("make") or shutil.which("gmake")
        installed = [(lang, p) for lang in self.languages for n in lang.program if (p := shutil.which(n))]
        if make is None or not installed:
            missing = "make" if make is None else "a C compiler"
            raise NotAvailable(f"{missing} is not installed", "install it, or choose other jobs")
        language, compiler = installed[0]
        files = self.sources(language, compiler)
        mark = hashlib.sha256("".join(files.values()).encode()).hexdigest()[:12]
        place = cache.cached(f"build-{language.name}-{self.shape}-{mark}", lambda path: _write(path, files))
        out = cache.directory() / f"built-{language.name}-{self.shape}" / "{session}"
        words = [make, "-s", f"-j{_given.get('threads', 1)}", "-C", place, f"O={out}"]
        return JobSpec(
            name=f"{language.name}-{self.shape}",
            command=shlex.join(map(str, [*words, f"{out}/main"])),
            prepare=shlex.join(map(str, [make, "-s", "-C", place, f"O={out}", "clean"])),
            verify=f"{shlex.quote(str(out))}/main",
            env={"MAKEFLAGS": ""},  # else it inherits those of a make that runs dbdyno
        )

    def sources(self, lang: Language, compiler: str) -> dict[str, str]:
        """Returns the texts of all files by name."""
        numbers = range(1, len(self.sizes) + 1)
        modules = " ".join(f"$(O)/m{i}.o" for i in numbers)
        rules = [
            lang.compiled.format(i=i, after=f" $(O)/m{i - 1}.o" if self.chain and i > 1 else "")
            for i in numbers
        ]
        linked = lang.linked.format(modules=modules, externs=" ".join(f"--extern m{i}" for i in numbers))
        clean = "clean:\n\trm -rf $(O)\n\tmkdir -p $(O)\n.PHONY: clean\n"
        called = " + ".join(lang.called.format(i=i) for i in numbers)
        declared = "".join(lang.declared.format(i=i) for i in numbers)
        main = lang.main.format(declared=declared, called=called, sum=sum(numbers))
        return {
            "Makefile": _HEAD.format(compiler=compiler) + linked + "".join(rules) + clean,
            f"main.{lang.suffix}": main,
            **{f"m{i}.{lang.suffix}": _module(lang, i, size) for i, size in enumerate(self.sizes, 1)},
        }


def _module(lang: Language, i: int, size: int) -> str:
    functions = [lang.function.format(n=n, odd=2 * (1000 * i + n) + 1) for n in range(size)]
    call = "f{n}(v, 8)" if lang is C else "f{n}(&v)"
    calls = " ^ ".join(call.format(n=n) for n in range(size))
    return "".join(functions) + lang.module.format(i=i, calls=calls if lang is RUST else f"({calls})")


def _write(path: Path, files: Mapping[str, str]) -> None:
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)


BUILDS = {
    f"build-{b.shape}": b
    for b in (
        Build("16 equal modules of C", "even", (C,), (12,) * 16),
        Build("8 modules of C, one as large as all others", "uneven", (C,), (100, *(14,) * 7)),
        Build("24 small modules of C", "many", (C,), (3,) * 24),
        Build("6 crates of Rust; without rustc, modules of C", "crates", (RUST, C), (12,) * 6),
        Build(
            "5 crates of Rust, each for the next; without rustc, modules of C",
            "chain",
            (RUST, C),
            (12,) * 5,
            chain=True,
        ),
    )
}
"""Builds by the name of their job."""
