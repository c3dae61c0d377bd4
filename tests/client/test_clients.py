"""What must hold between the two clients, and between them and the rest of Duly."""

import inspect
import subprocess
import sys

import msgspec
import pytest

import duly
from duly.api.schedules import schedule_shapes as api_shapes
from duly.client.aio import AsyncClient
from duly.client.shapes import schedule_shapes, task_shapes
from duly.client.sync import Client
from duly.model.requests.amounts import ResourcesRequest
from duly.model.requests.schedule_request import ScheduleChange, ScheduleRequest
from duly.model.requests.task_request import TaskRequest
from duly.model.task import FINAL_STATUSES


def methods(kind: type) -> dict[str, object]:
    return {
        name: inspect.signature(member).parameters
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods():
    assert methods(Client) == methods(AsyncClient)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (task_shapes.TaskFields, TaskRequest),
        (task_shapes.ResourceFields, ResourcesRequest),
        (schedule_shapes.ScheduleFields, ScheduleRequest),
        (schedule_shapes.ScheduleChanges, ScheduleChange),
        (schedule_shapes.Schedule, api_shapes.Schedule),
        (schedule_shapes.Occurrence, api_shapes.FireTime),
    ],
)
def test_a_client_knows_every_field_that_the_server_takes_or_tells(ours, theirs):
    assert set(ours.__annotations__) == {field.name for field in msgspec.structs.fields(theirs)}


def test_a_client_knows_the_final_statuses():
    assert {str(status) for status in FINAL_STATUSES} == task_shapes.FINAL_STATUSES


def test_every_public_name_is_there():
    assert [name for name in duly.__all__ if getattr(duly, name, None) is None] == []
    with pytest.raises(AttributeError):
        _ = duly.nothing


@pytest.mark.parametrize("statement", ["import duly", "import duly; duly.Client"])
def test_the_sync_client_imports_nothing_heavy(statement):
    heavy = "aiohttp asyncio msgspec rich typer starlette asyncpg"
    script = f"{statement}\nimport sys\nprint([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
