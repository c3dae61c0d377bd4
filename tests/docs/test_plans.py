"""The plans on the page are those that the migrations make."""

from datetime import timedelta

from duly.api.accounts.plan_shapes import PlanInfo
from duly.cli.accounts.plan_flags import PlanFlags
from duly.duration import MAX_DURATION, parse_duration
from duly.model.requests.plan_request import PlanRequest
from duly.model.resources import format_amount
from duly.store.accounts import plans
from tests.docs.test_reference import page, rows


def section(title):
    return page("plans.md").partition(f"## {title}\n")[2].partition("\n## ")[0]


def read(text, value):
    """Read a cell as the kind of thing that the plan has there."""
    if isinstance(value, timedelta):
        return MAX_DURATION if text == "no limit" else parse_duration(text, "cell")
    if text == "no limit":
        return None
    if isinstance(value, tuple):
        return tuple(text.split(", "))
    if isinstance(value, dict):
        return text
    if isinstance(value, bool):
        return {"true": True, "false": False}[text]
    return type(value)(text)


def say(value):
    """Say amounts as the page does."""
    if isinstance(value, dict):
        return ", ".join(format_amount(kind, amount) for kind, amount in value.items()) or "none"
    return value


async def test_the_plans_at_the_start_have_the_numbers_on_the_page(database):
    async with database.connection() as conn:
        made = {view.plan.name: view.plan for view in await plans.read(conn, limit=100)}
    table = list(rows(section("The plans at the start").replace("| field |", "| `field` |")))
    names = [cell.strip("`") for cell in table[0][1:]]
    assert sorted(names) == sorted(made)
    for field, *cells in table[1:]:
        for name, cell in zip(names, cells, strict=True):
            value = getattr(made[name], field)
            assert read(cell, value) == say(value), (name, field)
    assert {cells[0] for cells in table[1:]} == set(PlanRequest.__struct_fields__) - {"name"}


def test_every_field_is_explained():
    text = section("What the fields mean")
    assert [name for name in PlanRequest.__struct_fields__ if f"`{name}`" not in text] == ["name"]


def test_every_field_is_told_and_can_be_said_on_the_command_line():
    fields = set(PlanRequest.__struct_fields__)
    assert fields <= set(PlanInfo.__struct_fields__)
    assert fields - {"name"} == set(PlanFlags.__dataclass_fields__)
