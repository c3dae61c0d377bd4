"""Manage tenants and their plans."""

from typing import Annotated

import typer

from duly.cli.accounts.shared import (
    print_item,
    print_page,
    tenant_pairs,
    tenant_row,
)
from duly.cli.confirm import YesFlag, confirm
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag
from duly.cli.output.printing import Output, OutputFlag
from duly.cli.output.text import clean, now
from duly.client.shapes.account_shapes import Tenant, TenantChange
from duly.model.wording import count_of

tenant = typer.Typer(
    name="tenant", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
PlanFlag = Annotated[
    str | None, typer.Option(metavar="PLAN", help="The tenant's plan, from 'duly plan list'.")
]
PLAN_WEIGHT = "plan"
WeightFlag = Annotated[
    str | None,
    typer.Option(
        metavar=f"N|{PLAN_WEIGHT}",
        help="Weight in the fair share between tenants, 1 to 1000; plan: that of its plan.",
    ),
]
FairUsersFlag = Annotated[
    bool | None,
    typer.Option(
        "--fair-users/--no-fair-users",
        help="Whether its users divide its fair share, for tasks submitted from now on.",
        show_default=False,
    ),
]
COLUMNS = (
    "id",
    "name",
    "plan",
    "weight",
    "weight_override",
    "fair_users",
    "share",
    "fair_share",
    "status",
    "users",
    "created_at",
    "suspended_at",
)


@tenant.command()
def create(
    name: TenantName,
    plan: PlanFlag = None,
    weight: WeightFlag = None,
    fair_users: FairUsersFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Create a tenant, by default on the plan free."""
    own_weight = None if weight is None else parse_weight(weight)
    with connect() as client:
        shown = client.create_tenant(name, plan, weight=own_weight, fair_users=bool(fair_users))
        print_tenant(shown, output)


@tenant.command("list")
def list_tenants(
    limit: LimitFlag = 50, cursor: CursorFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List tenants, newest first; without the scope admin, only your own."""
    with connect() as client:
        page = client.list_tenants(limit=limit, cursor=cursor)
    head = ("NAME", "PLAN", "WEIGHT", "SHARE", "FAIR SHARE", "STATUS", "USERS", "CREATED")
    rows = [tenant_row(item, now()) for item in page["items"]]
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
    weight: WeightFlag = None,
    fair_users: FairUsersFlag = None,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="A new name.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change the plan, the shares or the name of a tenant.

    A weight applies from the next scheduling round.
    """
    if plan is None and weight is None and fair_users is None and new_name is None:
        raise typer.BadParameter(
            "There is nothing to change. Give --plan, --weight, --fair-users or --name."
        )
    change: TenantChange = {"name": new_name, "plan": plan, "fair_users": fair_users}
    if weight is not None:
        change["weight"] = parse_weight(weight)
    with connect() as client:
        print_tenant(client.update_tenant(name, **change), output)


@tenant.command()
def suspend(name: TenantName, output: OutputFlag = Output.TABLE) -> None:
    """Suspend a tenant: it becomes read-only and none of its tasks start."""
    with connect() as client:
        print_tenant(client.suspend_tenant(name), output)


@tenant.command()
def resume(name: TenantName, output: OutputFlag = Output.TABLE) -> None:
    """Lift the suspension of a tenant."""
    with connect() as client:
        print_tenant(client.resume_tenant(name), output)


@tenant.command()
def remove(name: TenantName, yes: YesFlag = False) -> None:
    """Remove a tenant without live tasks permanently, with its users, keys and schedules.

    Its history keeps its ID; the name can be given to a new tenant.
    """
    with connect() as client:
        shown = client.get_tenant(name)
        users = f"{count_of(shown['users'], 'user')} and " if shown["users"] else ""
        with_it = f"with {users}all of its keys and schedules"
        confirm(f"Remove the tenant {shown['name']} for good, {with_it}?", yes=yes)
        client.remove_tenant(shown["id"])
    print(clean(f"Tenant {shown['name']} (ID {shown['id']}) removed, {with_it}."))


def parse_weight(text: str) -> int | None:
    """Return the weight of a flag; None is that of the plan."""
    if text.strip() == PLAN_WEIGHT:
        return None
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text[:40]!r} is not a whole number. Give one, or {PLAN_WEIGHT} for the plan's.",
            param_hint="--weight",
        ) from None


def print_tenant(shown: Tenant, output: Output) -> None:
    """Print a tenant."""
    print_item(shown, output, COLUMNS, tenant_pairs(shown, now()))
