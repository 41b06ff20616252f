"""An own SQL script as a workload: split, read, checked by the server; errors have line and column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from psycopg import pq

from dbdyno.engines.postgres.connect import Connection
from dbdyno.model.errors import ScriptError

# Splits an SQL script at its top-level semicolons. PostgreSQL, "Lexical Structure" (4.1) and scan.l.
#
# Knows quoted strings and identifiers, E strings, strings that go on in the next line, dollar quotes, nested
# comments, parentheses and brackets.

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n\r]*)
      | (?P<block>/\*)
      | (?P<escaped>[eE]')
      | (?P<plain>(?:[uU]&|[bBxXnN])?')
      | (?P<name>(?:[uU]&)?")
      | (?P<dollar>\$(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?\$)
      | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
      | (?P<number>[0-9][A-Za-z0-9_.\u0080-\U0010ffff]*|\$[0-9]+)
      | (?P<cast>::)
      | (?P<variable>:[A-Za-z_][A-Za-z0-9_]*)
      | (?P<open>[(\[])
      | (?P<close>[)\]])
      | (?P<end>;)
      | (?P<backslash>\\)
      | (?P<space>[ \t\n\r\f\v]+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_BLOCK = re.compile(r"/\*|\*/")
_QUOTE = re.compile(r"'")
_ESCAPED = re.compile(r"\\.|'", re.DOTALL)
_NAME = re.compile(r'"')
_CONTINUED = re.compile(r"[ \t\f\v]*(?:--[^\n\r]*)?[\n\r](?:[ \t\n\r\f\v]+|--[^\n\r]*[\n\r])*'")


@dataclass(frozen=True)
class Token:
    """``kind``: a group of the pattern above; ``start`` and ``end`` in characters of the script."""

    kind: str
    start: int
    end: int


class Unterminated(ValueError):
    """A quote or comment has no end; ``args`` = (what, its start)."""


def tokens(text: str, *, standard_strings: bool = True) -> Iterator[Token]:
    """All of ``text``, without a gap. ``standard_strings``: standard_conforming_strings is on.

    Raises :class:`Unterminated`.
    """
    at = 0
    while (match := _TOKEN.match(text, at)) is not None:
        kind, end = str(match.lastgroup), match.end()
        if kind == "block":
            end = _block_end(text, at)
        elif kind == "dollar":
            closing = text.find(match[0], end)
            if closing < 0:
                raise Unterminated(f"the string quoted with {match[0]}", at)
            end = closing + len(match[0])
        elif kind == "name":
            end = _quoted_end(text, at, end, _NAME, "the quoted name")
        elif kind in ("plain", "escaped"):
            escapes = kind == "escaped" or not (standard_strings or match[0][:1] in "uU")
            end = _string_end(text, at, end, _ESCAPED if escapes else _QUOTE)
        yield Token(kind, at, end)
        at = end


def split(text: str, *, standard_strings: bool = True) -> list[str]:
    """Pieces that join to ``text``: each ends with its semicolon, the last perhaps without."""
    pieces, start, depth = [], 0, 0
    for token in tokens(text, standard_strings=standard_strings):
        if token.kind == "open":
            depth += 1
        elif token.kind == "close":
            depth = max(0, depth - 1)
        elif token.kind == "end" and depth == 0:
            pieces.append(text[start : token.end])
            start = token.end
    return [*pieces, text[start:]] if start < len(text) else pieces


def _block_end(text: str, start: int) -> int:
    """Comments nest."""
    depth = 0
    for match in _BLOCK.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise Unterminated("the comment", start)


def _string_end(text: str, start: int, inside: int, pattern: re.Pattern[str]) -> int:
    end = _quoted_end(text, start, inside, pattern, "the string")
    while (more := _CONTINUED.match(text, end)) is not None:
        end = _quoted_end(text, start, more.end(), pattern, "the string")
    return end


def _quoted_end(text: str, start: int, inside: int, pattern: re.Pattern[str], what: str) -> int:
    """The end of a quote whose inside begins at ``inside``; a doubled quote does not end it."""
    at = inside
    while (match := pattern.search(text, at)) is not None:
        at = match.end()
        if match[0][0] == "\\":
            continue
        if text[at : at + 1] != match[0]:
            return at
        at += 1
    raise Unterminated(what, start)


_SHOWN = 100  # characters of a line in a message
_NO_VARIABLES = (
    "the pgbench language with its variables is not supported yet: write values, or random() in SQL"
)
_OPENS = ("begin", "start")
_CLOSES = ("commit", "end", "rollback", "abort", "prepare")


@dataclass(frozen=True)
class Statement:
    """``start``: where it begins in the script, in characters; ``words``: its first two, in lower case."""

    text: str
    start: int
    words: tuple[str, ...]


def as_statements(connection: Connection, text: str, name: str) -> tuple[str, ...]:
    """The statements of a script. Raises :class:`ScriptError`."""
    script = Script(text, PurePath(name).name)
    standard = connection.info.parameter_status("standard_conforming_strings") != "off"
    statements = script.statements(standard_strings=standard)
    for statement in statements:
        _check(connection, script, statement)
    return tuple(s.text for s in statements)


@dataclass(frozen=True)
class Script:
    """The text of a script and the name it has in messages."""

    text: str
    name: str

    def statements(self, *, standard_strings: bool) -> list[Statement]:
        """All statements that are not empty. Raises :class:`ScriptError`."""
        try:
            pieces = split(self.text, standard_strings=standard_strings)
        except Unterminated as e:
            what, start = e.args
            raise self.error(f"{what} that begins here has no end", start, "close it") from None
        found, start = [], 0
        for piece in pieces:
            statement = self._statement(start, start + len(piece), standard_strings)
            if statement is not None:
                found.append(statement)
            start += len(piece)
        if not found:
            raise ScriptError(f"{self.name} contains no statement", "add an SQL statement")
        self._closes_transactions(found)
        return found

    def _statement(self, start: int, end: int, standard_strings: bool) -> Statement | None:
        piece = self.text[start:end]
        real = []
        brackets = 0
        for token in tokens(piece, standard_strings=standard_strings):
            if token.kind in ("open", "close") and piece[token.start] in "[]":
                brackets += 1 if token.kind == "open" else -1
            self._refuse(token, start, brackets)
            if token.kind not in ("comment", "block", "space", "end"):
                real.append(token)
        if not real:
            return None
        first = real[0].start
        words = tuple(piece[t.start : t.end].lower() for t in real[:2] if t.kind == "word")
        return Statement(piece[first : real[-1].end], start + first, words)

    def _refuse(self, token: Token, start: int, brackets: int) -> None:
        at = start + token.start
        if token.kind == "backslash":
            raise self.error("pgbench meta-commands are not supported yet", at, _NO_VARIABLES)
        if token.kind == "variable" and brackets == 0:
            word = self.text[at : start + token.end]
            raise self.error(f"variable {word}: pgbench variables are not supported yet", at, _NO_VARIABLES)

    def _closes_transactions(self, statements: list[Statement]) -> None:
        opened: Statement | None = None
        for statement in statements:
            first = statement.words[0] if statement.words else ""
            if first in _OPENS:
                opened = statement
            elif first in _CLOSES and statement.words[1:] not in (("to",), ("prepared",)):
                opened = None
        if opened is not None:
            raise self.error(
                "the transaction that begins here is not ended", opened.start, "end the script with COMMIT;"
            )

    def error(self, message: str, at: int, cure: str) -> ScriptError:
        """With line and column (from 1), the line, and a caret under the place."""
        at = min(at, len(self.text))
        line_start = self.text.rfind("\n", 0, at) + 1
        line = self.text[line_start:].split("\n", 1)[0].rstrip()
        column = at - line_start
        cut = max(0, column - _SHOWN // 2)
        shown = line[cut : cut + _SHOWN]
        indent = "".join("\t" if c == "\t" else " " for c in line[cut:column])
        number = self.text.count("\n", 0, at) + 1
        return ScriptError(f"{self.name}:{number}:{column + 1}: {message}\n    {shown}\n    {indent}^", cure)


def _check(connection: Connection, script: Script, statement: Statement) -> None:
    """Lets the server parse it; nothing is executed. Of utility statements it checks the syntax alone."""
    if statement.words[:1] == ("copy",):
        raise script.error(
            "COPY cannot be a call: its data would come from dbdyno or go there",
            statement.start,
            "use INSERT ... SELECT",
        )
    pgconn = connection.pgconn
    encoding = connection.info.encoding
    result = pgconn.prepare(b"", statement.text.encode(encoding))
    if result.status == pq.ExecStatus.COMMAND_OK:
        wanted = pgconn.describe_prepared(b"").nparams
        if wanted:
            raise script.error(
                f"the statement has {wanted} parameter(s) such as $1", statement.start, "write values instead"
            )
        return
    field = pq.DiagnosticField
    position = result.error_field(field.STATEMENT_POSITION)
    at = statement.start + (int(position) - 1 if position else 0)
    message = (result.error_field(field.MESSAGE_PRIMARY) or b"refused").decode(encoding, "replace")
    hint = (result.error_field(field.MESSAGE_HINT) or b"").decode(encoding, "replace")
    raise script.error(message, at, hint or _cure(result.error_field(field.SQLSTATE)))


def _cure(sqlstate: bytes | None) -> str:
    if sqlstate == b"42601":
        return "fix the statement"
    return "all statements are prepared before the first one runs: what they name must exist by then"
