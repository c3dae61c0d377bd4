"""`duly audit`: shows the audit log."""

from typing import Annotated

import typer

from duly.cli.accounts.shared import audit_row, print_page
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag
from duly.cli.output.printing import Output, OutputFlag
from duly.cli.output.text import now
from duly.cli.tasks.times import parse_since

COLUMNS = ("id", "at", "tenant", "actor", "action", "target", "details")


def audit(
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only entries that concern this tenant; needs the scope admin."
        ),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(metavar="WHO", help="Only actions of this actor, such as acme/kim."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="WORD", help="Only this action, such as key.revoke.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only entries since then: 1h (ago), or 2027-01-31T06:30."
        ),
    ] = None,
    limit: LimitFlag = 50,
    cursor: CursorFlag = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Show the audit log: who changed tenants, users, keys, plans and nodes."""
    from_then = None if since is None else parse_since("--since", since)
    with connect() as client:
        page = client.read_audit(
            tenant=tenant, actor=actor, action=action, since=from_then, limit=limit, cursor=cursor
        )
    head = ("AT", "ACTOR", "ACTION", "TARGET", "TENANT", "DETAILS")
    rows = [audit_row(entry, now()) for entry in page["items"]]
    print_page(page, output, COLUMNS, head, rows, "No audit entries.")
