"""The commands that give the right that is missing."""

from __future__ import annotations

from pathlib import Path

_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)


def as_root() -> str:
    return "run as root: sudo dbdyno run ..."


def delegated() -> str:
    """Our own user's server: a scope of systemd's is ours to divide (Delegate=yes)."""
    if not _SYSTEMD.exists():
        return f"{as_root()} (there is no systemd here to delegate a control group)"
    return (
        "start dbdyno and with it the embedded server in a delegated scope: "
        "systemd-run --user --scope -p Delegate=yes dbdyno run ... "
        "(for a server that is to stay: ... dbdyno server start); or as root: sudo dbdyno run ..."
    )


def no_controller(controller: str) -> str:
    """Users' managers get few controllers by default (systemd's user@.service)."""
    if not _SYSTEMD.exists():
        return f"the {controller} controller has to be enabled above, by root; {container()}"
    return (
        "have it delegated: sudo systemctl edit user@.service, there [Service] Delegate=cpu cpuset io memory "
        "pids, then log in again; or as root: sudo dbdyno run ..."
    )


def container() -> str:
    return (
        "in a container: start it with --privileged, or limit the container itself "
        "(docker run --cpus, --cpuset-cpus, --cpuset-mems)"
    )


def other_host() -> str:
    return (
        "run dbdyno where the server's processes are seen: on its host, in its pid namespace (docker run "
        "--pid=host), as a user from whom /proc does not hide them"
    )


def no_cpuset(mems: str) -> str:
    return f"start the server under the policy: numactl --membind={mems} --cpunodebind={mems} COMMAND"
