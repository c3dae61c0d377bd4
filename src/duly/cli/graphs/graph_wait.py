"""Waits for all tasks of a graph, and says how they ended."""

import time

import typer

from duly import clock
from duly.cli.connect import print_notice
from duly.cli.entry import INTERRUPTED
from duly.cli.exit_codes import DULY_FAILED, REFUSED
from duly.cli.output.text import clean
from duly.client.shapes.graph_shapes import Graph
from duly.client.shapes.task_shapes import FINAL_STATUSES
from duly.client.sync import Client
from duly.model.wording import count_of

MAX_NAMED_TASKS = 10
POLL_SECONDS = 1.0
"""The time between two looks at a graph of which no open task is known: it has many."""


def wait_for_graph(client: Client, graph: str, timeout: float | None) -> Graph:
    """Wait until all tasks of a graph have ended, and print how; Ctrl-C detaches."""
    until = None if timeout is None else clock.monotonic() + timeout
    try:
        while True:
            found = client.get_graph(graph)
            if found["status"] in FINAL_STATUSES:
                print_notice(f"graph {found['id']}: {describe_ends(found)}")
                return found
            left = None if until is None else until - clock.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            _wait_for_some(client, found, left)
    except TimeoutError:
        print_notice(
            f"duly: Graph {graph} has not ended within the time. See it with: duly graph {graph}"
        )
        raise typer.Exit(DULY_FAILED) from None
    except KeyboardInterrupt:
        print_notice(
            f"\nDetached from graph {graph}, which continues. Wait again with: duly wait {graph}"
        )
        raise typer.Exit(INTERRUPTED) from None


def _wait_for_some(client: Client, graph: Graph, timeout: float | None) -> None:
    """Wait for the last open task that is known, as it usually ends last."""
    live = [task["id"] for task in graph["tasks"] if task["status"] not in FINAL_STATUSES]
    if live:
        client.wait(live[-1], timeout)
    else:
        time.sleep(POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout))


def exit_code_for_graph(graph: Graph) -> int:
    """Return 0 if every task is done, else 1."""
    return 0 if graph["status"] == "done" else REFUSED


def describe_ends(graph: Graph) -> str:
    """Return how many tasks are done, and which of the others ended how."""
    counts = graph["counts"]
    bad = [
        f"{clean(task['ref'] or task['id'])} {task['status']}"
        for task in graph["tasks"]
        if task["status"] != "done"
    ]
    total = sum(counts.values())
    unnamed = total - counts.get("done", 0) - len(bad[:MAX_NAMED_TASKS])
    more = f" and {unnamed} more" if unnamed else ""
    details = f"; {', '.join(bad[:MAX_NAMED_TASKS])}{more}" if bad else ""
    return f"{counts.get('done', 0)} of {count_of(total, 'task')} done{details}"
