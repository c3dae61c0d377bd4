"""`duly status`: shows an overview of the installation."""

import typer

from duly.cli.connect import connect
from duly.cli.output.details import status_details
from duly.cli.output.printing import Output, OutputFlag, print_json, print_lines
from duly.cli.tasks.tasks import TenantFlag


def status(tenant: TenantFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show an overview: tasks, nodes, capacity and free resources.

    A key with the scope admin sees the tasks of all tenants, unless --tenant names one. Only such a
    key sees nodes and capacity.
    """
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter(
            "the status is not a list. Use table, json or jsonl.", param_hint="--output"
        )
    with connect() as client:
        overview = client.status(tenant=tenant)
        url = client.server_url
    if output is Output.JSON:
        print_json(overview)
    elif output is Output.JSONL:
        print_lines([overview])
    else:
        from duly.cli.output.tables import print_pairs, print_tenant_counts

        print_pairs(status_details(overview, url))
        if overview["tenants"]:
            print()
            print_tenant_counts(overview["tenants"])
