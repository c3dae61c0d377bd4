"""The nodes: the machines that run tasks."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.details import node_details
from duly.cli.output import Output, OutputFlag, print_items, print_value
from duly.cli.text import now
from duly.client.shapes import Node

node = typer.Typer(
    name="node", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

NodeId = Annotated[str, typer.Argument(metavar="ID", help="The node.")]
COLUMNS = ("id", "name", "status", "tasks", "capacity", "free", "last_heartbeat_at")


@node.command("list")
def list_nodes(output: OutputFlag = Output.TABLE) -> None:
    """List the nodes."""
    with connect() as client:
        page = client.list_nodes()
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
    elif page["items"]:
        from duly.cli.tables import draw_nodes

        draw_nodes(page["items"], now())
    else:
        print("No nodes have joined yet.")


@node.command()
def show(wanted: NodeId, output: OutputFlag = Output.TABLE) -> None:
    """Show everything about a node."""
    with connect() as client:
        print_node(client.get_node(wanted), output)


@node.command()
def drain(wanted: NodeId, output: OutputFlag = Output.TABLE) -> None:
    """Let a node finish what it runs and take no more."""
    with connect() as client:
        print_node(client.drain_node(wanted), output)


@node.command()
def undrain(wanted: NodeId, output: OutputFlag = Output.TABLE) -> None:
    """Let a node take tasks again."""
    with connect() as client:
        print_node(client.undrain_node(wanted), output)


def print_node(found: Node, output: Output) -> None:
    """Print one node."""
    if output is not Output.TABLE:
        print_value(found, output, COLUMNS)
        return
    from duly.cli.tables import draw_pairs

    draw_pairs(node_details(found, now()))
