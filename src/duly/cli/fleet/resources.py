"""Who has what of the nodes: tasks that run, and reservations."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.flags import ResourceFlags, with_resource_flags
from duly.cli.output import Output, OutputFlag, print_items, print_value
from duly.cli.request import duration, resource_fields
from duly.cli.text import now
from duly.client.shapes import Allocation

resources = typer.Typer(
    name="resources",
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

ReservationId = Annotated[str, typer.Argument(metavar="ID", help="The reservation.")]
ExpiresFlag = Annotated[
    str | None, typer.Option(metavar="TIME", help="How long from now it lasts: 30m, 8h, 7d.")
]
COLUMNS = ("id", "kind", "node", "resources", "task", "expires_at")


@resources.command("list")
def list_resources(
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List what your tasks have of the nodes, and what you have reserved, newest first."""
    with connect() as client:
        page = client.list_resources(limit=limit)
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
    elif page["items"]:
        from duly.cli.tables import draw_allocations

        draw_allocations(page["items"], now())
    else:
        print("Nothing runs, and nothing is reserved.")


@resources.command()
@with_resource_flags
def reserve(
    flags: ResourceFlags,
    node: Annotated[str | None, typer.Option(help="The node; where it fits if not said.")] = None,
    expires: ExpiresFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Keep part of a node free of tasks; without --expires, until it is released."""
    wanted = resource_fields(flags)
    if not wanted:
        raise typer.BadParameter("Say what to reserve, such as --cpu 2 --memory 4GiB.")
    seconds = None if expires is None else duration("--expires", expires)
    with connect() as client:
        print_allocation(client.reserve(wanted, node=node, expires_in=seconds), output)


@resources.command()
@with_resource_flags
def update(
    flags: ResourceFlags,
    reservation: ReservationId,
    expires: ExpiresFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Change what is reserved, kind by kind, or how long it lasts; it stays on its node."""
    wanted = resource_fields(flags)
    seconds = None if expires is None else duration("--expires", expires)
    if not wanted and seconds is None:
        raise typer.BadParameter("Say what to change, such as --cpu 2 or --expires 8h.")
    with connect() as client:
        changed = client.update_reservation(reservation, wanted or None, expires_in=seconds)
    print_allocation(changed, output)


@resources.command()
def release(reservation: ReservationId) -> None:
    """Give back what is reserved."""
    with connect() as client:
        client.release(reservation)


def print_allocation(found: Allocation, output: Output) -> None:
    """Print one allocation."""
    if output is not Output.TABLE:
        print_value(found, output, COLUMNS)
        return
    from duly.cli.tables import draw_allocations

    draw_allocations([found], now())
