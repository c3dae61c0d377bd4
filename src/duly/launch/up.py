"""`duly up`: everything on one machine.

Each part is entered in the order in which the next one needs it, and left in the
reverse: the agent hands its tasks back to a server that still runs, the server says
goodbye to a database that is still there.
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
from duly.dashboard.link import NAME
from duly.errors import ConfigError
from duly.launch import greeting
from duly.launch.agent_part import agent_part, check_isolation
from duly.launch.dashboard import Pages
from duly.launch.data_folder import claim
from duly.launch.database import (
    bring_up_to_date,
    check_request_role,
    create_join_token,
    ensure_admin_key,
)
from duly.launch.interrupts import Interrupts
from duly.launch.part import Part, kept
from duly.launch.ports import choose_port, is_loopback, local_name, url_of
from duly.launch.postgres import embedded_postgres
from duly.launch.serve import ServeOptions, listen
from duly.launch.serving import serving
from duly.launch.user_config import Written, write_user_config
from duly.private_file import write_private

STARTS_WITHIN = 60.0
"""Seconds for a part to begin its work; a busy machine is slow, not broken."""
DASHBOARD_PATIENCE = 5.0
AGENT_MARGIN = 10.0
"""Seconds, beyond the grace of its tasks, that the agent gets to hand them back."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class UpOptions:
    """What `duly up` was told."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8470
    database: str | None = field(default=None, repr=False)
    dashboard: bool = True
    isolation: str = "process"
    settings: Settings = field(default_factory=Settings)
    verbose: bool = False


@dataclass(frozen=True)
class Place:
    """Where this Duly is: its folder, its address, and the key to it."""

    data: Path
    url: str
    port: int
    key: str = field(repr=False)


async def up(options: UpOptions, say: Say, warn: Say) -> None:
    """Run everything until interrupted; `say` and `warn` are told what a person should know."""
    check_isolation(options.isolation)
    interrupts = Interrupts(lambda: _say_goodbye(warn))
    await interrupts.run(_run(options, interrupts.hurry, say, warn))


def _say_goodbye(warn: Say) -> None:
    # Only to a person: in a log, a stop that was asked for is nothing to be warned of.
    if sys.stderr.isatty():
        warn("Stopping: tasks that run are handed back. Ctrl-C again kills them at once.")


async def _run(options: UpOptions, hurry: asyncio.Event, say: Say, warn: Say) -> None:
    data = options.data.absolute()
    async with AsyncExitStack() as stack:
        stack.enter_context(claim(data))
        port = choose_port(options.host, options.port, count=2 if options.dashboard else 1)
        sock = stack.enter_context(listen(options.host, port))
        dsn = options.database
        if dsn is None:
            dsn = await stack.enter_async_context(embedded_postgres(data))
        role = options.settings.database.request_role
        await bring_up_to_date(dsn, role)
        await check_request_role(dsn, role)
        key = await ensure_admin_key(dsn, data / "admin.key")
        place = Place(data, url_of(local_name(options.host), port), port, key)
        await stack.enter_async_context(serving(_serve_options(options, place, dsn), sock))
        pages = _pages(options, place)
        if pages:
            await stack.enter_async_context(kept(pages.part, DASHBOARD_PATIENCE, hurry))
        agent = await _agent(options, place, dsn)
        grace = options.settings.execution.grace.total_seconds()
        await stack.enter_async_context(kept(agent, grace + AGENT_MARGIN, hurry))
        await _until_joined(agent)
        _greet(options, place, say, warn)
        if pages:
            line = partial(greeting.pages_line, address=pages.address, file=data / NAME)
            await pages.tell_link(lambda link: say(line(link, is_terminal=sys.stdout.isatty())))
        await asyncio.Event().wait()


def _pages(options: UpOptions, place: Place) -> Pages | None:
    if options.dashboard:
        return Pages(place.url, place.key, options.host, place.port + 1, place.data)
    (place.data / NAME).unlink(missing_ok=True)
    return None


def _serve_options(options: UpOptions, place: Place, dsn: str) -> ServeOptions:
    return ServeOptions(
        dsn=dsn,
        store_url=str(place.data / "objects"),
        host=options.host,
        port=place.port,
        settings=options.settings,
    )


async def _agent(options: UpOptions, place: Place, dsn: str) -> Part:
    """Return the agent of this machine, with a token in a file that lets it join."""
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


async def _until_joined(agent: Part) -> None:
    try:
        async with asyncio.timeout(STARTS_WITHIN):
            await agent.started.wait()
    except TimeoutError as error:
        raise ConfigError(
            f"The agent did not join within {STARTS_WITHIN:g} s; what it said stands above. "
            "`duly doctor` tells what this machine lacks."
        ) from error


def _greet(options: UpOptions, place: Place, say: Say, warn: Say) -> None:
    written, where = write_user_config(os.environ, url=place.url, key=place.key, data=place.data)
    if written is Written.FAILED:
        warn(f"The configuration for clients could not be written: {where}")
    elif written is Written.KEPT:
        warn(f"{where} belongs to another Duly and was left alone.")
    if not is_loopback(options.host):
        warn("Keys and tasks cross the network unencrypted; keep it to one that you trust.")
    say(f"ready: {place.url}")
    say(greeting.isolation_line(options.isolation, is_root=os.geteuid() == 0))
    say("try:")
    for command in greeting.commands(
        url=place.url,
        key_file=place.data / "admin.key",
        is_configured=written is Written.WRITTEN,
    ):
        say(f"  {command}")
