"""`duly schedule create -f`: a schedule of what a file asks for, a task or a graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from duly.cli.manifest import Manifest, read_manifest
from duly.cli.manifest_bundles import send_bundles
from duly.client.schedule_shapes import GraphFields, ScheduleFields
from duly.client.shapes import TaskFields
from duly.errors import Invalid

FileFlag = Annotated[
    str | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A manifest in YAML or JSON: a task, or a graph; - reads it here.",
    ),
]


def submitted_by(file: str, said: ScheduleFields, task: TaskFields) -> Manifest:
    """Let a schedule submit what a file asks for; nothing else may be said of it."""
    if others := sorted(task.keys() - {"name"}):
        raise typer.BadParameter(
            f"The file says what to submit; say {others[0].replace('_', ' ')} there.",
            param_hint="--file",
        )
    manifest = send_bundles(read_manifest(file))
    if manifest.kind == "tasks":
        raise typer.BadParameter(
            "A schedule submits one task, or a graph: name the tasks, under `tasks:`.",
            param_hint="--file",
        )
    if manifest.kind == "task":
        said["task"] = manifest.tasks[0]
    else:
        graph: GraphFields = {"tasks": manifest.tasks}
        if manifest.name is not None:
            graph["name"] = manifest.name
        if manifest.defaults is not None:
            graph["defaults"] = manifest.defaults
        said["graph"] = graph
    return manifest


@contextmanager
def explaining(manifest: Manifest | None) -> Iterator[None]:
    """Let what is wrong in a file be told with its line."""
    try:
        yield
    except Invalid as error:
        what = "graph." if manifest is not None and manifest.kind == "graph" else "task."
        if manifest is None or not error.field.startswith(what):
            raise
        within = Invalid(
            error.field.removeprefix(what), error.message.removeprefix(f"{what[:-1]}: ")
        )
        raise manifest.explain(within) from None
