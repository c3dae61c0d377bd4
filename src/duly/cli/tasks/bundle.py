"""`--bundle`: files from here that a task brings along."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from typer import BadParameter

from duly.cli.connect import connect
from duly.client.shapes import TaskFields


def add_bundle(bundle: Path | None, fields: TaskFields, *, needs_command: bool = True) -> None:
    """Send the bundle of a task, if it has one, and name it in the request."""
    if bundle is None:
        return
    command = fields.get("command")
    if command is None and needs_command:
        raise BadParameter(
            "A bundle goes with a COMMAND, which is run in it: --bundle ./job -- ./run.sh",
            param_hint="--bundle",
        )
    if not bundle.exists():
        raise BadParameter(f"There is no {str(bundle)!r} here.", param_hint="--bundle")
    problem = missing_program(bundle, command or ())
    if problem is not None:
        raise BadParameter(problem, param_hint="COMMAND")
    with connect() as client:
        fields["artifact"] = client.upload(bundle)


def missing_program(bundle: Path, command: Sequence[str]) -> str | None:
    """Say what a node could not run: a path within a folder, at which there is no program."""
    program = command[0] if command else ""
    is_name = program and "/" not in program and os.access(bundle / program, os.R_OK)
    if is_name and (bundle / program).is_file() and shutil.which(program) is None:
        return f"To run what is in the bundle, say ./{program[:60]}: its folder is not in PATH."
    if "/" not in program or program.startswith("/") or not bundle.is_dir():
        return None
    file = bundle / program
    if not file.is_file():
        return f"{program[:60]!r} is not in {str(bundle)!r}; a command is run in its bundle."
    if not os.access(file, os.X_OK):
        return f"{program[:60]!r} cannot be executed. Allow it: chmod +x {file}"
    return None
