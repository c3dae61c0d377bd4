"""`duly submit -f`: the tasks of a file, submitted whole."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import typer

from duly.cli import last
from duly.cli.connect import WHILE_WAITING, connect, ours, say
from duly.cli.exits import OURS, REFUSED, code_of_task, describe_end
from duly.cli.manifest import Manifest, read_manifest
from duly.cli.manifest_bundles import send_bundles
from duly.cli.output import Output, print_csv, print_ids, print_json, print_lines, print_value
from duly.cli.text import clean
from duly.client.shapes import FINAL, TaskFields
from duly.client.sync import Client
from duly.errors import Invalid

NAMED = 10
"""How many tasks that did not end well are named."""


def submit_file(name: str, key: str | None, output: Output, *, wait: bool) -> None:
    """Submit what a file asks for; with `wait`, stay until all of it has ended."""
    with ours() if wait else nullcontext():
        manifest = send_bundles(read_manifest(name))
        with connect() as client:
            try:
                submitted = _submit(client, manifest, key)
            except Invalid as error:
                raise manifest.explain(error) from None
            last.remember(client.endpoint.name, submitted.last)
            if not wait or output is Output.TABLE:
                _tell(submitted, output)
            if wait:
                raise typer.Exit(_wait(client, submitted, output))


class _Submitted:
    """What the server answered, whatever it was asked."""

    def __init__(self, kind: str, answer: Mapping[str, Any], ids: Mapping[str, str]) -> None:
        self.kind = kind
        self.answer = answer
        self.ids = ids
        """Of the tasks, by their refs or their places."""

    @property
    def last(self) -> str:
        """The task that the next command means, if it names none."""
        return list(self.ids.values())[-1]


def _submit(client: Client, manifest: Manifest, key: str | None) -> _Submitted:
    if manifest.kind == "graph":
        graph = client.submit_graph(
            manifest.tasks, name=manifest.name, defaults=manifest.defaults, idempotency_key=key
        )
        return _Submitted("graph", graph, graph["ids"])
    if manifest.kind == "tasks":
        ids = client.submit_many(manifest.tasks, idempotency_key=key)
        return _Submitted("tasks", {"ids": ids}, {f"[{n}]": one for n, one in enumerate(ids)})
    fields: TaskFields = {**manifest.tasks[0]}
    if key is not None:
        fields["idempotency_key"] = key
    task = client.submit(**fields)
    return _Submitted("task", task, {"": task["id"]})


def _tell(submitted: _Submitted, output: Output) -> None:
    if output is Output.TABLE:
        _say(submitted)
    elif submitted.kind == "task":
        print_value(submitted.answer, output)
    elif output is Output.JSON:
        print_json(submitted.answer)
    elif output is Output.ID and submitted.kind == "graph":
        print_ids([submitted.answer])
    else:
        rows = [{"ref": ref, "id": one} for ref, one in submitted.ids.items()]
        named = rows if submitted.kind == "graph" else [{"id": row["id"]} for row in rows]
        _print_rows(named, output)


def _print_rows(rows: Sequence[Mapping[str, str]], output: Output) -> None:
    if output is Output.CSV:
        print_csv(rows, list(rows[0]))
    elif output is Output.ID:
        print_ids(rows)
    else:
        print_lines(rows)


def _say(submitted: _Submitted) -> None:
    count = f"{len(submitted.ids)} task{'' if len(submitted.ids) == 1 else 's'}"
    match submitted.kind:
        case "graph":
            graph = submitted.answer["id"]
            print(f"submitted graph {graph}, {count}; to look at it: duly graph {graph}")
        case "tasks":
            first, final = next(iter(submitted.ids.values())), submitted.last
            print(f"submitted {count}: {first}" + (f" … {final}" if final != first else ""))
        case _:
            print(f"submitted {submitted.last}")


def _wait(client: Client, submitted: _Submitted, output: Output) -> int:
    """Wait for the end of all, tell it, and return the exit code; Ctrl-C leaves them alone."""
    client.patience = WHILE_WAITING
    try:
        if submitted.kind == "task":
            return _wait_for_one(client, submitted.last, output)
        ends = _ends(client, submitted)
    except KeyboardInterrupt:
        say("\nLeft to itself; it goes on. To see it: duly list")
        return OURS
    if output is not Output.TABLE:
        _tell(submitted, output)
    bad = [f"{clean(ref)} {status}" for ref, status in ends if status != "done"]
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    told = f": {', '.join(bad[:NAMED])}{more}" if bad else ""
    say(f"{len(submitted.ids) - len(bad)} of {len(submitted.ids)} done{told}")
    return REFUSED if bad else 0


def _wait_for_one(client: Client, task: str, output: Output) -> int:
    ended = client.wait(task)
    say(describe_end(ended))
    if output is not Output.TABLE:
        print_value(ended, output)
    return code_of_task(ended)


def _ends(client: Client, submitted: _Submitted) -> list[tuple[str, str]]:
    """Return how every task ended, by its ref or place, once all of them have.

    The last of a graph mostly ends last, and the graph tells of all: so now and then it is
    asked, instead of every task.
    """
    ends = []
    for count, (ref, one) in enumerate(reversed(list(submitted.ids.items())), 1):
        ends.append((ref, client.wait(one)["status"]))
        if submitted.kind == "graph" and not count & (count - 1):
            graph = client.get_graph(submitted.answer["id"])
            if graph["status"] in FINAL and not graph["more"]:
                return [(part["ref"] or "", part["status"]) for part in graph["tasks"]]
            if graph["status"] == "done":
                return []
    return ends[::-1]
