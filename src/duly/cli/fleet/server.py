"""Show the servers, and which of them leads."""

import typer

from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items
from duly.cli.output.text import now

server = typer.Typer(
    name="server", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
COLUMNS = (
    "id",
    "name",
    "status",
    "address",
    "host",
    "pid",
    "version",
    "started_at",
    "last_heartbeat_at",
    "duties",
)


@server.callback()
def servers() -> None:
    """Keep the group a group: with a single command Typer would merge them."""


@server.command("list")
def list_servers(
    limit: LimitFlag = 50, cursor: CursorFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List servers with their addresses and processes, and the duties that each leads."""
    with connect() as client:
        page = client.list_servers(limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        print_items(page["items"], page["next_cursor"], output, COLUMNS)
        return
    from duly.cli.output.tables import print_servers

    print_servers(page["items"], now())
    print_next_cursor(page["next_cursor"])
