"""The commands that serve the pages, and that open those of `duly up`."""

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.connect import say
from duly.cli.processes import DataFlag, HostFlag, PortFlag, VerboseFlag, tell


def dashboard(
    url: Annotated[
        str, typer.Option(metavar="URL[,URL…]", help="The servers, any of which will do.")
    ],
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8471,
    name: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="What people write in its address, if not --host."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificates to trust, for https; also DULY_CA_FILE."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate and those above it, in PEM form."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's key, in PEM form.")
    ] = None,
    verbose: VerboseFlag = False,
) -> None:
    """Serve the pages, on which people log in with a password.

    It is only another client: it needs no key of its own, and shows to each what its user may see.
    """
    from duly.client.endpoint import endpoint
    from duly.dashboard.options import PagesOptions
    from duly.launch.logs import log_to_stderr
    from duly.launch.ports import choose_port, is_loopback, local_name, url_of
    from duly.launch.tls import find_certificate
    from duly.private_file import close_to_others

    close_to_others()
    log_to_stderr(verbose=verbose)
    trusted = str(ca_file) if ca_file else os.environ.get("DULY_CA_FILE") or None
    endpoint(url, None, trusted)
    found = find_certificate(tls_cert, tls_key)
    options = PagesOptions(
        url=url,
        host=host,
        port=choose_port(host, port, count=1),
        name=name,
        ca_file=trusted,
        certificate=None if found is None else (str(found.chain), str(found.key)),
    )
    if found is None and not is_loopback(host):
        say("Passwords cross the network unencrypted: give it --tls-cert and --tls-key.")
    # Here, because it takes a second to import.
    from duly.dashboard.app import run

    scheme = "http" if found is None else "https"
    address = url_of(name or local_name(host), options.port, scheme=scheme)
    with contextlib.suppress(KeyboardInterrupt):
        run(options, lambda: tell(f"ready: {address}"))


def link(data: DataFlag = None) -> None:
    """Print a new one-time link to the pages of `duly up`.

    It works once, for five minutes, and opens the pages as the administrator; the link before
    it is void. Run it as the user who started `duly up`. Its data folder is the one that your
    configuration names, unless --data says otherwise.
    """
    from duly.launch.pages_link import new_link
    from duly.launch.user_config import find_data

    tell(new_link((data or find_data(os.environ)).absolute()))
