"""``dbdyno web``: the runs of a store in the browser."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dbdyno.cli import screen
from dbdyno.cli.flags import Grouped
from dbdyno.cli.options import store_option
from dbdyno.model.errors import UsageError
from dbdyno.store.listing import default_root

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command(cls=Grouped, groups={"Who may reach it": ("listen", "tls_cert", "tls_key", "insecure")})
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
@store_option
def web(
    listen: str | None, tls_cert: Path | None, tls_key: Path | None, insecure: bool, store: Path | None
) -> None:
    """Show the runs of this store in the browser.

    Prints an address with a secret that opens it once; the browser is let in from then on, until the server
    ends. Each use prints the next address, for another browser. Only this machine reaches it; from another
    one, use a tunnel: ssh -L 8431:127.0.0.1:8431 HOST. Ctrl-C ends it.

    \b
    Examples:
      dbdyno web
      dbdyno web --listen 9000
      dbdyno web --store /srv/runs
      dbdyno web --listen 0.0.0.0:8431 --tls-cert web.pem --tls-key web.key
    """
    from dbdyno import web as room

    room.check_installed()
    from dbdyno.web.address import listening
    from dbdyno.web.serving import serve

    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together", "give both, or neither")
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    address = listening(listen, insecure=insecure, tls=tls)
    if os.geteuid() == 0:
        screen.note(
            "warning: started as root: whoever opens the address acts as root; start it as another user"
        )
    if not address.is_local and tls is None:
        screen.note("warning: --insecure: whoever is on the way can read the secret and every page")
    click.echo(f"Runs in {store or default_root()}. Open this address; Ctrl-C ends the server:")
    serve(address, store, lambda url: click.echo(f"  {url}"))
