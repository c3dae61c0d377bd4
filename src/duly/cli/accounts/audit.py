"""The audit log: who did what."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag
from duly.cli.people import CursorFlag, LimitFlag, audit_row, print_page
from duly.cli.request import moment
from duly.cli.text import now

COLUMNS = ("id", "at", "tenant", "actor", "action", "target", "details")


def audit(
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="What concerns this tenant; needs admin.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="WHO", help="What was done by: acme/kim.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="WORD", help="What was done, such as key.revoke.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before: 1h, or a time.")
    ] = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show who did what to tenants, users, keys, plans, nodes."""
    from_then = None if since is None else moment("--since", since)
    with connect() as client:
        page = client.read_audit(
            tenant=tenant, actor=actor, action=action, since=from_then, limit=limit, cursor=cursor
        )
    head = ("AT", "ACTOR", "ACTION", "TARGET", "TENANT", "DETAILS")
    rows = [audit_row(one, now()) for one in page["items"]]
    print_page(page, output, COLUMNS, head, rows, "Nothing was done.")
