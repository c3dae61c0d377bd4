"""Manage tiers: named amounts of resources."""

from typing import Annotated

import typer

from duly.cli.accounts.shared import TenantFlag
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean
from duly.cli.tasks.flags import ResourceFlags, with_resource_flags
from duly.cli.tasks.submission.request import resource_fields
from duly.client.shapes.plan_shapes import Tier
from duly.client.shapes.task_shapes import ResourceFields

tier = typer.Typer(
    name="tier", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

TierName = Annotated[str, typer.Argument(metavar="NAME", help="The tier's name.")]
EveryoneFlag = Annotated[
    bool,
    typer.Option("--everyone", help="Apply to all tenants, not only yours; needs the scope admin."),
]
COLUMNS = ("name", "resources", "defined_by", "allowed")


@tier.command()
@with_resource_flags
def create(
    flags: ResourceFlags,
    name: TierName,
    tenant: TenantFlag = None,
    everyone: EveryoneFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Define a tier within the limits of your plan; built-in tiers may be redefined."""
    _check_owner(tenant, everyone=everyone)
    amounts = _required_resources(flags)
    with connect() as client:
        print_tier(client.create_tier(name, amounts, tenant=tenant, everyone=everyone), output)


@tier.command("list")
def list_tiers(
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the tiers that your tasks can use, and who defines them."""
    with connect() as client:
        page = client.list_tiers(tenant=tenant, limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        items = [with_id(item, output) for item in page["items"]]
        print_items(items, page["next_cursor"], output, COLUMNS)
        return
    from duly.cli.accounts.plan_tables import print_tiers

    print_tiers(page["items"])
    print_next_cursor(page["next_cursor"])


@tier.command()
def show(name: TierName, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show a tier."""
    with connect() as client:
        print_tier(client.get_tier(name, tenant=tenant), output)


@tier.command()
@with_resource_flags
def update(
    flags: ResourceFlags,
    name: TierName,
    tenant: TenantFlag = None,
    everyone: EveryoneFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change the resources of a tier, kind by kind."""
    _check_owner(tenant, everyone=everyone)
    amounts = _required_resources(flags)
    with connect() as client:
        print_tier(client.update_tier(name, amounts, tenant=tenant, everyone=everyone), output)


@tier.command()
def remove(name: TierName, tenant: TenantFlag = None, everyone: EveryoneFlag = False) -> None:
    """Remove the definition of a tier; a wider definition of its name applies again."""
    _check_owner(tenant, everyone=everyone)
    with connect() as client:
        client.remove_tier(name, tenant=tenant, everyone=everyone)
    print(clean(f"Tier {name} removed."))


def _check_owner(tenant: str | None, *, everyone: bool) -> None:
    if everyone and tenant is not None:
        raise typer.BadParameter("Give only one of --tenant and --everyone.")


def _required_resources(flags: ResourceFlags) -> ResourceFields:
    amounts = resource_fields(flags)
    if not amounts:
        raise typer.BadParameter(
            "The tier needs resources. Give amounts, such as --cpu 2 --memory 4GiB."
        )
    return amounts


def print_tier(shown: Tier, output: Output) -> None:
    """Print a tier."""
    if output is not Output.TABLE:
        print_value(with_id(shown, output), output, COLUMNS)
        return
    from duly.cli.accounts.plan_tables import print_tiers

    print_tiers([shown])


def with_id(shown: Tier, output: Output) -> dict[str, object]:
    """Return a tier for machine-readable output; its name serves as the id."""
    return {"id": shown["name"], **shown} if output is Output.ID else {**shown}
