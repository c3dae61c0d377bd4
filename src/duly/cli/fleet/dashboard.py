"""`duly dashboard` serves the dashboard; `duly link` opens the one of `duly up`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.connect import print_notice
from duly.cli.fleet.processes import HostFlag, PortFlag, VerboseFlag, print_output


def dashboard(
    url: Annotated[
        str, typer.Option(metavar="URL[,URL…]", help="The servers; any one of them suffices.")
    ],
    host: HostFlag = "127.0.0.1",
    port: PortFlag = 8471,
    name: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Host name in the dashboard's URL. [default: --host]"),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CA certificates to trust for https; also DULY_CA_FILE."),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate chain in PEM format."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private key of the certificate in PEM format."),
    ] = None,
    verbose: VerboseFlag = False,
) -> None:
    """Serve the dashboard; users log in with a password.

    It is a client of the API without a key of its own: it shows users what their scopes allow.
    """
    from duly.client.endpoint import parse_endpoint
    from duly.dashboard.options import PagesOptions
    from duly.launch.local.ports import choose_port, is_loopback, public_name, url_of
    from duly.launch.logs import log_to_stderr
    from duly.launch.tls import find_certificate
    from duly.private_file import restrict_umask

    restrict_umask()
    log_to_stderr(verbose=verbose)
    trusted_file = str(ca_file) if ca_file else os.environ.get("DULY_CA_FILE") or None
    parse_endpoint(url, None, trusted_file, name="--url")
    certificate = find_certificate(tls_cert, tls_key)
    options = PagesOptions(
        url=url,
        host=host,
        port=choose_port(host, port, count=1),
        name=name,
        ca_file=trusted_file,
        certificate=None if certificate is None else (str(certificate.chain), str(certificate.key)),
    )
    if certificate is None and not is_loopback(host):
        print_notice("Passwords cross the network unencrypted. Use --tls-cert and --tls-key.")
    # Imported late: it takes a second.
    from duly.launch.dashboard import serve_until_interrupted

    scheme = "http" if certificate is None else "https"
    address = url_of(name or public_name(host), options.port, scheme=scheme)
    ready = lambda: print_output(f"ready: {address}")  # noqa: E731
    raise typer.Exit(serve_until_interrupted(options, ready))


def link(
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Data folder of 'duly up'. [default: the one in your configuration]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print a new one-time login link to the dashboard of 'duly up'.

    The link is valid once, for five minutes, and logs in as the administrator; it invalidates
    the previous link. Run the command as the user who started 'duly up'.
    """
    from duly.launch.local.pages_link import new_link
    from duly.launch.local.user_config import find_data

    print_output(new_link((data or find_data(os.environ)).absolute()))
