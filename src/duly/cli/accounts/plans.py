"""Manage plans: the limits and prices of tenants."""

from typing import Annotated

import typer

from duly.cli.accounts.plan_flags import PlanFlags, plan_fields, with_plan_flags
from duly.cli.confirm import YesFlag, confirm
from duly.cli.connect import connect
from duly.cli.output.pages import CursorFlag, LimitFlag, print_next_cursor
from duly.cli.output.printing import Output, OutputFlag, print_items, print_value
from duly.cli.output.text import clean
from duly.client.shapes.plan_shapes import Plan

plan = typer.Typer(
    name="plan", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

PlanName = Annotated[str, typer.Argument(metavar="NAME", help="The plan's name.")]
COLUMNS = (
    "name",
    "tasks_per_hour",
    "burst",
    "max_running",
    "max_waiting",
    "tiers",
    "max_execution_cap",
    "weight",
    "tenants",
)


@plan.command()
@with_plan_flags
def create(flags: PlanFlags, name: PlanName, output: OutputFlag = Output.TABLE) -> None:
    """Create a plan; limits that are left out are unlimited."""
    with connect() as client:
        print_plan(client.create_plan(name, **plan_fields(flags)), output)


@plan.command("list")
def list_plans(
    limit: LimitFlag = 50, cursor: CursorFlag = None, output: OutputFlag = Output.TABLE
) -> None:
    """List plans, newest first; without the scope admin, only your own."""
    with connect() as client:
        page = client.list_plans(limit=limit, cursor=cursor)
    if output is not Output.TABLE:
        print_items(
            [with_id(item, output) for item in page["items"]], page["next_cursor"], output, COLUMNS
        )
        return
    from duly.cli.accounts.plan_tables import print_plans

    print_plans(page["items"])
    print_next_cursor(page["next_cursor"])


@plan.command()
def show(name: PlanName, output: OutputFlag = Output.TABLE) -> None:
    """Show a plan."""
    with connect() as client:
        print_plan(client.get_plan(name), output)


@plan.command()
@with_plan_flags
def update(flags: PlanFlags, name: PlanName, output: OutputFlag = Output.TABLE) -> None:
    """Update a plan for every tenant that has it; the value none removes a limit."""
    fields = plan_fields(flags)
    if not fields:
        raise typer.BadParameter(
            "There is nothing to change. Give a flag, such as --max-running 20."
        )
    with connect() as client:
        print_plan(client.update_plan(name, **fields), output)


@plan.command()
def remove(name: PlanName, yes: YesFlag = False) -> None:
    """Remove a plan that no tenant has."""
    with connect() as client:
        shown = client.get_plan(name)
        confirm(f"Remove the plan {shown['name']} for good?", yes=yes)
        client.remove_plan(name)
    print(clean(f"Plan {shown['name']} removed."))


def print_plan(shown: Plan, output: Output) -> None:
    """Print a plan."""
    if output is not Output.TABLE:
        print_value(with_id(shown, output), output, COLUMNS)
        return
    from duly.cli.accounts.plan_tables import plan_details
    from duly.cli.output.tables import print_pairs

    print_pairs(plan_details(shown))


def with_id(shown: Plan, output: Output) -> dict[str, object]:
    """Return a plan for machine-readable output; its name serves as the id."""
    return {"id": shown["name"], **shown} if output is Output.ID else {**shown}
