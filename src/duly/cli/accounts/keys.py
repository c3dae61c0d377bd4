"""The keys of a tenant: who may do what, and for how long."""

from typing import Annotated

import typer

from duly.cli.connect import connect, say
from duly.cli.output import Output, OutputFlag, print_value
from duly.cli.people import (
    SCOPES,
    CursorFlag,
    LimitFlag,
    TenantFlag,
    holder_of,
    key_pairs,
    key_row,
    print_one,
    print_page,
    read_scopes,
)
from duly.cli.request import duration
from duly.cli.text import now, say_time
from duly.client.people_shapes import KeyChange

key = typer.Typer(
    name="key", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

KeyId = Annotated[
    str, typer.Argument(metavar="ID", help="The key, by its id or its first 12 characters.")
]
UserFlag = Annotated[str | None, typer.Option(metavar="NAME", help="The user that holds it.")]
ServiceFlag = Annotated[
    str | None, typer.Option(metavar="NAME", help="The service that holds it, a mere name.")
]
COLUMNS = (
    "id",
    "prefix",
    "name",
    "tenant",
    "user",
    "service",
    "scopes",
    "status",
    "created_at",
    "expires_at",
    "revoked_at",
)


@key.command()
def create(
    tenant: TenantFlag = None,
    user: UserFlag = None,
    service: ServiceFlag = None,
    scopes: Annotated[
        str, typer.Option(metavar="SCOPES", help=f"What it may do: {SCOPES}.")
    ] = "submit,read",
    expires_in: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends: 12h, 90d; never if not said.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name to know it by.")] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Make a key and print it: it is shown only this once."""
    seconds = None if expires_in is None else duration("--expires-in", expires_in)
    with connect() as client:
        made = client.create_key(
            read_scopes(scopes),
            tenant=tenant,
            user=user,
            service=service,
            name=name,
            expires_in=seconds,
        )
    if output is not Output.TABLE:
        print_value(made, output, (*COLUMNS, "key"))
        return
    holder = holder_of(made)
    say(
        f"Key {made['id']} of {made['tenant']}{'/' + holder if holder else ''} for "
        f"{', '.join(made['scopes'])}; expires {say_time(made['expires_at'], now()) or 'never'}. "
        "It is shown only this once:"
    )
    print(made["key"])


@key.command("list")
def list_keys(
    tenant: TenantFlag = None,
    user: UserFlag = None,
    service: ServiceFlag = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are revoked or have expired.")
    ] = False,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the keys, newest first; never the keys themselves."""
    with connect() as client:
        page = client.list_keys(
            tenant=tenant, user=user, service=service, all=everything, limit=limit, cursor=cursor
        )
    head = ("ID", "PREFIX", "HOLDER", "SCOPES", "STATUS", "EXPIRES", "NAME")
    rows = [key_row(one, now()) for one in page["items"]]
    print_page(page, output, COLUMNS, head, rows, "No keys.")


@key.command()
def show(wanted: KeyId, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show who holds a key and what it may do; never the key itself."""
    with connect() as client:
        found = client.get_key(wanted, tenant=tenant)
    print_one(found, output, COLUMNS, key_pairs(found, now()))


@key.command()
def update(
    wanted: KeyId,
    tenant: TenantFlag = None,
    scopes: Annotated[
        str | None, typer.Option(metavar="SCOPES", help=f"What it may do from now on: {SCOPES}.")
    ] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it ends, from now on: 12h, 90d, or never."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name to know it by, or '' for none.")] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change what a key may do, when it ends or what it is called; it stays the same key."""
    change: KeyChange = {}
    if scopes is not None:
        change["scopes"] = read_scopes(scopes)
    if expires_in is not None:
        is_for_good = expires_in == "never"
        change["expires_in"] = None if is_for_good else duration("--expires-in", expires_in)
    if name is not None:
        change["name"] = name or None
    if not change:
        raise typer.BadParameter("Say what to change: --scopes, --expires-in or --name.")
    with connect() as client:
        changed = client.update_key(wanted, tenant=tenant, **change)
    print_one(changed, output, COLUMNS, key_pairs(changed, now()))


@key.command()
def revoke(wanted: KeyId, tenant: TenantFlag = None) -> None:
    """Let a key open nothing any more, on every server in a moment; it stays in the list."""
    with connect() as client:
        client.revoke_key(wanted, tenant=tenant)


key.command("remove", help="The same as revoke.")(revoke)
