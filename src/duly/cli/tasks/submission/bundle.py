"""`--bundle`: uploads local files for a task."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from typer import BadParameter

from duly.cli.connect import connect
from duly.client.shapes.task_shapes import TaskFields


def add_bundle(bundle: Path | None, fields: TaskFields, *, needs_command: bool = True) -> None:
    """Upload the bundle of a task, if it has one, and reference it in the request."""
    if bundle is None:
        return
    command = fields.get("command")
    if command is None and needs_command:
        raise BadParameter(
            "it needs a COMMAND to run in it, as in: --bundle ./job -- ./run.sh",
            param_hint="--bundle",
        )
    if not bundle.exists():
        raise BadParameter(f"{str(bundle)!r} does not exist.", param_hint="--bundle")
    problem = missing_program(bundle, command or ())
    if problem is not None:
        raise BadParameter(problem, param_hint="COMMAND")
    with connect() as client:
        fields["artifact"] = client.upload(bundle)


def missing_program(bundle: Path, command: Sequence[str]) -> str | None:
    """Return why a node could not run the command in the bundle; None if it can."""
    program = command[0] if command else ""
    is_name = program and "/" not in program and os.access(bundle / program, os.R_OK)
    if is_name and (bundle / program).is_file() and shutil.which(program) is None:
        name = program[:60]
        return f"{name!r} is not in PATH. To run the program of the bundle, write ./{name}."
    if "/" not in program or program.startswith("/") or not bundle.is_dir():
        return None
    file = bundle / program
    if not file.is_file():
        return f"{program[:60]!r} is not in the bundle {str(bundle)!r}, in which the command runs."
    if not os.access(file, os.X_OK):
        return f"{program[:60]!r} is not executable. Fix it with: chmod +x {file}"
    return None
