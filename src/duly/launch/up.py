"""`duly up`: runs everything on one machine.

The parts start in the order of their dependencies and stop in reverse: the agent returns its tasks
to a running server, and the server resigns its duties in a running database.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from duly.config import Settings
from duly.dashboard.login.link import NAME
from duly.errors import ConfigError
from duly.launch.dashboard import Pages
from duly.launch.database import (
    bring_up_to_date,
    check_request_role,
    create_join_token,
    ensure_admin_key,
)
from duly.launch.local import greeting
from duly.launch.local.agent_process import agent_part, check_isolation
from duly.launch.local.child_process import ChildProcess, keep_running
from duly.launch.local.data_folder import claim
from duly.launch.local.ports import (
    UNENCRYPTED,
    choose_port,
    is_loopback,
    local_name,
    public_name,
    url_of,
)
from duly.launch.local.postgres import embedded_postgres
from duly.launch.local.shutdown_progress import AGENT, ShutdownProgress
from duly.launch.local.user_config import Written, write_user_config
from duly.launch.local.worker_process import default_processes, worker_part
from duly.launch.serve import ServeOptions, listen
from duly.launch.serving import serving
from duly.launch.signals import Signals
from duly.private_file import write_private

AGENT_START_TIMEOUT_SECONDS = 60.0
"""Time limit for the agent to join; generous, for busy machines."""
DASHBOARD_STOP_TIMEOUT_SECONDS = 5.0
AGENT_STOP_MARGIN_SECONDS = 10.0
"""Time for the agent to return its tasks, on top of their grace period."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class UpOptions:
    """The options of `duly up`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8470
    database: str | None = field(default=None, repr=False)
    store_url: str | None = None
    """The object store; by default a folder in `data`."""
    dashboard: bool = True
    isolation: str = "process"
    app: str | None = None
    """The application whose functions a worker runs here, as MODULE:APP."""
    settings: Settings = field(default_factory=Settings)
    verbose: bool = False


@dataclass(frozen=True)
class LocalInstallation:
    """The data folder, address and administrator's key of this `duly up`."""

    data: Path
    url: str
    port: int
    key: str = field(repr=False)


async def up(options: UpOptions, say: Say, warn: Say) -> int:
    """Run everything until a signal, and return the exit code.

    `say` prints output and `warn` prints warnings.
    """
    check_isolation(options.isolation)
    progress = ShutdownProgress(options.settings.execution.grace.total_seconds())

    def at_terminal(text: str) -> None:
        # In a log, a requested stop is no warning.
        if sys.stderr.isatty():
            warn(text)

    signals = Signals(
        on_stop=lambda: at_terminal(progress.begin()),
        on_repeat=lambda: at_terminal(progress.describe()),
        on_hurry=lambda: at_terminal(progress.hurry()),
    )
    return await signals.run(_run(options, signals.hurry, progress, say, warn))


async def _run(
    options: UpOptions, hurry: asyncio.Event, progress: ShutdownProgress, say: Say, warn: Say
) -> None:
    data = options.data.absolute()
    async with AsyncExitStack() as stack:
        stack.enter_context(claim(data))
        port = choose_port(options.host, options.port, count=2 if options.dashboard else 1)
        sock = stack.enter_context(listen(options.host, port))
        dsn = options.database
        if dsn is None:
            stack.enter_context(progress.part("PostgreSQL"))
            dsn = await stack.enter_async_context(embedded_postgres(data))
        role = options.settings.database.request_role
        await bring_up_to_date(dsn, role)
        await check_request_role(dsn, role)
        key = await ensure_admin_key(dsn, data / "admin.key", replace_stale=True)
        installation = LocalInstallation(data, url_of(local_name(options.host), port), port, key)
        stack.enter_context(progress.part("the server"))
        await stack.enter_async_context(serving(_serve_options(options, installation, dsn), sock))
        pages = _pages(options, installation)
        if pages:
            stack.enter_context(progress.part("the dashboard"))
            await stack.enter_async_context(
                keep_running(pages.part, DASHBOARD_STOP_TIMEOUT_SECONDS, hurry)
            )
        agent = await _agent(options, installation, dsn, progress)
        grace = options.settings.execution.grace.total_seconds()
        stack.enter_context(progress.part(AGENT))
        await stack.enter_async_context(
            keep_running(agent, grace + AGENT_STOP_MARGIN_SECONDS, hurry)
        )
        await _wait_for_start(agent, "agent")
        if options.app is not None:
            worker = _worker(options.app, options, installation, progress)
            stack.enter_context(progress.part("the worker"))
            await stack.enter_async_context(
                keep_running(worker, grace + AGENT_STOP_MARGIN_SECONDS, hurry)
            )
            await _wait_for_start(worker, "worker")
        _print_greeting(options, installation, say, warn)
        if pages:
            line = partial(greeting.pages_line, address=pages.address, file=data / NAME)
            await pages.tell_link(lambda link: say(line(link, is_terminal=sys.stdout.isatty())))
        await asyncio.Event().wait()


def _pages(options: UpOptions, installation: LocalInstallation) -> Pages | None:
    if options.dashboard:
        return Pages(
            installation.url,
            installation.key,
            options.host,
            installation.port + 1,
            installation.data,
        )
    (installation.data / NAME).unlink(missing_ok=True)
    return None


def _serve_options(options: UpOptions, installation: LocalInstallation, dsn: str) -> ServeOptions:
    return ServeOptions(
        dsn=dsn,
        store_url=options.store_url or str(installation.data / "objects"),
        host=options.host,
        port=installation.port,
        settings=options.settings,
    )


async def _agent(
    options: UpOptions, installation: LocalInstallation, dsn: str, progress: ShutdownProgress
) -> ChildProcess:
    """Return the agent of this machine, with a join token in a file."""
    folder = installation.data / "agent"
    folder.mkdir(mode=0o700, exist_ok=True)
    token_file = folder / "join.token"
    write_private(token_file, await create_join_token(dsn) + "\n")
    return agent_part(
        url=installation.url,
        data=folder,
        join_token_file=token_file,
        isolation=options.isolation,
        verbose=options.verbose,
        reserved_cpus=0 if options.app is None else default_processes(),
        on_tasks_left=progress.set_tasks,
    )


def _worker(
    app: str, options: UpOptions, installation: LocalInstallation, progress: ShutdownProgress
) -> ChildProcess:
    """Return the worker of this machine, which runs the functions of an application."""
    return worker_part(
        app=app,
        url=installation.url,
        key=installation.key,
        data=str(installation.data / "worker"),
        verbose=options.verbose,
        on_tasks_left=progress.set_tasks,
    )


async def _wait_for_start(part: ChildProcess, name: str) -> None:
    try:
        async with asyncio.timeout(AGENT_START_TIMEOUT_SECONDS):
            await part.started.wait()
    except TimeoutError as error:
        raise ConfigError(
            f"The {name} did not join within {AGENT_START_TIMEOUT_SECONDS:g} s; see its output "
            "above. Run 'duly doctor' to check this machine."
        ) from error


def _print_greeting(
    options: UpOptions, installation: LocalInstallation, say: Say, warn: Say
) -> None:
    written, detail = write_user_config(
        os.environ, url=installation.url, key=installation.key, data=installation.data
    )
    if written is Written.FAILED:
        warn(f"Cannot write the client configuration: {detail}")
    elif written is Written.KEPT:
        warn(f"{detail} belongs to another Duly and was not changed.")
    if not is_loopback(options.host):
        warn(UNENCRYPTED)
    say(f"ready: {url_of(public_name(options.host), installation.port)}")
    say(greeting.isolation_line(options.isolation, is_root=os.geteuid() == 0))
    say("try:")
    for command in greeting.commands(
        url=installation.url,
        key_file=installation.data / "admin.key",
        is_configured=written is Written.WRITTEN,
    ):
        say(f"  {command}")
