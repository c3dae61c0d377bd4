"""`duly schedule create -f`: a schedule whose task or graph comes from a manifest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from duly.cli.manifests.bundles import upload_bundles
from duly.cli.manifests.manifest import Manifest, problem_of, read_manifest
from duly.client.shapes.schedule_shapes import GraphFields, ScheduleFields
from duly.client.shapes.task_shapes import TaskFields
from duly.errors import Invalid, TooLarge

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
            f"the file defines the task. Set {others[0]} there.",
            param_hint="--file",
        )
    manifest = upload_bundles(read_manifest(file))
    if manifest.kind == "tasks":
        raise typer.BadParameter(
            "a schedule submits one task or a graph, not a list. Name the tasks under 'tasks:'.",
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
    """Add the place in the manifest to an error about one of its fields."""
    try:
        yield
    except (Invalid, TooLarge) as error:
        field = str(error.details.get("field") or "")
        what = "graph" if manifest is not None and manifest.kind == "graph" else "task"
        if manifest is None or not (field == what or field.startswith(f"{what}.")):
            raise
        within = field.removeprefix(what).removeprefix(".")
        raise manifest.explain(Invalid(within, problem_of(error))) from None
