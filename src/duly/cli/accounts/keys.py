"""Manage the API keys of a tenant."""

from typing import Annotated

import typer

from duly.cli.accounts.shared import (
    SCOPES,
    TenantFlag,
    key_holder,
    key_pairs,
    key_row,
    print_item,
    print_page,
    read_scopes,
)
from duly.cli.confirm import YesFlag, confirm
from duly.cli.connect import connect, print_notice
from duly.cli.output.pages import CursorFlag, LimitFlag
from duly.cli.output.printing import Output, OutputFlag, print_value
from duly.cli.output.text import clean, format_moment, now
from duly.cli.tasks.flags import ExpiresFlag
from duly.cli.tasks.submission.request import parse_expires
from duly.client.shapes.account_shapes import Key, KeyChange

key = typer.Typer(
    name="key", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

KeyId = Annotated[
    str, typer.Argument(metavar="ID", help="The key's ID, or its first 12 characters.")
]
UserFlag = Annotated[str | None, typer.Option(metavar="NAME", help="The user that holds the key.")]
CreateUserFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The user that holds the key; created if there is no such user."
    ),
]
ServiceFlag = Annotated[
    str | None, typer.Option(metavar="NAME", help="The service that holds the key; any name.")
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
    user: CreateUserFlag = None,
    service: ServiceFlag = None,
    scopes: Annotated[
        str, typer.Option(metavar="SCOPES", help=f"Its scopes: {SCOPES}.")
    ] = "submit,read",
    expires: ExpiresFlag = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="A descriptive name.")] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Create a key and print it. It is shown only this once.

    Without --expires it is valid until it is revoked.
    """
    seconds = parse_expires(expires)
    with connect() as client:
        created = client.create_key(
            read_scopes(scopes),
            tenant=tenant,
            user=user,
            service=service,
            name=name,
            expires_in=seconds,
        )
    if output is not Output.TABLE:
        print_value(created, output, (*COLUMNS, "key"))
        return
    holder = "/".join(filter(None, (created["tenant"], key_holder(created))))
    noun = "scope" if len(created["scopes"]) == 1 else "scopes"
    print_notice(
        f"Key {created['id']} of {holder} created, with the {noun} {', '.join(created['scopes'])}; "
        f"it {_expiry(created)}. It is shown only this once:"
    )
    print(created["key"])


def _expiry(created: Key) -> str:
    at = created["expires_at"]
    return "never expires" if at is None else f"expires at {format_moment(at, now())}"


@key.command("list")
def list_keys(
    tenant: TenantFlag = None,
    user: UserFlag = None,
    service: ServiceFlag = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include revoked and expired keys.")
    ] = False,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List keys, newest first; the secrets are never shown."""
    with connect() as client:
        page = client.list_keys(
            tenant=tenant, user=user, service=service, all=everything, limit=limit, cursor=cursor
        )
    head = ("ID", "PREFIX", "HOLDER", "SCOPES", "STATUS", "EXPIRES", "NAME")
    rows = [key_row(item, now()) for item in page["items"]]
    print_page(page, output, COLUMNS, head, rows, "No keys. Create one with: duly key create")


@key.command()
def show(key_id: KeyId, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show the holder, scopes and expiry of a key; the secret is never shown."""
    with connect() as client:
        stored_key = client.get_key(key_id, tenant=tenant)
    print_item(stored_key, output, COLUMNS, key_pairs(stored_key, now()))


@key.command()
def update(
    key_id: KeyId,
    tenant: TenantFlag = None,
    scopes: Annotated[
        str | None, typer.Option(metavar="SCOPES", help=f"New scopes: {SCOPES}.")
    ] = None,
    expires: ExpiresFlag = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="A new name, or '' for none.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change the scopes, expiry or name of a key; the secret stays the same.

    With --expires never it is valid until it is revoked.
    """
    change: KeyChange = {}
    if scopes is not None:
        change["scopes"] = read_scopes(scopes)
    if expires is not None:
        change["expires_in"] = None if expires == "never" else parse_expires(expires)
    if name is not None:
        change["name"] = name or None
    if not change:
        raise typer.BadParameter("There is nothing to change. Give --scopes, --expires or --name.")
    with connect() as client:
        changed = client.update_key(key_id, tenant=tenant, **change)
    print_item(changed, output, COLUMNS, key_pairs(changed, now()))


@key.command()
def revoke(key_id: KeyId, tenant: TenantFlag = None, yes: YesFlag = False) -> None:
    """Revoke a key on every server within moments; 'duly key list --all' still shows it."""
    with connect() as client:
        stored_key = client.get_key(key_id, tenant=tenant)
        holder = "/".join(filter(None, (stored_key["tenant"], key_holder(stored_key))))
        which = f"{stored_key['id']} ({stored_key['prefix']}…) of {holder}"
        confirm(f"Revoke the key {which} for good?", yes=yes)
        client.revoke_key(stored_key["id"], tenant=tenant)
    print(clean(f"Key {which} revoked."))


key.command("remove", help="Same as revoke.")(revoke)
