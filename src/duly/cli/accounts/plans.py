"""The plans: what tenants may have."""

from typing import Annotated

import typer

from duly.cli.connect import connect
from duly.cli.output import Output, OutputFlag, print_items, print_value
from duly.cli.plan_flags import PlanFlags, plan_fields, with_plan_flags
from duly.client.plan_shapes import Plan

plan = typer.Typer(
    name="plan", help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)

PlanName = Annotated[str, typer.Argument(metavar="NAME", help="The plan.")]
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
    """Make a plan; what is not said has no limit."""
    with connect() as client:
        print_plan(client.create_plan(name, **plan_fields(flags)), output)


@plan.command("list")
def list_plans(
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    output: OutputFlag = Output.TABLE,
) -> None:
    """List the plans, newest first; without the scope admin, your own."""
    with connect() as client:
        page = client.list_plans(limit=limit)
    if output is not Output.TABLE:
        print_items(
            [with_id(one, output) for one in page["items"]], page["next_cursor"], output, COLUMNS
        )
        return
    from duly.cli.plan_tables import draw_plans

    draw_plans(page["items"])


@plan.command()
def show(name: PlanName, output: OutputFlag = Output.TABLE) -> None:
    """Show what a plan grants."""
    with connect() as client:
        print_plan(client.get_plan(name), output)


@plan.command()
@with_plan_flags
def update(flags: PlanFlags, name: PlanName, output: OutputFlag = Output.TABLE) -> None:
    """Change a plan, for every tenant that has it; `none` takes a limit away."""
    fields = plan_fields(flags)
    if not fields:
        raise typer.BadParameter("Say what to change, such as --max-running 20.")
    with connect() as client:
        print_plan(client.update_plan(name, **fields), output)


@plan.command()
def remove(name: PlanName) -> None:
    """Remove a plan that no tenant has."""
    with connect() as client:
        client.remove_plan(name)


def print_plan(found: Plan, output: Output) -> None:
    """Print one plan."""
    if output is not Output.TABLE:
        print_value(with_id(found, output), output, COLUMNS)
        return
    from duly.cli.plan_tables import plan_details
    from duly.cli.tables import draw_pairs

    draw_pairs(plan_details(found))


def with_id(found: Plan, output: Output) -> dict[str, object]:
    """Return a plan for programs; by its id its name is meant."""
    return {"id": found["name"], **found} if output is Output.ID else {**found}
