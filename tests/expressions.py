"""Random expressions of pgbench's language, and their values by real pgbench."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path


def _words(text: str) -> list[str]:
    return text.split()


TEXTS = _words("null Null nul t TR yes no n on o of off 1e3 1e 1e400 +1 --1 .5 5. 1_0 inf -infinity nan x")
TEXTS += [" ", "null ", " 1", "1 ", " 1.5", "99999999999999999999", "-9223372036854775808"]
"""Values that users may give to a variable."""
_NAMED = {"scale": "10", "i": "-7", "d": "2.5", "t": "true", "n": "null", "default_seed": "42", "k": "007"}
VARIABLES = _NAMED | {f"text_{i}": text for i, text in enumerate(TEXTS)}
_SHOWN = re.compile(r"debug\(script=0,command=(\d+)\): (?:null|(?:boolean|int|double) (\S+))")
_LITERALS = _words("0 1 2 3 7 64 1000003 9223372036854775807 -9223372036854775808 0.5 2.0 1e3 .25 1.5e-7")
_LITERALS += ["TRUE", "false", "Null", *(f":{name}" for name in _NAMED)]
_BINARY = _words("+ - * / % = <> != < <= > >= | # & << >> AND or")
_TESTS = ["is null", "is not null", "IS TRUE", "is not false", "isnull", "notnull"]
_ONE = _words("abs double int hash hash_fnv1a hash_murmur2 sqrt exp ln greatest least")
_TWO = _words("mod pow power greatest least hash hash_fnv1a hash_murmur2 permute")


def expression(draw: random.Random, depth: int) -> str:
    """Returns an expression. Operators have no parentheses, so that precedence matters."""
    if depth == 0:
        return draw.choice(_LITERALS)

    def part() -> str:
        return expression(draw, draw.randrange(depth))

    forms: list[Callable[[], str]] = [
        lambda: f"{part()} {draw.choice(_BINARY)} {part()}",
        lambda: f"{part()} {draw.choice(_BINARY)} {part()}",
        lambda: f"({part()}) {draw.choice(_BINARY)} ({part()})",
        lambda: f"{draw.choice(['- ', '+ ', '~ ', 'not '])}{part()}",
        lambda: f"{part()} {draw.choice(_TESTS)}",
        lambda: f"{draw.choice(_ONE)}({part()})",
        lambda: f"{draw.choice(_TWO)}({part()}, {part()})",
        lambda: f"permute({part()}, {part()}, {part()})",
        lambda: f"case when {part()} then {part()} when {part()} then {part()} else {part()} end",
        lambda: f"case when {part()} then {part()} end",
    ]
    return draw.choice(forms)()


def of_pgbench(program: str, dsn: str, groups: Sequence[Sequence[str]], place: Path) -> list[str | None]:
    """Returns the value of each expression in order, None for an error. A client evaluates a group, which
    the first error ends."""
    owned = [(client, one) for client, group in enumerate(groups) for one in group]
    blocks = (f"\\if :client_id = {client}\n\\set x debug({one})\n\\endif\n" for client, one in owned)
    done = _run(program, dsn, "".join(blocks), place, clients=len(groups))
    if "syntax error" in done or "unexpected" in done:
        raise ValueError(done)
    shown = {(int(match[1]) - 1) // 3: match[2] or "NULL" for match in _SHOWN.finditer(done)}
    return [shown.get(i) for i in range(len(owned))]


def parses(program: str, text: str, place: Path) -> bool:
    """Returns whether pgbench reads an expression. It does so before it connects, so it needs no server."""
    done = _run(program, "host=127.0.0.1 port=1", f"\\set x {text}\n", place)
    return "connection to server" in done


def _run(program: str, dsn: str, script: str, place: Path, clients: int = 1) -> str:
    file = place / "expressions.sql"
    file.write_text(script)
    given = [f"-D{name}={value}" for name, value in VARIABLES.items()]
    words = [program, "-n", "-t1", f"-c{clients}", "-j1", *given, "-f", str(file), dsn]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stderr
