"""Manage the limits of what your tasks call.

Tasks name what they call with --uses KEY. The limits of a key apply to all tasks that use it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from duly.cli.accounts.shared import TenantFlag
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean, format_time
from duly.client.shapes.downstream_shapes import Downstream, DownstreamFields

downstream = typer.Typer(
    name="downstream",
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key that tasks use.")]
EveryoneFlag = Annotated[
    bool,
    typer.Option(
        "--everyone", help="Shared by all tenants, not only for yours; needs the scope admin."
    ),
]
COLUMNS = (
    *("key", "defined_by", "rate", "concurrency", "adaptive", "current_rate"),
    *("current_concurrency", "running", "waiting", "throttled_at", "retry_at"),
)
NO_LIMIT = "no limit"


@downstream.command("set")
def set_downstream(
    key: KeyArgument,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Tasks that may start: 100/s, 30/m or 1000/h."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Tasks that may run at once.")
    ] = None,
    adaptive: Annotated[
        bool,
        typer.Option(help="Halve the limits when tasks report throttling, and raise them again."),
    ] = True,
    tenant: TenantFlag = None,
    everyone: EveryoneFlag = False,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Set the limits of a key. Limits that throttling has lowered are restored."""
    _check_owner(tenant, everyone=everyone)
    if rate is None and concurrency is None:
        raise typer.BadParameter("There is nothing to limit. Give --rate, --concurrency, or both.")
    fields: DownstreamFields = {
        "rate": rate,
        "concurrency": concurrency,
        "adaptive": adaptive,
        "everyone": everyone,
    }
    with connect() as client:
        shown = client.set_downstream(key, tenant=tenant, **fields)
    if output is Output.TABLE:
        print_downstreams([shown])
    else:
        print_value(_with_id(shown, output), output, COLUMNS)


@downstream.command("list")
def list_downstreams(
    tenant: TenantFlag = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the limits, what throttling has left of them, and the tasks under each."""
    with connect() as client:
        page = client.list_downstreams(tenant=tenant, limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        items = [_with_id(item, output) for item in page["items"]]
        print_items(items, page["next_cursor"], output, COLUMNS)
        return
    print_downstreams(page["items"])
    print_next_cursor(page["next_cursor"])


@downstream.command()
def remove(key: KeyArgument, tenant: TenantFlag = None, everyone: EveryoneFlag = False) -> None:
    """Remove the limits of a key."""
    _check_owner(tenant, everyone=everyone)
    with connect() as client:
        client.remove_downstream(key, tenant=tenant, everyone=everyone)
    print(clean(f"Downstream {key} removed."))


def print_downstreams(shown: Iterable[Downstream]) -> None:
    """Print limits as a table."""
    from duly.cli.output.tables import print_table

    now = datetime.now(UTC)
    print_table(
        (
            *("KEY", "DEFINED BY", "RATE", "AT ONCE", "RUNNING", "WAITING"),
            *("ADAPTIVE", "THROTTLED", "CALLED AGAIN"),
        ),
        (
            (
                item["key"],
                item["defined_by"],
                _current(item["rate"], item["current_rate"]),
                _current(item["concurrency"], item["current_concurrency"]),
                str(item["running"]),
                str(item["waiting"]),
                "yes" if item["adaptive"] else "no",
                format_time(item["throttled_at"], now),
                format_time(item["retry_at"], now),
            )
            for item in shown
        ),
        right=("RUNNING", "WAITING"),
    )


def _current(limit: object, current: object) -> str:
    if limit is None:
        return NO_LIMIT
    return str(limit) if current == limit else f"{current} of {limit}"


def _check_owner(tenant: str | None, *, everyone: bool) -> None:
    if everyone and tenant is not None:
        raise typer.BadParameter("Give only one of --tenant and --everyone.")


def _with_id(shown: Downstream, output: Output) -> dict[str, object]:
    """Return limits for machine-readable output; their key serves as the id."""
    return {"id": shown["key"], **shown} if output is Output.ID else {**shown}
