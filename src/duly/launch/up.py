"""`duly up`: runs everything on one machine.

The parts start in the order of their dependencies and stop in reverse: the agent returns its tasks
to a running server, and the server resigns its duties in a running database.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from duly.config import Settings
from duly.dashboard.link import NAME
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
from duly.launch.local.child_process import ChildProcess, kept
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
from duly.launch.local.user_config import Written, write_user_config
from duly.launch.serve import ServeOptions, listen
from duly.launch.serving import serving
from duly.launch.signals import Signals
from duly.private_file import write_private

STARTS_WITHIN = 60.0
"""Seconds that the agent may take to join; generous, for busy machines."""
DASHBOARD_PATIENCE = 5.0
AGENT_MARGIN = 10.0
"""Seconds that the agent gets, on top of its tasks' grace period, to return them."""

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
    settings: Settings = field(default_factory=Settings)
    verbose: bool = False


@dataclass(frozen=True)
class LocalInstallation:
    """The data folder, address and administrator's key of this `duly up`."""

    data: Path
    url: str
    port: int
    key: str = field(repr=False)


async def up(options: UpOptions, say: Say, warn: Say) -> None:
    """Run everything until a signal; `say` prints output and `warn` prints warnings."""
    check_isolation(options.isolation)
    running: list[str] = []
    interrupts = Signals(lambda: _say_goodbye(warn), lambda: _say_what_is_left(running, warn))
    await interrupts.run(_run(options, interrupts.hurry, running, say, warn))


def _say_goodbye(warn: Say) -> None:
    # Only at a terminal: in a log, a requested stop is no warning.
    if sys.stderr.isatty():
        warn(
            "Stopping: running tasks are returned to their queue. Press Ctrl-C again to kill them."
        )


def _say_what_is_left(running: Sequence[str], warn: Say) -> None:
    """Name the parts that have not stopped yet, in the order in which they stop."""
    if sys.stderr.isatty() and running:
        warn(f"Killing the running tasks; waiting for: {', '.join(reversed(running))}.")


@contextmanager
def _listed(name: str, running: list[str]) -> Iterator[None]:
    """Keep `name` in `running` during the block."""
    running.append(name)
    try:
        yield
    finally:
        running.remove(name)


async def _run(
    options: UpOptions, hurry: asyncio.Event, running: list[str], say: Say, warn: Say
) -> None:
    data = options.data.absolute()
    async with AsyncExitStack() as stack:
        stack.enter_context(claim(data))
        port = choose_port(options.host, options.port, count=2 if options.dashboard else 1)
        sock = stack.enter_context(listen(options.host, port))
        dsn = options.database
        if dsn is None:
            stack.enter_context(_listed("PostgreSQL", running))
            dsn = await stack.enter_async_context(embedded_postgres(data))
        role = options.settings.database.request_role
        await bring_up_to_date(dsn, role)
        await check_request_role(dsn, role)
        key = await ensure_admin_key(dsn, data / "admin.key")
        place = LocalInstallation(data, url_of(local_name(options.host), port), port, key)
        stack.enter_context(_listed("the server", running))
        await stack.enter_async_context(serving(_serve_options(options, place, dsn), sock))
        pages = _pages(options, place)
        if pages:
            stack.enter_context(_listed("the dashboard", running))
            await stack.enter_async_context(kept(pages.part, DASHBOARD_PATIENCE, hurry))
        agent = await _agent(options, place, dsn)
        grace = options.settings.execution.grace.total_seconds()
        stack.enter_context(_listed("the agent", running))
        await stack.enter_async_context(kept(agent, grace + AGENT_MARGIN, hurry))
        await _until_joined(agent)
        _greet(options, place, say, warn)
        if pages:
            line = partial(greeting.pages_line, address=pages.address, file=data / NAME)
            await pages.tell_link(lambda link: say(line(link, is_terminal=sys.stdout.isatty())))
        await asyncio.Event().wait()


def _pages(options: UpOptions, place: LocalInstallation) -> Pages | None:
    if options.dashboard:
        return Pages(place.url, place.key, options.host, place.port + 1, place.data)
    (place.data / NAME).unlink(missing_ok=True)
    return None


def _serve_options(options: UpOptions, place: LocalInstallation, dsn: str) -> ServeOptions:
    return ServeOptions(
        dsn=dsn,
        store_url=options.store_url or str(place.data / "objects"),
        host=options.host,
        port=place.port,
        settings=options.settings,
    )


async def _agent(options: UpOptions, place: LocalInstallation, dsn: str) -> ChildProcess:
    """Return the agent of this machine, with a join token in a file."""
    folder = place.data / "agent"
    folder.mkdir(mode=0o700, exist_ok=True)
    token_file = folder / "join.token"
    write_private(token_file, await create_join_token(dsn) + "\n")
    return agent_part(
        url=place.url,
        data=folder,
        join_token_file=token_file,
        isolation=options.isolation,
        verbose=options.verbose,
    )


async def _until_joined(agent: ChildProcess) -> None:
    try:
        async with asyncio.timeout(STARTS_WITHIN):
            await agent.started.wait()
    except TimeoutError as error:
        raise ConfigError(
            f"The agent did not join within {STARTS_WITHIN:g} s; see its output above. "
            "Run `duly doctor` to check this machine."
        ) from error


def _greet(options: UpOptions, place: LocalInstallation, say: Say, warn: Say) -> None:
    written, where = write_user_config(os.environ, url=place.url, key=place.key, data=place.data)
    if written is Written.FAILED:
        warn(f"Cannot write the client configuration: {where}")
    elif written is Written.KEPT:
        warn(f"{where} belongs to another Duly and was not changed.")
    if not is_loopback(options.host):
        warn(UNENCRYPTED)
    say(f"ready: {url_of(public_name(options.host), place.port)}")
    say(greeting.isolation_line(options.isolation, is_root=os.geteuid() == 0))
    say("try:")
    for command in greeting.commands(
        url=place.url,
        key_file=place.data / "admin.key",
        is_configured=written is Written.WRITTEN,
    ):
        say(f"  {command}")
