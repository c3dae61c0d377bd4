"""The nodes: the machines that run tasks."""

import time
from typing import Annotated

import typer

from duly.cli.connect import WHILE_WAITING, connect
from duly.cli.details import node_details
from duly.cli.flags import ResourceFlags, with_resource_flags
from duly.cli.output import Output, OutputFlag, print_items, print_value
from duly.cli.request import duration, resource_fields
from duly.cli.text import now
from duly.client.shapes import Node, TokenUses

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


token = typer.Typer(
    help="The tokens with which new nodes join.", no_args_is_help=True, rich_markup_mode=None
)
node.add_typer(token, name="token")


@token.command()
def create(
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is good for; 1h if not said.")
    ] = None,
    uses: Annotated[
        str | None,
        typer.Option(metavar="N|unlimited", help="How many nodes may join with it; 1 if not said."),
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Print a token for `duly agent --join-token-file`; it is shown only this once."""
    seconds = None if expires is None else duration("--expires", expires)
    with connect() as client:
        made = client.create_node_token(seconds, _uses(uses))
    if output in (Output.JSON, Output.JSONL):
        print_value(made, output)
    else:
        print(made["token"])


def _uses(text: str | None) -> TokenUses | None:
    if text is None:
        return None
    if text == "unlimited":
        return "unlimited"
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise typer.BadParameter("--uses is a number of nodes, or unlimited.")
    return int(text)


@node.command()
def show(wanted: NodeId, output: OutputFlag = Output.TABLE) -> None:
    """Show everything about a node."""
    with connect() as client:
        print_node(client.get_node(wanted), output)


@node.command()
def drain(
    wanted: NodeId,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until nothing runs on it.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Let a node finish what it runs and take no more."""
    with connect() as client:
        found = client.drain_node(wanted)
        while wait and found["status"] == "draining":
            client.patience = WHILE_WAITING
            time.sleep(1)
            found = client.get_node(wanted)
        print_node(found, output)


@node.command()
def undrain(wanted: NodeId, output: OutputFlag = Output.TABLE) -> None:
    """Let a node take tasks again."""
    with connect() as client:
        print_node(client.undrain_node(wanted), output)


@node.command()
@with_resource_flags
def update(
    flags: ResourceFlags,
    wanted: NodeId,
    own: Annotated[
        bool, typer.Option("--own", help="Go by what its agent says again, in everything.")
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Say what a node has, whatever its agent says; what runs there is not touched."""
    capacity = resource_fields(flags)
    if own == bool(capacity):
        raise typer.BadParameter("Say what it has, such as --cpu 2, or --own, only one of them.")
    with connect() as client:
        print_node(client.set_capacity(wanted, capacity or None), output)


@node.command()
def remove(wanted: NodeId) -> None:
    """Take a node away for good: what runs there is handed over, and it cannot come back."""
    with connect() as client:
        client.remove_node(wanted)


def print_node(found: Node, output: Output) -> None:
    """Print one node."""
    if output is not Output.TABLE:
        print_value(found, output, COLUMNS)
        return
    from duly.cli.tables import draw_pairs

    draw_pairs(node_details(found, now()))
