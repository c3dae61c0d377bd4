"""Manage artifacts: uploaded bundles of files."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items
from duly.cli.output.text import format_time, now

artifact = typer.Typer(
    name="artifact", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

COLUMNS = ("sha256", "bytes", "created_at", "last_used_at")


@artifact.command("list")
def list_artifacts(
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the artifacts of your tenant, newest first."""
    with connect() as client:
        page = client.list_artifacts(limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        named = [{"id": item["sha256"], **item} for item in page["items"]]
        items = named if output is Output.ID else page["items"]
        print_items(items, page["next_cursor"], output, COLUMNS)
    elif not page["items"]:
        print("No artifacts yet. Upload files with a task: duly run --bundle FOLDER -- COMMAND")
    else:
        from duly.cli.output.tables import print_table

        at = now()
        print_table(
            ("SHA-256", "BYTES", "UPLOADED", "LAST USED"),
            (
                (
                    item["sha256"],
                    str(item["bytes"]),
                    format_time(item["created_at"], at),
                    format_time(item["last_used_at"], at),
                )
                for item in page["items"]
            ),
            right=("BYTES",),
        )
        print_next_cursor(page["next_cursor"])


@artifact.command()
def remove(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The artifact's SHA-256.")],
) -> None:
    """Remove an artifact that no task and no schedule needs."""
    with connect() as client:
        client.remove_artifact(sha256)
    print(f"Artifact {sha256} removed.")
