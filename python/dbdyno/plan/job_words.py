"""Texts of jobs: fills placeholders, splits words, and lists values in the notation of the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from dbdyno.model.errors import UsageError, did_you_mean, nearest
from dbdyno.model.plan.jobs import Shell

Value = str | int | float | bool
AT_START = ("session",)
"""Placeholders that the engine fills when an execution starts."""
MAX_VALUES = 1000
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(rf"\{{\{{|\}}\}}|\$\{{[^{{}}]*\}}|\{{({_NAME})\}}")
_SINGLE = re.compile(rf"\{{\{{({_NAME})\}}\}}|\$\{{({_NAME})\}}|\{{({_NAME})\}}")

_TEMPLATE = re.compile(
    r"\{\{-?\s*(\.[A-Za-z_}]|\.\s*\}\}|(range|with)\s+\$|(range|with|if|not|json|len|index|join|printf?|println|upper|lower)\s+[.\"])"
)
"""Matches templates of docker and kubectl: ``{{.Names}}``, ``{{range .items}}``, ``{{json .}}``."""
_IN_TEMPLATE = re.compile(rf"\{{\{{.*?\}}\}}|\$\{{[^{{}}]*\}}|\{{({_NAME})\}}", re.DOTALL)


def doubled(text: str) -> bool:
    """Returns whether all braces outside of placeholders are doubled, as in Python's format strings.
    Otherwise braces are literal, doubled or not, as in awk's ``{if (a) {b = 1}}``."""
    return ("{{" in text or "}}" in text) and not re.search(r"[{}]", _TOKEN.sub("", text))


def placeholders(text: str) -> set[str]:
    """Returns the names in single braces. ``${name}`` is a shell's variable and ``{{name}}`` is literal, so
    neither counts."""
    if _TEMPLATE.search(text):
        return {m[1] for m in _IN_TEMPLATE.finditer(text) if m[1]}
    if doubled(text):
        return {m[1] for m in _TOKEN.finditer(text) if m[1]}
    return {m[3] for m in _SINGLE.finditer(text) if m[3]}


def filled(text: str, values: Mapping[str, Value], what: str, shell: Shell = "none") -> str:
    """Returns the text with its placeholders replaced. Raises :class:`UsageError` for a placeholder without
    a value."""
    if _TEMPLATE.search(text):
        return _IN_TEMPLATE.sub(lambda m: _value(m[1], values, what) if m[1] else m[0], text)
    by_format = doubled(text)

    def of_format(m: re.Match[str]) -> str:
        return m[0][0] if m[0] in ("{{", "}}") else _value(m[1], values, what) if m[1] else m[0]

    def of_single(m: re.Match[str]) -> str:
        if m[2] and shell == "none" and m[2] in values:
            raise UsageError(
                f"{what}: {m[0]} is a shell's variable, and no shell runs it",
                f"the parameter is {{{m[2]}}}; --shell sh runs the command in a shell",
            )
        return f"{{{m[1]}}}" if m[1] else m[0] if m[2] else _value(m[3], values, what)

    return _TOKEN.sub(of_format, text) if by_format else _SINGLE.sub(of_single, text)


def _value(name: str, values: Mapping[str, Value], what: str) -> str:
    if name in AT_START:
        return f"{{{name}}}"
    if name not in values:
        known = [*values, *AT_START]
        near = nearest(name, known)
        cure = did_you_mean(name, known) if near else f"give it one: {name}=1,2,4"
        raise UsageError(
            f"{what}: the placeholder {{{name}}} has no value",
            f"{cure}; braces that are meant as such are doubled: {{{{{name}}}}}",
        )
    value = values[name]
    return str(value).lower() if isinstance(value, bool) else str(value)


def words(text: str, values: Mapping[str, Value], what: str, shell: Shell = "none") -> tuple[str, ...]:
    """Returns the program and its arguments. Without a shell a value is never split, so a value with spaces
    stays one word. Raises :class:`UsageError`."""
    if shell != "none":
        return (shell, "-c", filled(text, values, what, shell))
    argv = tuple(filled(word, values, what) for word in split(text, what))
    if not argv or not argv[0]:
        raise UsageError(f"{what} is empty", "name a program and its arguments: 'sort --parallel=4 FILE'")
    _check_shell_words(text, what)
    return argv


def split(text: str, what: str) -> list[str]:
    """Splits a command line by the quoting rules of a shell. Raises :class:`UsageError`."""
    try:
        return shlex.split(text)
    except ValueError as e:
        reason = "a quotation mark is not closed" if "quotation" in str(e) else str(e).lower()
        raise UsageError(f"{what}: {reason}: {text}", "close it, or put \\ before it") from None


_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\||&>>?|\d?>>?(?:&\d)?|<<<|<<?|[;&|`]|\$\(")


def _check_shell_words(text: str, what: str) -> None:
    """Raises :class:`UsageError` for a shell's operator without quotes, because it is surely meant as one,
    even without blanks around it."""
    operator = _OPERATOR.search(_QUOTED.sub("", text))
    if operator is not None:
        raise UsageError(
            f"{what}: {operator[0]} means something to a shell, and no shell runs the command",
            "--shell sh runs it in one (its start-up is taken off), --input FILE is its standard input; "
            f"a {operator[0]} for the program itself is quoted",
        )


_SIZE = re.compile(r"(\d{1,12})\s*([kKMG]?)(i?)[bB]?\Z")
_FACTORS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3}


def parse_bytes(text: str, option: str) -> int:
    """Returns the bytes of ``64kB`` | ``1MiB`` | ``4096``. 1 kB is 1024 bytes. Raises :class:`UsageError`."""
    match = _SIZE.match(text.strip())
    size_bytes = 0 if match is None else int(match[1]) * 1024 ** _FACTORS[match[2]]
    if not 0 < size_bytes <= 1 << 30:
        raise UsageError(f"{option} {text}: not a size from 1 byte to 1 GB", f"for example {option} 64kB")
    return size_bytes


_RANGE = re.compile(r"(-?[0-9.]+):(-?[0-9.]+)(?::(x?)([0-9.]+))?\Z")


def values_of(text: str, name: str) -> tuple[Value, ...]:
    """Returns the values of ``1,2,4`` | ``1:32`` | ``1:32:x2`` | ``0.5:2:0.5`` | ``zstd,xz`` | one value. A
    range includes both of its ends. ``\\,`` is a comma within a value. Raises :class:`UsageError`."""
    parts = [p.replace("\\,", ",").strip() for p in re.split(r"(?<!\\),", text)]
    if len(parts) > 1 and "" in parts:
        raise UsageError(f"{name}={text}: a value is empty", f"{name}=1,2,4, or a comma as \\,")
    if len(parts) > MAX_VALUES:
        raise UsageError(f"{name}: {len(parts):,} values are too many", f"at most {MAX_VALUES:,}")
    values = list(dict.fromkeys(v for p in dict.fromkeys(parts) for v in _range(p, f"{name}={text}")))
    if len(values) > MAX_VALUES:
        raise UsageError(f"{name}={text}: {len(values):,} values are too many", f"at most {MAX_VALUES:,}")
    return tuple(values)


def _range(part: str, whole: str) -> list[Value]:
    match = _RANGE.match(part)
    if match is None:
        return [number(part)]
    try:
        low, high, step = Decimal(match[1]), Decimal(match[2]), Decimal(match[4] or 1)
    except InvalidOperation:
        return [part]
    if low > high or step <= (1 if match[3] else 0) or (match[3] and low <= 0):
        raise UsageError(
            f"{whole}: {part} is no range", "FROM:TO, FROM:TO:STEP or FROM:TO:x2, from low to high"
        )
    at, values = low, [low]
    while at < high:
        after = min(high, at * step if match[3] else at + step)
        if after == at or len(values) > MAX_VALUES:  # a step that is lost among the digits leads nowhere
            raise UsageError(f"{whole}: {part} is more than {MAX_VALUES:,} values", "give a larger step")
        at = after
        values.append(at)
    whole_numbers = all(v == v.to_integral_value() for v in (low, high, step))
    return [int(v) if whole_numbers else number(f"{v.normalize():f}") for v in values]


def number(text: str) -> Value:
    """Returns a number if the text is its normal form, else the text: ``04`` stays a text."""
    for kind in (int, float):
        try:
            value: Value = kind(text)
        except ValueError:
            continue
        if str(value) == text:
            return value
    return text
