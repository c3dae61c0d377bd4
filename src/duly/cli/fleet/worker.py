"""`duly worker`: starts the processes that run an application's functions."""

import os
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.fleet.agent import tell_tasks_left
from duly.cli.fleet.processes import VerboseFlag, print_output
from duly.model.wording import count_of

AppArgument = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="The app, such as shop.tasks:app.")
]
UrlFlag = Annotated[
    str | None,
    typer.Option(metavar="URL[,URL…]", help="The servers. [default: DULY_URL, or your config]"),
]
KeyFileFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with an API key of scope node, for the first start. [default: DULY_KEY, or "
        "your config]",
    ),
]
CaFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CA certificates to trust for https; also DULY_CA_FILE."),
]
DataFlag = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for the worker's identity. [default: one of your own per app and folder]",
    ),
]
NameFlag = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the worker. [default: host name and module]"),
]
LabelFlag = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A label, for --require of tasks: version=42."),
]
ProcessesFlag = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=1000, help="Processes. [default: half of the CPUs]"),
]
ThreadsFlag = Annotated[
    int, typer.Option(metavar="N", min=1, max=1000, help="Plain functions at once per process.")
]
ConcurrencyFlag = Annotated[
    int, typer.Option(metavar="N", min=1, max=10_000, help="Async functions at once per process.")
]
ReloadFlag = Annotated[
    bool, typer.Option("--reload", help="For development: follow changes of the app's files.")
]
MaxTasksFlag = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Replace a process after N functions.")
]
MaxMemoryFlag = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Replace a process that has used more, such as 512MiB."),
]


def worker(
    app: AppArgument,
    url: UrlFlag = None,
    key_file: KeyFileFlag = None,
    ca_file: CaFlag = None,
    data: DataFlag = None,
    name: NameFlag = None,
    label: LabelFlag = None,
    processes: ProcessesFlag = None,
    threads: ThreadsFlag = 1,
    concurrency: ConcurrencyFlag = 1,
    reload: ReloadFlag = False,
    max_tasks: MaxTasksFlag = None,
    max_memory: MaxMemoryFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Start a worker: it runs the functions of a Python app, in warm processes.

    It opens no port. Ctrl-C returns its tasks to their queue; a second Ctrl-C stops at once.
    """
    from duly.cli.fleet.node_flags import read_size
    from duly.cli.tasks.submission.request import parse_pairs
    from duly.launch.event_loop import run
    from duly.launch.local.worker_process import WorkerFlags
    from duly.launch.logs import log_to_stderr
    from duly.launch.worker import run_until_interrupted

    log_to_stderr(verbose=verbose)
    urls, key, trusted = _endpoint(url, key_file, ca_file)
    flags = WorkerFlags(
        app=app,
        urls=urls,
        key=key,
        ca_file=trusted,
        data=None if data is None else str(data.absolute()),
        name=name,
        labels=parse_pairs("--label", label),
        processes=processes,
        threads=threads,
        concurrency=concurrency,
        reload=reload,
        max_tasks=max_tasks,
        max_memory_mb=read_size(max_memory, "--max-memory"),
        verbose=verbose,
    )
    raise typer.Exit(run(run_until_interrupted(flags, _tell_ready, tell_tasks_left)))


def _endpoint(
    url: str | None, key_file: Path | None, ca_file: Path | None
) -> tuple[list[str], str | None, str | None]:
    """Return the URLs, the key and the certificates, as given or as other commands find them."""
    from duly.client.endpoint import find_endpoint
    from duly.errors import ConfigError
    from duly.model.wording import describe_unreadable

    environment = dict(os.environ)
    if url is not None:
        environment["DULY_URL"] = url
    if ca_file is not None:
        environment["DULY_CA_FILE"] = str(ca_file)
    if key_file is not None:
        try:
            environment["DULY_KEY"] = key_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"Cannot read the key from {key_file}: {describe_unreadable(error)}."
            ) from error
    endpoint = find_endpoint(environment)
    trusted = None if endpoint.ca_file is None else str(endpoint.ca_file)
    return list(endpoint.urls), endpoint.key, trusted


def _tell_ready(processes: int, functions: int) -> None:
    print_output(
        f"ready: {count_of(processes, 'process', 'processes')}, {count_of(functions, 'function')}"
    )
