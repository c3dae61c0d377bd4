"""The servers: those that take requests, and the one that leads."""

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag, print_items
from duly.cli.text import now

server = typer.Typer(
    name="server", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
COLUMNS = ("id", "name", "status", "version", "started_at", "last_heartbeat_at", "duties")


@server.callback()
def servers() -> None:
    """Stand for the group, which has a single command so far."""


@server.command("list")
def list_servers(output: OutputFlag = Output.TABLE) -> None:
    """List the servers, and which duty each leads in which term."""
    with connect() as client:
        page = client.list_servers()
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
        return
    from duly.cli.tables import draw_servers

    draw_servers(page["items"], now())
