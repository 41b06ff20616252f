"""A host that lies, in place of ssh: it speaks the script's lines, then frames of its own making.

``hostile_host.py CASE VERSION`` is started with the words that ssh would get, too. Up to the agent it does as
it should; then it answers ``hello`` and the clock as an agent does, and what the case names as the case says.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
import zlib
from typing import Any

HELLO = {
    "protocol": 1,
    "hash": "",
    "uid": 7,
    "pid": 70,
    "hostname": "far",
    "boot_id": None,
    "machine_id": None,
    "kernel": "6.1",
    "arch": "x86_64",
    "cpus": 1,
    "affinity": None,
    "ns_per_tick": 10_000_000,
    "page_bytes": 4096,
}
EMPTY = {"read": [], "link": [], "list": [], "stat": []}


def frame(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<II", len(text), len(body)) + text + body


def bomb(mebibytes: int) -> bytes:
    """Returns a part of a watch's tables: a frame of zeros, a thousandth of its size, with the checksum
    that fits."""
    text = b'{"tables":[]}'
    start = struct.pack("<II", len(text), mebibytes << 20) + text
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    zeros = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    high, low = divmod(zlib.adler32(start), 1 << 16)
    high = (high + (mebibytes << 20) * low) % 65521  # RFC 1950, section 8.2: zeros leave the lower half
    return b"\x78\xda" + first + mebibytes * zeros + packer.flush() + struct.pack(">HH", high, low)


def answers(case: str, request: dict[str, Any], product: str) -> bytes:
    """Returns the host's answer to one request."""
    op, number = request.get("op"), request.get("id")
    ok: dict[str, Any] = {"id": number, "ok": None}
    if op == "hello" and not case.startswith("hello"):
        return frame(ok | {"ok": HELLO | {"product": product}})
    if op == "clock" and not case.startswith("clock"):
        return frame(ok | {"ok": time.monotonic_ns()})
    if op == "watch.new":
        return frame(ok | {"ok": 1})
    return (
        {
            "hello: no object": lambda: frame(ok | {"ok": [1, 2]}),
            "hello: half of it": lambda: frame(ok | {"ok": {"product": product}}),
            "hello: noise without end": lambda: b"\x1b]0;owned\x07 hello " * 100_000,
            "hello: a length of 4 GB": lambda: struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF),
            "hello: a body of 1 GB": lambda: (
                struct.pack("<II", 16, 1 << 30) + b'{"id":1,"ok":[]}' + bytes(1 << 20)
            ),
            "hello: nested": lambda: frame(b"[" * 1_000_000),
            "hello: a huge number": lambda: frame(b'{"id":1,"ok":' + b"9" * 1_000_000 + b"}"),
            "hello: no UTF-8": lambda: frame(b'{"id":1,"ok":"\xff\xfe"}'),
            "hello: NaN": lambda: frame(b'{"id":1,"ok":NaN}'),
            "hello: half a pair": lambda: frame(b'{"id":1,"ok":"\\ud800"}'),
            "hello: no answer's id": lambda: frame({"id": [1], "ok": None}),
            "hello: to nobody": lambda: frame({"id": 99, "ok": None}),
            "hello: twice": lambda: 2 * frame(ok | {"ok": HELLO | {"product": product}}),
            "hello: an error without fields": lambda: frame({"id": number, "error": {}}),
            "hello: an error of null": lambda: frame({"id": number, "error": None}),
            "hello: an error of nulls": lambda: frame(
                {"id": number, "error": dict.fromkeys(("family", "kind", "message", "code", "session"))}
            ),
            "hello: an unknown error": lambda: frame(
                {"id": number, "error": {"family": "x", "kind": 1, "message": [], "code": {}, "session": "s"}}
            ),
            "hello: an error that steers": lambda: frame(
                {
                    "id": number,
                    "error": {
                        "family": "os",
                        "kind": "io",
                        "message": "\x1b]0;owned\x07",
                        "code": "5",
                        "session": None,
                    },
                }
            ),
            "clock: a text": lambda: frame(ok | {"ok": "now"}),
            "clock: absurd": lambda: frame(ok | {"ok": 10**40}),
            "clock: before all time": lambda: frame(ok | {"ok": -(2**62)}),
            "clock: leaps": lambda: frame(ok | {"ok": time.monotonic_ns() + (number or 0) * 10**12}),
            "clock: stands still": lambda: frame(ok | {"ok": 5}) if not time.sleep(0.01) else b"",
            "gather: nothing": lambda: frame(ok | {"ok": EMPTY}),
            "gather: no object": lambda: frame(ok | {"ok": [[]] * 100_000}),
            "gather: an error": lambda: frame({"id": number, "error": {"family": "os"}}),
            "watch: a bomb": lambda: frame(ok | {"ok": 1}, bomb(3000)),
            "watch: no zlib": lambda: frame(ok | {"ok": 1}, b"x" * 1000),
            "watch: cut off": lambda: frame(ok | {"ok": 1}, zlib.compress(frame({"tables": []}))[:-5]),
            "watch: more behind": lambda: frame(
                ok | {"ok": 1}, zlib.compress(frame({"tables": []})) + b"more"
            ),
            "watch: no end of parts": lambda: frame(ok | {"ok": 2**40}, zlib.compress(frame({"tables": []}))),
            "watch: no parts": lambda: frame(ok | {"ok": 0}, zlib.compress(frame({"tables": []}))),
            "watch: a description alone": lambda: frame(
                ok | {"ok": 1},
                zlib.compress(frame({"tables": [["tasks", [["before_ns", "i64", 8, None, None]]]]})),
            ),
        }[case]()
        if op != "drop"
        else b""
    )


def serve(case: str, product: str) -> None:
    """Reads requests, and answers until its input ends."""
    read = b""
    while piece := os.read(0, 1 << 16):
        read += piece
        while len(read) >= 8:
            header, body = struct.unpack_from("<II", read)
            if len(read) < 8 + header + body:
                break
            request, read = json.loads(read[8 : 8 + header]), read[8 + header + body :]
            left = memoryview(answers(case, request, product))
            while left:
                left = left[os.write(1, left) :]


def main() -> None:
    case, product = sys.argv[1:3]
    script = b""
    while b"dbdyno_main\n}" not in script and not script.endswith(b"\ndbdyno_main\n"):
        script += os.read(0, 1 << 16)
    os.write(1, b"welcome\ndbdyno host Linux x86_64\n")
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    os.write(1, b"dbdyno installed\n")
    serve(case, product)


if __name__ == "__main__":
    main()
