"""`duly mark`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from duly.cli.connect import connect
from duly.cli.output.printing import Output, OutputFlag, print_value


def mark(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task's ID.")],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; kept with the task and in the audit log.")
    ],
    done: Annotated[bool, typer.Option("--done", help="End it as done.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="End it as failed.")] = False,
    result: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with its result as JSON; - is standard input."),
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Mark a task as done or failed. If it runs, it is stopped; downstream tasks go on."""
    if done == failed:
        raise typer.BadParameter("Give either --done or --failed.")
    if failed and result is not None:
        raise typer.BadParameter(
            "a failed task has no result. Leave it out, or use --done.",
            param_hint="--result",
        )
    value = None if result is None else _read_result(result)
    with connect() as client:
        marked = client.mark_task(task, "done" if done else "failed", reason=reason, result=value)
    if output is Output.TABLE:
        print(f"Task {marked['id']} marked as {marked['status']}.")
    else:
        print_value(marked, output)


def _read_result(file: str) -> Any:
    try:
        return json.loads(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise typer.BadParameter(
            f"{file!r} cannot be read: {error.strerror}.", param_hint="--result"
        ) from None
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{file!r} is not JSON: {error}.", param_hint="--result") from None
