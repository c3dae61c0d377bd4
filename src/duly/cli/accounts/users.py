"""Manage the users of a tenant."""

from typing import Annotated

import typer

from duly.cli.accounts.shared import (
    SCOPES,
    TenantFlag,
    print_item,
    print_page,
    read_password,
    read_scopes,
    user_pairs,
    user_row,
)
from duly.cli.confirm import YesFlag, confirm
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag
from duly.cli.output.printing import Output, OutputFlag
from duly.cli.output.text import clean, now
from duly.client.shapes.account_shapes import User
from duly.model.wording import count_of

user = typer.Typer(
    name="user", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

UserName = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
ScopesFlag = Annotated[
    str | None, typer.Option(metavar="SCOPES", help=f"Scopes of the user: {SCOPES}.")
]
PasswordFlag = Annotated[bool, typer.Option("--password", help="Prompt for a password.")]
StdinFlag = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
]
COLUMNS = ("id", "name", "tenant", "scopes", "has_password", "keys", "created_at")


@user.command()
def create(
    name: UserName,
    tenant: TenantFlag = None,
    scopes: ScopesFlag = None,
    password: PasswordFlag = False,
    password_stdin: StdinFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Create a user; without a password it can hold keys but cannot log in."""
    secret = _password_from_flags(ask=password, from_stdin=password_stdin)
    scope_names = None if scopes is None else read_scopes(scopes)
    with connect() as client:
        created = client.create_user(name, password=secret, scopes=scope_names, tenant=tenant)
    print_user(created, output)


@user.command("list")
def list_users(
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List users, newest first."""
    with connect() as client:
        page = client.list_users(tenant=tenant, limit=limit, cursor=cursor)
    head = ("NAME", "SCOPES", "PASSWORD", "KEYS", "CREATED")
    rows = [user_row(item, now()) for item in page["items"]]
    print_page(
        page, output, COLUMNS, head, rows, "No users yet. Create one with: duly user create NAME"
    )


@user.command()
def show(name: UserName, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show a user."""
    with connect() as client:
        print_user(client.get_user(name, tenant=tenant), output)


@user.command()
def update(
    name: UserName,
    tenant: TenantFlag = None,
    scopes: ScopesFlag = None,
    password: PasswordFlag = False,
    password_stdin: StdinFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change a user's password or scopes.

    A new password ends the user's logins. Scopes taken from the user are taken from its keys too.
    """
    secret = _password_from_flags(ask=password, from_stdin=password_stdin)
    scope_names = None if scopes is None else read_scopes(scopes)
    if secret is None and scope_names is None:
        raise typer.BadParameter(
            "There is nothing to change. Give --password, --password-stdin or --scopes."
        )
    with connect() as client:
        changed = client.update_user(name, password=secret, scopes=scope_names, tenant=tenant)
    print_user(changed, output)


@user.command()
def remove(name: UserName, tenant: TenantFlag = None, yes: YesFlag = False) -> None:
    """Remove a user and revoke its keys; its tasks are kept."""
    with connect() as client:
        keys = client.get_user(name, tenant=tenant)["keys"]
        revoked = f", and revoke {count_of(keys, 'key')} of it" if keys else ""
        confirm(f"Remove the user {name}{revoked}?", yes=yes)
        client.remove_user(name, tenant=tenant)
    print(clean(f"User {name} removed, and its keys revoked."))


def print_user(shown: User, output: Output) -> None:
    """Print a user."""
    print_item(shown, output, COLUMNS, user_pairs(shown, now()))


def _password_from_flags(*, ask: bool, from_stdin: bool) -> str | None:
    if ask and from_stdin:
        raise typer.BadParameter("Give only one of --password and --password-stdin.")
    return read_password(from_stdin=from_stdin) if ask or from_stdin else None
