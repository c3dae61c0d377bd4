"""Runs the worker's process, for `duly worker` and as a child of `duly up`."""

from collections.abc import Callable
from pathlib import Path

from duly.agent.capacity import detect
from duly.agent.pool.process_pool import PoolOptions
from duly.agent.pool.worker import WorkerOptions, run_worker
from duly.errors import DulyError
from duly.launch.agent import load_trust
from duly.launch.event_loop import run
from duly.launch.interruption import run_node
from duly.launch.local.child_process import receive, report_started, report_tasks_left
from duly.launch.local.worker_process import WorkerFlags, default_processes
from duly.launch.logs import log_to_stderr

Ready = Callable[[int, int], None]
"""Called with the number of processes and of functions."""


async def run_until_interrupted(
    flags: WorkerFlags, ready: Ready, tasks_left: Callable[[int], None]
) -> int:
    """Run the worker until a signal, and return its exit code.

    The first signal returns the tasks to their queues, the second kills them at once. Meanwhile
    `tasks_left` is called with the number of tasks that have not ended, whenever it changes.
    """
    options = _options(flags, ready, tasks_left)
    return await run_node(lambda stop: run_worker(options, stop))


def _options(flags: WorkerFlags, ready: Ready, tasks_left: Callable[[int], None]) -> WorkerOptions:
    processes = flags.processes or default_processes()
    data = None if flags.data is None else Path(flags.data)
    pool = PoolOptions(
        app=flags.app,
        processes=processes,
        threads=flags.threads,
        concurrency=flags.concurrency,
        max_tasks=flags.max_tasks,
        max_memory_mb=flags.max_memory_mb,
        # So that one that leaks is ended, and not whatever else the machine runs.
        memory_mb=detect(Path.cwd()).memory_mb,
        reload=flags.reload,
    )
    return WorkerOptions(
        urls=flags.urls,
        pool=pool,
        name=flags.name,
        data=data,
        key=flags.key,
        trust=load_trust(flags.ca_file),
        labels=flags.labels,
        on_ready=lambda functions: ready(processes, functions),
        on_tasks_left=tasks_left,
    )


def main() -> None:
    """Run the worker inside the child process of `duly up`."""
    flags = receive(WorkerFlags)
    log_to_stderr(verbose=flags.verbose)
    try:
        code = run(run_until_interrupted(flags, lambda *_: report_started(), report_tasks_left))
    except DulyError as error:
        raise SystemExit(f"worker: {error.message}") from error
    raise SystemExit(code)


if __name__ == "__main__":
    main()
