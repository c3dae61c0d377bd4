"""The tenants: who submits, and with which plan."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag
from duly.cli.people import (
    CursorFlag,
    LimitFlag,
    print_one,
    print_page,
    tenant_pairs,
    tenant_row,
)
from duly.cli.text import now
from duly.client.people_shapes import Tenant

tenant = typer.Typer(
    name="tenant", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant.")]
PlanFlag = Annotated[str | None, typer.Option(help="Its plan, such as standard.")]
COLUMNS = ("id", "name", "plan", "status", "users", "created_at", "suspended_at")


@tenant.command()
def create(name: TenantName, plan: PlanFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Make a tenant; its plan is free if not said."""
    with connect() as client:
        print_tenant(client.create_tenant(name, plan), output)


@tenant.command("list")
def list_tenants(
    limit: LimitFlag = 50, cursor: CursorFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List the tenants, newest first; without the scope admin, your own."""
    with connect() as client:
        page = client.list_tenants(limit=limit, cursor=cursor)
    head = ("NAME", "PLAN", "STATUS", "USERS", "CREATED")
    rows = [tenant_row(one, now()) for one in page["items"]]
    print_page(page, output, COLUMNS, head, rows, "No tenants.")


@tenant.command()
def show(name: TenantName, output: OutputFlag = Output.TABLE) -> None:
    """Show a tenant."""
    with connect() as client:
        print_tenant(client.get_tenant(name), output)


@tenant.command()
def update(
    name: TenantName,
    plan: PlanFlag = None,
    new_name: Annotated[
        str | None, typer.Option("--name", help="What it is called from now on.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Give a tenant another plan or another name."""
    if plan is None and new_name is None:
        raise typer.BadParameter("Say what to change: --plan or --name.")
    with connect() as client:
        print_tenant(client.update_tenant(name, name=new_name, plan=plan), output)


@tenant.command()
def suspend(name: TenantName, output: OutputFlag = Output.TABLE) -> None:
    """Let a tenant look and do nothing else; nothing of it starts until it is resumed."""
    with connect() as client:
        print_tenant(client.suspend_tenant(name), output)


@tenant.command()
def resume(name: TenantName, output: OutputFlag = Output.TABLE) -> None:
    """Let a suspended tenant go on where it was."""
    with connect() as client:
        print_tenant(client.resume_tenant(name), output)


@tenant.command()
def remove(name: TenantName) -> None:
    """Remove a tenant that has no live tasks, with its users and keys, for good."""
    with connect() as client:
        client.remove_tenant(name)


def print_tenant(found: Tenant, output: Output) -> None:
    """Print one tenant."""
    print_one(found, output, COLUMNS, tenant_pairs(found, now()))
