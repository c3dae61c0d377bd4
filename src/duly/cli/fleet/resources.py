"""Inspect allocations of running tasks, and manage reservations."""

from typing import Annotated

import typer

from duly.cli.completion import complete_node
from duly.cli.connect import connect, print_notice
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean, now
from duly.cli.tasks.flags import ExpiresFlag, ResourceFlags, with_resource_flags
from duly.cli.tasks.submission.request import parse_expires, resource_fields
from duly.cli.tasks.tasks import TenantFlag
from duly.client.shapes.fleet_shapes import Allocation

resources = typer.Typer(
    name="resources",
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

ReservationId = Annotated[str, typer.Argument(metavar="ID", help="The reservation's ID.")]
COLUMNS = ("id", "kind", "tenant", "node", "resources", "task", "expires_at")


@resources.command("list")
def list_resources(
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Only those on this node.")
    ] = None,
    tenant: TenantFlag = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of items.")
    ] = 50,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the allocations of running tasks and reservations, newest first.

    A key with the scope admin lists those of all tenants, unless --tenant names one.
    """
    with connect() as client:
        page = client.list_resources(limit=limit, node=node, tenant=tenant)
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
    elif page["items"]:
        from duly.cli.output.tables import print_allocations

        print_allocations(page["items"], now(), with_tenant=page["tenant"] is None)
        if page["next_cursor"]:
            print_notice("There are more. List up to 1000 with --limit N.")
    else:
        print("No running tasks and no reservations.")


@resources.command()
@with_resource_flags
def reserve(
    flags: ResourceFlags,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="NODE",
            help="The node, by its ID or name. [default: any that has room]",
            autocompletion=complete_node,
        ),
    ] = None,
    expires: ExpiresFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Reserve resources of a node; without --expires, until they are released."""
    amounts = resource_fields(flags)
    if not amounts:
        raise typer.BadParameter(
            "There is nothing to reserve. Give amounts, such as --cpu 2 --memory 4GiB."
        )
    seconds = parse_expires(expires)
    with connect() as client:
        print_allocation(client.reserve(amounts, node=node, expires_in=seconds), output)


@resources.command()
@with_resource_flags
def update(
    flags: ResourceFlags,
    reservation: ReservationId,
    expires: ExpiresFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change the amounts or the lifetime of a reservation; it stays on its node."""
    amounts = resource_fields(flags)
    seconds = parse_expires(expires)
    if not amounts and seconds is None:
        raise typer.BadParameter(
            "There is nothing to change. Give a flag, such as --cpu 2 or --expires 8h."
        )
    with connect() as client:
        changed = client.update_reservation(reservation, amounts or None, expires_in=seconds)
    print_allocation(changed, output)


@resources.command()
def release(reservation: ReservationId) -> None:
    """Release a reservation."""
    with connect() as client:
        client.release(reservation)
    print(clean(f"Reservation {reservation} released."))


def print_allocation(shown: Allocation, output: Output) -> None:
    """Print an allocation."""
    if output is not Output.TABLE:
        print_value(shown, output, COLUMNS)
        return
    from duly.cli.output.tables import print_allocations

    print_allocations([shown], now())
