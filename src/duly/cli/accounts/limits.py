"""What your tenant may have, and what is left of it."""

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag, print_value
from duly.cli.people import TenantFlag

COLUMNS = ("tenant", "plan", "rate", "running", "resources", "waiting", "schedules")


def limits(tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show what your tenant may have, and what is left of it."""
    with connect() as client:
        found = client.limits(tenant=tenant)
    if output is not Output.TABLE:
        print_value(
            {"id": found["plan"], **found} if output is Output.ID else found, output, COLUMNS
        )
        return
    from duly.cli.plan_tables import draw_limits

    draw_limits(found)
