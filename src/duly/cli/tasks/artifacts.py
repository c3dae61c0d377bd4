"""The artifacts: bundles of files that were sent for tasks to be run in."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag, print_items
from duly.cli.text import now, say_time

artifact = typer.Typer(
    name="artifact", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

COLUMNS = ("sha256", "bytes", "created_at", "last_used_at")


@artifact.command("list")
def list_artifacts(
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a list ended.")
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the artifacts of your tenant, newest first."""
    with connect() as client:
        page = client.list_artifacts(limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        named = [{"id": one["sha256"], **one} for one in page["items"]]
        items = named if output is Output.ID else page["items"]
        print_items(items, page["next_cursor"], output, COLUMNS)
    elif not page["items"]:
        print("No artifacts.")
    else:
        from duly.cli.tables import draw

        at = now()
        draw(
            ("SHA-256", "BYTES", "SENT", "LAST USED"),
            (
                (
                    one["sha256"],
                    str(one["bytes"]),
                    say_time(one["created_at"], at),
                    say_time(one["last_used_at"], at),
                )
                for one in page["items"]
            ),
            right=("BYTES",),
        )


@artifact.command()
def remove(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The artifact.")],
) -> None:
    """Remove an artifact that no task and no schedule needs."""
    with connect() as client:
        client.remove_artifact(sha256)
    print(f"removed {sha256}")
