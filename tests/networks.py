"""Hosts on one switch, for tests: network namespaces with an address each, joined by a bridge. Root only."""

from __future__ import annotations

import os
import random
import shutil
import subprocess

_random = random.SystemRandom()


def can_make() -> bool:
    """Returns whether this process may make namespaces, and has the program for it."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"dt{os.getpid()}"
    return _ip("netns", "add", name, check=False) and _ip("netns", "delete", name, check=False)


def shifted(seconds: int) -> list[str]:
    """Returns the beginning of a command line whose monotonic clock is ahead by so much; empty if
    impossible here."""
    return _if_it_works("unshare", "--time", "--monotonic", str(seconds), "--boottime", str(seconds))


def without_rights() -> list[str]:
    """Returns the beginning of a command line without capabilities; empty if impossible here."""
    return _if_it_works("setpriv", "--bounding-set=-all", "--inh-caps=-all")


def _if_it_works(*words: str) -> list[str]:
    done = subprocess.run([*words, "true"], capture_output=True, check=False)
    return [*words] if done.returncode == 0 else []


class Network:
    """A switch on which this host has the first address; each :meth:`host` adds one in a namespace of its
    own.

    ``of``: name of an existing network, which stays, and this host's address in it.
    """

    def __init__(self, of: tuple[str, str] | None = None) -> None:
        self._hosts: list[str] = []
        self._ours = of is None
        if of is not None:
            self.name, self._net = of[0], of[1].rpartition(".")[0]
            return
        self.name = f"dt{_random.randrange(1 << 20):05x}"
        self._net = f"10.{_random.randrange(200, 250)}.{_random.randrange(1, 250)}"
        _ip("link", "add", self.name, "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", self.name)
        _ip("link", "set", self.name, "up")

    @property
    def address(self) -> str:
        """Returns this host's address."""
        return f"{self._net}.1"

    def host(self, number: int) -> str:
        """Adds a host, from 2 on, and returns its address."""
        name, end = self.namespace(number), self._end(number)
        _ip("netns", "add", name)
        self._hosts.append(name)
        _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", end, "master", self.name, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "address", "add", f"{self._net}.{number}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "route", "add", "default", "via", self.address)
        return f"{self._net}.{number}"

    def namespace(self, number: int) -> str:
        return f"{self.name}-{number}"

    def within(self, number: int) -> list[str]:
        """Returns the beginning of a command line that runs on that host."""
        return ["ip", "netns", "exec", self.namespace(number)]

    def close(self) -> None:
        for name in self._hosts:
            _ip("netns", "delete", name, check=False)
        if self._ours:
            _ip("link", "delete", self.name, check=False)

    def _end(self, number: int) -> str:
        return f"{self.name}{number}"


def delayed(end: str, ms: int) -> bool:
    """Delays packets to that host until its network is gone. Returns False if the kernel cannot."""
    words = ["tc", "qdisc", "add", "dev", end, "root", "netem", "delay", f"{ms}ms"]
    return shutil.which("tc") is not None and subprocess.run(words, capture_output=True).returncode == 0


def link(end: str, state: str) -> None:
    """Sets a link ``up`` or ``down``."""
    _ip("link", "set", end, state)


def _ip(*words: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, (words, done.stderr)
    return done.returncode == 0
