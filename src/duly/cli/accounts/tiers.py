"""The tiers: names for amounts of resources."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.flags import ResourceFlags, with_resource_flags
from duly.cli.output import Output, OutputFlag, print_items, print_value
from duly.cli.people import TenantFlag
from duly.cli.request import resource_fields
from duly.client.plan_shapes import Tier
from duly.client.shapes import ResourceFields

tier = typer.Typer(
    name="tier", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

TierName = Annotated[str, typer.Argument(metavar="NAME", help="The tier.")]
EveryoneFlag = Annotated[
    bool, typer.Option("--everyone", help="For all tenants, not for yours; needs the scope admin.")
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
    """Say what a name stands for, within your plan; basic and the like may be said anew."""
    _check_whose(tenant, everyone=everyone)
    wanted = _amounts(flags)
    with connect() as client:
        print_tier(client.create_tier(name, wanted, tenant=tenant, everyone=everyone), output)


@tier.command("list")
def list_tiers(tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """List the tiers that you know, and who says what they stand for."""
    with connect() as client:
        page = client.list_tiers(tenant=tenant)
    if output is not Output.TABLE:
        items = [with_id(one, output) for one in page["items"]]
        print_items(items, page["next_cursor"], output, COLUMNS)
        return
    from duly.cli.plan_tables import draw_tiers

    draw_tiers(page["items"])


@tier.command()
def show(name: TierName, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show what a name stands for."""
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
    """Change what a name stands for, kind by kind."""
    _check_whose(tenant, everyone=everyone)
    wanted = _amounts(flags)
    with connect() as client:
        print_tier(client.update_tier(name, wanted, tenant=tenant, everyone=everyone), output)


@tier.command()
def remove(name: TierName, tenant: TenantFlag = None, everyone: EveryoneFlag = False) -> None:
    """Take back what was said of a name: it means again what it meant before, if anything."""
    _check_whose(tenant, everyone=everyone)
    with connect() as client:
        client.remove_tier(name, tenant=tenant, everyone=everyone)


def _check_whose(tenant: str | None, *, everyone: bool) -> None:
    if everyone and tenant is not None:
        raise typer.BadParameter("Say --tenant or --everyone, not both.")


def _amounts(flags: ResourceFlags) -> ResourceFields:
    wanted = resource_fields(flags)
    if not wanted:
        raise typer.BadParameter("Say how much it is, such as --cpu 2 --memory 4GiB.")
    return wanted


def print_tier(found: Tier, output: Output) -> None:
    """Print one tier."""
    if output is not Output.TABLE:
        print_value(with_id(found, output), output, COLUMNS)
        return
    from duly.cli.plan_tables import draw_tiers

    draw_tiers([found])


def with_id(found: Tier, output: Output) -> dict[str, object]:
    """Return a tier for programs; by its id its name is meant."""
    return {"id": found["name"], **found} if output is Output.ID else {**found}
