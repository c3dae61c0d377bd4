"""`duly schedule create -f`: a schedule whose task or graph comes from a manifest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from duly.cli.tasks.manifest import Manifest, read_manifest
from duly.cli.tasks.manifest_bundles import upload_bundles
from duly.client.shapes.schedule_shapes import GraphFields, ScheduleFields
from duly.client.shapes.task_shapes import TaskFields
from duly.errors import Invalid

FileFlag = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A manifest in YAML or JSON with a task or a graph; - reads stdin.",
    ),
]


def apply_manifest(file: str, schedule: ScheduleFields, task: TaskFields) -> Manifest:
    """Set the task or graph of a schedule from a manifest; other task flags are refused."""
    if others := sorted(task.keys() - {"name"}):
        raise typer.BadParameter(
            f"The file defines the task; set {others[0].replace('_', ' ')} there.",
            param_hint="--file",
        )
    manifest = upload_bundles(read_manifest(file))
    if manifest.kind == "tasks":
        raise typer.BadParameter(
            "A schedule submits one task or a graph, not a list: name the tasks under `tasks:`.",
            param_hint="--file",
        )
    if manifest.kind == "task":
        schedule["task"] = manifest.tasks[0]
    else:
        graph: GraphFields = {"tasks": manifest.tasks}
        if manifest.name is not None:
            graph["name"] = manifest.name
        if manifest.defaults is not None:
            graph["defaults"] = manifest.defaults
        schedule["graph"] = graph
    return manifest


@contextmanager
def locating_errors(manifest: Manifest | None) -> Iterator[None]:
    """Add the manifest's line to an error about one of its fields."""
    try:
        yield
    except Invalid as error:
        prefix = "graph." if manifest is not None and manifest.kind == "graph" else "task."
        if manifest is None or not error.field.startswith(prefix):
            raise
        within = Invalid(
            error.field.removeprefix(prefix), error.message.removeprefix(f"{prefix[:-1]}: ")
        )
        raise manifest.explain(within) from None
