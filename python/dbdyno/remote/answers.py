"""The operations of an agent: type of each answer, possible errors, and size of what may follow it.

Whatever another host sends is checked against this table before anything else reads it (crates/dyno-agent
has the other side). Numbers given as texts are refused, checks of lists and objects end at the first fault,
texts have a maximum length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from dbdyno.model.engine.protocols import Progress
from dbdyno.model.sources.source import Status
from dbdyno.remote.wire import MOST_BODY_BYTES, MOST_INSTANT_NS, Description, WrongAnswer, first_fault

MOST_GATHERED_BYTES = 256 << 20
"""All files of one request together: the agent's own limit."""

_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
_Small = Annotated[int, Field(strict=True, ge=0, lt=1 << 32)]
_Large = Annotated[int, Field(strict=True, ge=0, lt=1 << 64)]
_Figure = Annotated[int, Field(strict=True, ge=0, lt=1 << 60)]  # leaves room for sums over hosts
_Signed = Annotated[int, Field(strict=True, ge=-(1 << 63), lt=1 << 63)]
_Instant = Annotated[int, Field(strict=True, ge=-MOST_INSTANT_NS, le=MOST_INSTANT_NS)]
_Truth = Annotated[bool, Field(strict=True)]
_Share = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Text = Annotated[str, Field(strict=True, max_length=1 << 16)]
_Name = Annotated[str, Field(strict=True, max_length=1 << 12)]


def _few(value: Any) -> Any:
    """Limits the entries of an object, since pydantic keeps a fault for each entry."""
    if isinstance(value, dict) and len(value) > _MOST_ENTRIES:
        raise ValueError(f"more than {_MOST_ENTRIES} entries")
    return value


_MOST_ENTRIES = 10_000
_ShareByName = Annotated[dict[_Name, _Share], BeforeValidator(_few)]
_StatusByName = Annotated[dict[_Name, tuple[Status, _Text]], BeforeValidator(_few)]


class Hello(BaseModel):
    """Identity of the agent and its host."""

    model_config = ConfigDict(frozen=True)

    product: _Name
    protocol: _Number
    hash: _Name  # SHA-256 of the program, hexadecimal
    uid: _Small
    pid: _Small
    hostname: _Name | None
    boot_id: _Name | None
    machine_id: _Name | None
    kernel: _Name | None
    arch: _Name
    cpus: _Small
    affinity: Annotated[tuple[_Small, ...], Field(fail_fast=True)] | None
    ns_per_tick: _Number
    page_bytes: _Number


class TaskRead(TypedDict):
    """The result of ``_core.read_task``."""

    run_ns: _Number | None
    runq_ns: _Number | None
    slices: _Number | None
    user_ns: _Number | None
    system_ns: _Number | None
    start_ticks: _Number | None
    comm: _Name | None
    state: _Name | None
    cpu: _Signed | None
    status: Status


class FileFacts(TypedDict):
    """Facts of stat(2) and statfs(2)."""

    mode: _Small
    uid: _Small
    gid: _Small
    size: _Large
    device: tuple[_Small, _Small]
    inode: _Large
    mtime_ns: _Signed
    filesystem: _Signed
    fs_bytes: _Large
    fs_available_bytes: _Large


_Refusal = tuple[Annotated[int, Field(strict=True, ge=0, lt=1 << 12)], _Text]  # errno and its message
_Names = Annotated[list[_Name], Field(fail_fast=True)]


class Gathering(TypedDict):
    """The result of ``gather`` for each path: the first of two forms, or the second with an error."""

    read: Annotated[
        list[tuple[_Name, _Number, _Truth, None] | tuple[_Name, Literal[0], _Truth, _Refusal]],
        Field(fail_fast=True),
    ]
    link: Annotated[list[tuple[_Name, _Name, None] | tuple[_Name, None, _Refusal]], Field(fail_fast=True)]
    list: Annotated[list[tuple[_Name, _Names, None] | tuple[_Name, None, _Refusal]], Field(fail_fast=True)]
    stat: Annotated[list[tuple[_Name, FileFacts, None] | tuple[_Name, None, _Refusal]], Field(fail_fast=True)]


class Fault(BaseModel):
    """An error on the other host, in the form of the core's errors.

    ``os``: an error of the operating system; ``agent``: a malformed request.
    """

    model_config = ConfigDict(frozen=True)

    family: Literal["driver", "observer", "os", "agent"]
    kind: _Name
    message: _Text
    code: _Name | None
    session: _Small | None


class Operation(NamedTuple):
    """``value``: type of the answer; ``raises``: families of errors that callers handle."""

    value: Any
    raises: Collection[str] = ()
    most_body_bytes: int = 0


def _list_of(item: Any) -> Any:
    return Annotated[list[item], Field(fail_fast=True)]


_DRIVER, _OBSERVER = ("driver",), ("observer",)
_TABLES = Operation(Description, _DRIVER, MOST_BODY_BYTES)

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "hello": Operation(Hello),
        "clock": Operation(_Instant),
        "load.new": Operation(_Number, _DRIVER),
        "load.connect": Operation(None, _DRIVER),
        "load.start": Operation(None, _DRIVER),
        "load.finish": Operation(None, _DRIVER),
        "load.stop": Operation(None),
        "load.abort": Operation(None),
        "load.wait": Operation(_Truth, _DRIVER),
        "load.progress": Operation(tuple[(_Figure,) * len(Progress._fields)]),  # type: ignore[misc]
        "load.live_durations": Operation(_list_of(tuple[_Figure, _Figure])),
        "load.backends": Operation(_list_of(tuple[_Small, _Number, _Number])),
        "load.threads": Operation(_list_of(_Small)),
        "load.tables": _TABLES,
        "load.window_tables": _TABLES,
        "watch.new": Operation(_Number, _OBSERVER),
        "watch.start": Operation(None, _OBSERVER),
        "watch.stop": Operation(None),
        "watch.latest": Operation(_ShareByName),
        "watch.trouble": Operation(_Text | None),
        "watch.source_status": Operation(_StatusByName),
        "watch.tables": Operation(_Number, (), MOST_BODY_BYTES),
        "watch.recent": Operation(Description, (), MOST_BODY_BYTES),
        "pulse.new": Operation(_Number, _OBSERVER),
        "pulse.holes": Operation(_list_of(tuple[_Instant, _Instant, _Number, _Number])),
        "drop": Operation(None),
        "find_cgroups": Operation(_list_of(tuple[_Small, _Name]), ("os",)),
        "read_task": Operation(_list_of(TaskRead)),
        "read_behind": Operation(tuple[_Signed | None, Status, _Text]),
        "page_cache": Operation(_list_of(tuple[_Number | None, _Number | None, _Number | None, Status])),
        "gather": Operation(Gathering, (), MOST_GATHERED_BYTES),
    }
)
_UNKNOWN = Operation(None)


@cache
def _checker(name: str) -> TypeAdapter[Any]:
    """Creates a checker when it is first needed: all together take a third of a second."""
    return TypeAdapter(operation(name).value)


def operation(name: str) -> Operation:
    """Returns the operation; an unknown one has no value and no expected errors."""
    return OPERATIONS.get(name, _UNKNOWN)


def checked_answer(name: str, header: Mapping[str, Any]) -> Any:
    """Returns the value of an answer to operation ``name``, or its :class:`Fault`. Raises
    :class:`WrongAnswer`."""
    try:
        if "error" in header:
            return Fault.model_validate(header["error"])
        return _checker(name).validate_python(header.get("ok"))
    except ValidationError as e:
        what = "an error without its words" if "error" in header else "an answer of the wrong form"
        raise WrongAnswer(f"{what} to {name}: {first_fault(e)}") from None
