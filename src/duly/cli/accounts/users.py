"""The users of a tenant."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag
from duly.cli.people import (
    SCOPES,
    CursorFlag,
    LimitFlag,
    TenantFlag,
    print_one,
    print_page,
    read_password,
    read_scopes,
    user_pairs,
    user_row,
)
from duly.cli.text import now
from duly.client.people_shapes import User

user = typer.Typer(
    name="user", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

UserName = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
ScopesFlag = Annotated[
    str | None, typer.Option(metavar="SCOPES", help=f"What it may do once logged in: {SCOPES}.")
]
PasswordFlag = Annotated[bool, typer.Option("--password", help="Ask for a password, twice.")]
StdinFlag = Annotated[
    bool, typer.Option("--password-stdin", help="Take the password from the first line of stdin.")
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
    """Make a user; without a password it holds keys and cannot log in."""
    secret = _password(ask=password, from_stdin=password_stdin)
    wanted = None if scopes is None else read_scopes(scopes)
    with connect() as client:
        made = client.create_user(name, password=secret, scopes=wanted, tenant=tenant)
    print_user(made, output)


@user.command("list")
def list_users(
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the users, newest first."""
    with connect() as client:
        page = client.list_users(tenant=tenant, limit=limit, cursor=cursor)
    head = ("NAME", "SCOPES", "PASSWORD", "KEYS", "CREATED")
    rows = [user_row(one, now()) for one in page["items"]]
    print_page(page, output, COLUMNS, head, rows, "No users.")


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
    """Change a password, which ends the logins, or the scopes: what goes, goes from keys too."""
    secret = _password(ask=password, from_stdin=password_stdin)
    wanted = None if scopes is None else read_scopes(scopes)
    if secret is None and wanted is None:
        raise typer.BadParameter("Say what to change: --password, --password-stdin or --scopes.")
    with connect() as client:
        changed = client.update_user(name, password=secret, scopes=wanted, tenant=tenant)
    print_user(changed, output)


@user.command()
def remove(name: UserName, tenant: TenantFlag = None) -> None:
    """Remove a user and revoke its keys; its tasks stay."""
    with connect() as client:
        client.remove_user(name, tenant=tenant)


def print_user(found: User, output: Output) -> None:
    """Print one user."""
    print_one(found, output, COLUMNS, user_pairs(found, now()))


def _password(*, ask: bool, from_stdin: bool) -> str | None:
    if ask and from_stdin:
        raise typer.BadParameter("Give --password or --password-stdin, not both.")
    return read_password(from_stdin=from_stdin) if ask or from_stdin else None
