"""``dbdyno web``: the runs of a store in the browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbdyno.cli import screen
from dbdyno.cli.flags import Grouped
from dbdyno.cli.options import store_option
from dbdyno.model.errors import UsageError
from dbdyno.store.listing import default_root

if TYPE_CHECKING:
    from dbdyno.web.address import Address

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_REACH, _MAY = "Who may reach it", "What the browser may do"


@click.command(
    cls=Grouped,
    groups={
        _REACH: ("listen", "tls_cert", "tls_key", "insecure"),
        _MAY: ("allow_start", "allow_commands"),
    },
)
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    help="Address to listen on; port 0 takes any that is free.  [default: 127.0.0.1:8431]",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate, as PEM, for https.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its private key.")
@click.option(
    "--insecure",
    is_flag=True,
    help="With an address that others reach: http all the same. They can read along.",
)
@click.option("--allow-start", is_flag=True, help="Start and stop runs and observations.")
@click.option(
    "--allow-commands",
    is_flag=True,
    help="With --allow-start: also run commands, scripts and SQL of one's own, as you.",
)
@store_option
def web(
    listen: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    allow_start: bool,
    allow_commands: bool,
    store: Path | None,
) -> None:
    """Show the runs of this store in the browser.

    Prints an address with a secret that opens it once; the browser is let in from then on, until the server
    ends. Each use prints the next address, for another browser. Only this machine reaches it; from another
    one, use a tunnel: ssh -L 8431:127.0.0.1:8431 HOST. Ctrl-C ends it; runs that it started go on.

    \b
    Examples:
      dbdyno web
      dbdyno web --allow-start
      dbdyno web --listen 9000 --store /srv/runs
      dbdyno web --listen 0.0.0.0:8431 --tls-cert web.pem --tls-key web.key
    """
    from dbdyno import web as room

    room.check_installed()
    from dbdyno.web.address import listening, tls_files

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together", "give both, or neither")
    if allow_commands and not allow_start:
        raise UsageError("--allow-commands is about what the browser may start", "add --allow-start")
    root = store or default_root()
    tls = None if tls_cert is None or tls_key is None else tls_files(tls_cert, tls_key)
    address = listening(listen, insecure=insecure, tls=tls)
    _warn(address)
    click.echo(f"Runs in {root}. Open this address; Ctrl-C ends the server:")
    _serve(address, root, allow_start=allow_start, allow_commands=allow_commands)
    click.echo("The server has ended.")


def _warn(address: Address) -> None:
    if os.geteuid() == 0:
        screen.note(
            "warning: started as root: whoever opens the address acts as root; start it as another user"
        )
    if not address.is_local and address.tls is None:
        screen.note("warning: --insecure: whoever is on the way can read the secret and every page")
    if address.is_local and os.environ.get("SSH_CONNECTION"):
        there = address.url.partition("://")[2]
        screen.note(
            f"From the machine that you sit at: ssh -L {address.port}:{there} HOST, then the address."
        )


def _serve(address: Address, root: Path, *, allow_start: bool, allow_commands: bool) -> None:
    from dbdyno.web.serving import serve

    forms = None
    if allow_start:
        from dbdyno.cli.web_forms import CommandForms  # here, since it loads all that a run needs

        forms = CommandForms(root, commands=allow_commands)
    serve(address, root, lambda url: click.echo(f"  {url}"), forms)
