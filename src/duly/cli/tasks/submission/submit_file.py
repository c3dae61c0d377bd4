"""`duly submit -f`: submits a manifest atomically."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import typer

from duly.cli import last_task
from duly.cli.connect import (
    WAITING_RETRIES,
    connect,
    connect_to_submit,
    exit_125_on_error,
    print_notice,
)
from duly.cli.entry import INTERRUPTED
from duly.cli.exit_codes import REFUSED, describe_end, exit_code_for_task
from duly.cli.manifests.bundles import upload_bundles
from duly.cli.manifests.manifest import Manifest, read_manifest
from duly.cli.output.printing import (
    Output,
    print_csv,
    print_ids,
    print_json,
    print_lines,
    print_value,
)
from duly.cli.output.text import clean, now
from duly.cli.tasks.submission.read_access import require_read_access
from duly.cli.tasks.submission.surprises import describe_earlier, tell_if_past, tell_if_unplaceable
from duly.client.shapes.task_shapes import FINAL_STATUSES, TaskFields
from duly.client.sync import Client
from duly.errors import Invalid, TooLarge
from duly.model.wording import count_of

MAX_NAMED_TASKS = 10
"""How many tasks that were not done are named; the rest are counted."""


def submit_file(name: str, key: str | None, output: Output, *, wait: bool) -> None:
    """Submit a manifest; with `wait`, wait until all of its tasks have ended."""
    with exit_125_on_error() if wait else nullcontext():
        manifest = read_manifest(name)
        if wait:
            with connect() as client:
                require_read_access(client)
        manifest = upload_bundles(manifest)
        with connect_to_submit() as client:
            try:
                submitted = _submit(client, manifest, key)
            except (Invalid, TooLarge) as error:
                if key is not None and error.details.get("field") == "idempotency_key":
                    raise  # it is a flag
                raise manifest.explain(error) from None
            last_task.remember(client.endpoint, submitted.last)
            if not wait or output is Output.TABLE:
                _print_submitted(submitted, output)
            if wait:
                raise typer.Exit(_wait(client, submitted, output))


class _Submitted:
    """The server's response to a task, a list of tasks or a graph."""

    def __init__(
        self, kind: str, answer: Mapping[str, Any], ids: Mapping[str, str], *, is_new: bool
    ) -> None:
        self.kind = kind
        self.is_new = is_new
        self.answer = answer
        self.ids = ids
        """The ids of the tasks by ref or position."""

    @property
    def last(self) -> str:
        """The task that is the default of the next command."""
        return list(self.ids.values())[-1]


def _submit(client: Client, manifest: Manifest, key: str | None) -> _Submitted:
    if manifest.kind == "graph":
        graph, is_new = client.submit_graph_once(
            manifest.tasks, name=manifest.name, defaults=manifest.defaults, idempotency_key=key
        )
        return _Submitted("graph", graph, graph["ids"], is_new=is_new)
    if manifest.kind == "tasks":
        ids, is_new = client.submit_many_once(manifest.tasks, idempotency_key=key)
        by_position = {f"[{n}]": task_id for n, task_id in enumerate(ids)}
        return _Submitted("tasks", {"ids": ids}, by_position, is_new=is_new)
    fields: TaskFields = {**manifest.tasks[0]}
    if key is not None:
        fields["idempotency_key"] = key
    tell_if_past(fields, now())
    task, is_new = client.submit_once(**fields)
    if not is_new:
        print_notice(describe_earlier(task, fields))
    tell_if_unplaceable(client, task, fields)
    return _Submitted("task", task, {"": task["id"]}, is_new=is_new)


def _print_submitted(submitted: _Submitted, output: Output) -> None:
    if output is not Output.TABLE and not submitted.is_new and submitted.kind != "task":
        print_notice(_describe_earlier(submitted))
    if output is Output.TABLE:
        _print_summary(submitted)
    elif submitted.kind == "task":
        print_value(submitted.answer, output)
    elif output is Output.JSON:
        print_json(submitted.answer)
    elif output is Output.ID and submitted.kind == "graph":
        print_ids([submitted.answer])
    else:
        rows = [{"ref": ref, "id": task_id} for ref, task_id in submitted.ids.items()]
        shown = rows if submitted.kind == "graph" else [{"id": row["id"]} for row in rows]
        _print_rows(shown, output)


def _print_rows(rows: Sequence[Mapping[str, str]], output: Output) -> None:
    if output is Output.CSV:
        print_csv(rows, list(rows[0]))
    elif output is Output.ID:
        print_ids(rows)
    else:
        print_lines(rows)


def _print_summary(submitted: _Submitted) -> None:
    if not submitted.is_new:
        if submitted.kind != "task":  # One task was described with its status.
            print(_describe_earlier(submitted))
        return
    count = count_of(len(submitted.ids), "task")
    match submitted.kind:
        case "graph":
            graph = submitted.answer["id"]
            print(f"Graph {graph} submitted, with {count}. Show it with: duly graph {graph}")
        case "tasks":
            first, final = next(iter(submitted.ids.values())), submitted.last
            print(f"{count} submitted: {first}" + (f" to {final}." if final != first else "."))
        case _:
            print(f"Task {submitted.last} submitted.")


def _describe_earlier(submitted: _Submitted) -> str:
    """Return a sentence about what was not created because its idempotency key was used before."""
    if submitted.kind == "graph":
        return (
            f"Graph {submitted.answer['id']} has this idempotency key already. Nothing was "
            "submitted."
        )
    first = next(iter(submitted.ids.values()))
    return (
        f"{count_of(len(submitted.ids), 'task')} from {first} to {submitted.last} have this "
        "idempotency key already. Nothing was submitted."
    )


def _wait(client: Client, submitted: _Submitted, output: Output) -> int:
    """Wait until all tasks have ended, and return the exit code; Ctrl-C detaches."""
    client.patience = WAITING_RETRIES
    try:
        if submitted.kind == "task":
            return _wait_for_one(client, submitted.last, output)
        ends = _final_statuses(client, submitted)
    except KeyboardInterrupt:
        print_notice("\nDetached; the tasks continue. See them with: duly list")
        return INTERRUPTED
    if output is not Output.TABLE:
        _print_submitted(submitted, output)
    bad = [f"{clean(ref)} {status}" for ref, status in ends if status != "done"]
    more = f" and {len(bad) - MAX_NAMED_TASKS} more" if len(bad) > MAX_NAMED_TASKS else ""
    details = f"; {', '.join(bad[:MAX_NAMED_TASKS])}{more}" if bad else ""
    count = count_of(len(submitted.ids), "task")
    print_notice(f"{len(submitted.ids) - len(bad)} of {count} done{details}")
    return REFUSED if bad else 0


def _wait_for_one(client: Client, task: str, output: Output) -> int:
    ended = client.wait(task)
    print_notice(describe_end(ended))
    if output is not Output.TABLE:
        print_value(ended, output)
    return exit_code_for_task(ended)


def _final_statuses(client: Client, submitted: _Submitted) -> list[tuple[str, str]]:
    """Wait for all tasks, and return their final statuses by ref or position.

    The last task of a graph usually ends last, so the graph's status is read after the 1st, 2nd,
    4th, 8th … task, which mostly replaces a request per task.
    """
    ends = []
    for count, (ref, task_id) in enumerate(reversed(list(submitted.ids.items())), 1):
        ends.append((ref, client.wait(task_id)["status"]))
        if submitted.kind == "graph" and not count & (count - 1):
            graph = client.get_graph(submitted.answer["id"])
            if graph["status"] in FINAL_STATUSES and not graph["more"]:
                return [(part["ref"] or "", part["status"]) for part in graph["tasks"]]
            if graph["status"] == "done":
                return []
    return ends[::-1]
