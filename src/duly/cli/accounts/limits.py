"""`duly limits`: shows the limits of a tenant."""

from duly.cli.accounts.shared import TenantFlag
from duly.cli.connect import connect
from duly.cli.output.printing import Output, OutputFlag, print_value

COLUMNS = ("tenant", "plan", "rate", "running", "resources", "waiting", "schedules")


def limits(tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show the limits of your tenant and how much of them is left."""
    with connect() as client:
        tenant_limits = client.limits(tenant=tenant)
    if output is not Output.TABLE:
        print_value(
            {"id": tenant_limits["plan"], **tenant_limits}
            if output is Output.ID
            else tenant_limits,
            output,
            COLUMNS,
        )
        return
    from duly.cli.accounts.plan_tables import print_limits

    print_limits(tenant_limits)
