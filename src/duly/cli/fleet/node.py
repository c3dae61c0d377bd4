"""Inspect and manage nodes."""

import time
from typing import Annotated

import typer

from duly.cli.completion import complete_node
from duly.cli.confirm import YesFlag, confirm
from duly.cli.connect import WAITING_RETRIES, connect, print_notice
from duly.cli.output.details import node_details
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean, now
from duly.cli.tasks.flags import ExpiresFlag, ResourceFlags, with_resource_flags
from duly.cli.tasks.submission.request import parse_expires, resource_fields
from duly.cli.tasks.tasks import TenantFlag
from duly.client.shapes.fleet_shapes import Allocation, Node, TokenUses
from duly.client.sync import Client
from duly.model.wording import count_of

node = typer.Typer(
    name="node", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

NodeId = Annotated[
    str,
    typer.Argument(metavar="ID", help="The node's ID or name.", autocompletion=complete_node),
]
MAX_SHOWN = 100
"""The allocations that `duly node show` lists."""
COLUMNS = ("id", "name", "status", "tenant", "tasks", "capacity", "free", "last_heartbeat_at")


@node.command("list")
def list_nodes(
    limit: LimitFlag = 50, cursor: CursorFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List nodes, newest first."""
    with connect() as client:
        page = client.list_nodes(limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
    elif page["items"]:
        from duly.cli.output.tables import print_nodes

        print_nodes(page["items"], now())
        print_next_cursor(page["next_cursor"])
    else:
        print(
            "No nodes yet. Start 'duly agent' on a machine, with a token of "
            "'duly node token create'."
        )


token = typer.Typer(
    help="Manage join tokens for new nodes.", no_args_is_help=True, rich_markup_mode=None
)
node.add_typer(token, name="token")


@token.command()
def create(
    expires: ExpiresFlag = None,
    uses: Annotated[
        str | None,
        typer.Option(metavar="N|unlimited", help="How many nodes may join with it. [default: 1]"),
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Create a token for 'duly agent --join-token-file'. It is shown only this once.

    Without --expires it is valid for an hour.
    """
    seconds = parse_expires(expires)
    with connect() as client:
        created = client.create_node_token(seconds, _parse_uses(uses))
    if output in (Output.JSON, Output.JSONL):
        print_value(created, output)
    else:
        print(created["token"])


def _parse_uses(text: str | None) -> TokenUses | None:
    if text is None:
        return None
    if text == "unlimited":
        return "unlimited"
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise typer.BadParameter(
            f"{text!r} is not a number of nodes. Write one, or unlimited.", param_hint="--uses"
        )
    return int(text)


@node.command()
def show(node_id: NodeId, tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show everything about a node, and what is allocated on it for which tenant."""
    with connect() as client:
        shown = client.get_node(node_id)
        print_node(shown, output)
        if output is Output.TABLE:
            held = client.list_resources(limit=MAX_SHOWN, node=shown["name"], tenant=tenant)
            print_held(held["items"], more=held["next_cursor"] is not None)


@node.command()
def drain(
    node_id: NodeId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing runs on it.")] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Drain a node: it finishes its running tasks and takes no new ones."""
    with connect() as client:
        shown = client.drain_node(node_id)
        while wait and shown["status"] == "draining":
            client.patience = WAITING_RETRIES
            time.sleep(1)
            shown = client.get_node(node_id)
        print_node(shown, output)


@node.command()
def undrain(node_id: NodeId, output: OutputFlag = Output.TABLE) -> None:
    """Make a drained or draining node take tasks again."""
    with connect() as client:
        print_node(client.undrain_node(node_id), output)


@node.command()
@with_resource_flags
def update(
    flags: ResourceFlags,
    node_id: NodeId,
    own: Annotated[
        bool,
        typer.Option("--own", help="Remove the override: use the capacity that the agent reports."),
    ] = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Override the capacity that a node's agent reports; running tasks are not affected."""
    capacity = resource_fields(flags)
    if own == bool(capacity):
        raise typer.BadParameter("Give either amounts, such as --cpu 2, or --own.")
    with connect() as client:
        print_node(client.set_capacity(node_id, capacity or None), output)


@node.command()
def remove(node_id: NodeId, yes: YesFlag = False) -> None:
    """Remove a node permanently, with all reservations on it; its tasks run on other nodes."""
    with connect() as client:
        shown = client.get_node(node_id)
        tasks = count_of(shown["tasks"], "running task")
        fate = f"; its {tasks} will run on other nodes" if shown["tasks"] else ""
        if reserved := _count_reservations(client, shown["name"]):
            goes = "goes" if reserved == 1 else "go"
            fate += f"; {count_of(reserved, 'reservation')} on it {goes} with it"
        confirm(f"Remove the node {shown['name']} for good{fate}?", yes=yes)
        client.remove_node(str(shown["id"]))
    print(clean(f"Node {shown['name']} (ID {shown['id']}) removed{fate}."))


def _count_reservations(client: Client, node_name: str) -> int:
    count, cursor = 0, None
    while True:
        page = client.list_resources(limit=1000, cursor=cursor, node=node_name)
        count += sum(held["kind"] == "reservation" for held in page["items"])
        if (cursor := page["next_cursor"]) is None:
            return count


def print_held(held: list[Allocation], *, more: bool) -> None:
    """Print the allocations on a node."""
    if not held:
        return
    from duly.cli.output.tables import print_allocations

    print()
    print_allocations(held, now(), with_tenant=True)
    if more:
        print_notice("There are more. List them with: duly resources list --node NAME --limit 1000")


def print_node(shown: Node, output: Output) -> None:
    """Print a node."""
    if output is not Output.TABLE:
        print_value(shown, output, COLUMNS)
        return
    from duly.cli.output.tables import print_pairs

    print_pairs(node_details(shown, now()))
