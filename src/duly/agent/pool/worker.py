"""Runs a worker: claim a folder, start the supervisor and the processes, join, and serve."""

import asyncio
import hashlib
import logging
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import duly
from duly.agent import identity
from duly.agent.gateway import Gateway
from duly.agent.leftovers import sweep
from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.enforcement import enforcement
from duly.agent.membership import Membership
from duly.agent.pool.argument_fetcher import ArgumentFetcher
from duly.agent.pool.attempt_calls import AttemptCalls
from duly.agent.pool.function_executor import FunctionExecutor
from duly.agent.pool.process_pool import PoolOptions
from duly.agent.pool.reloading import Reloader
from duly.agent.preparation.task_users import SameUser
from duly.agent.reporting.attempt_keys import AttemptKeys
from duly.agent.session import Session, SupervisorLost
from duly.agent.supervision import supervisor_link
from duly.agent.watchdog import Watchdog
from duly.errors import ConfigError
from duly.model.resources import SLOTS
from duly.wire import Capacity, JoinRequest

log = logging.getLogger(__name__)

MAX_WORKERS_PER_APP = 1000
"""Folders that are tried for the identity of a worker, which each has for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker."""

    urls: list[str]
    pool: PoolOptions
    name: str | None = None
    """None: made of the machine and the application."""
    data: Path | None = None
    """The folder of its identity; None: the first in the user's own that is not in use."""
    key: str | None = field(default=None, repr=False)
    """An API key; only needed for the first join."""
    trust: ssl.SSLContext | None = None
    labels: dict[str, str] = field(default_factory=dict)
    on_ready: Callable[[int], None] = lambda _: None
    """Called with the number of functions whenever a server has accepted this worker."""
    on_tasks_left: Callable[[int], None] = lambda _: None


async def run_worker(options: WorkerOptions, stop: asyncio.Event) -> int:
    """Run calls until `stop` is set, and return 0; 1 means that the supervisor died.

    Raises ConfigError if the application cannot be loaded, or no server accepts this worker.
    """
    data, locked, number = _claim(options)
    try:
        name = options.name or _name(options, number)
        return await _run(replace(options, name=name), data, stop)
    finally:
        os.close(locked)


def _name(options: WorkerOptions, number: int) -> str:
    name = f"{socket.gethostname()}-{options.pool.app.partition(':')[0]}"
    return name if number == 1 else f"{name}-{number}"


def _claim(options: WorkerOptions) -> tuple[Path, int, int]:
    """Return the worker's folder, locked, and its number among those of the application."""
    if options.data is not None:
        data = options.data.resolve()
        return data, identity.lock(data), 1
    root = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    what = f"{options.urls[0]}\n{Path.cwd()}\n{options.pool.app}"
    digest = hashlib.sha256(os.fsencode(what)).hexdigest()[:12]
    for number in range(1, MAX_WORKERS_PER_APP):
        data = root / "duly" / "workers" / f"{digest}-{number}"
        locked = identity.try_lock(data)
        if locked is not None:
            return data, locked, number
    raise ConfigError(f"{MAX_WORKERS_PER_APP} workers run here already.")


async def _run(options: WorkerOptions, data: Path, stop: asyncio.Event) -> int:
    instance, users = identity.instance_name(data), SameUser(None)
    work, spool = data / "pool", data / "spool"
    sweep(instance, work, spool, users)
    shutil.rmtree(work, ignore_errors=True)
    for folder in (work, spool):
        folder.mkdir(mode=0o700, exist_ok=True)
    layout = cgroup_hierarchies.find(instance, limit_processes=True)
    enforced = enforcement(layout, users, cpu_quota=False)
    async with Gateway(options.urls, options.trust) as gateway:
        keys = AttemptKeys(gateway)
        executor = FunctionExecutor(
            options.pool, work, spool, ArgumentFetcher(gateway), AttemptCalls(gateway, keys)
        )
        session = Session(
            gateway,
            executor,
            freezer=layout.can_freeze,
            keys=keys,
            on_tasks_left=options.on_tasks_left,
        )
        executor.link = await supervisor_link.start(
            data, layout, own_uids=False, on_event=executor.pool.on_supervisor_event
        )
        try:
            with Watchdog(session.lease_ends_at):
                return await _serve(options, data, gateway, session, executor, enforced, stop)
        except SupervisorLost:
            log.critical("the supervisor died; killing the processes that it left behind")
            return 1
        finally:
            executor.pool.close()
            await executor.link.close()
            sweep(instance, work, spool, users)


async def _serve(
    options: WorkerOptions,
    data: Path,
    gateway: Gateway,
    session: Session,
    executor: FunctionExecutor,
    enforced: dict[str, str],
    stop: asyncio.Event,
) -> int:
    """Warm the processes, then run as a member until told to stop."""
    # Processes start only under a lease. Until the first join there is nothing that could run.
    executor.trust(float("inf"))
    if not await _warm(executor, stop):
        return 0
    if not executor.pool.functions and not options.pool.reload:
        raise ConfigError(
            f"{options.pool.app} has no tasks. Decorate its functions with @app.task, in modules "
            "that it imports."
        )
    reloader = Reloader(executor, session)
    member = Membership(
        data=data,
        describe=lambda key: JoinRequest(
            name=options.name or "",
            key=key,
            capacity=Capacity(extra={SLOTS: executor.slots}),
            labels=options.labels,
            version=duly.__version__,
            enforcement=enforced,
            functions=sorted(reloader.joining()),
        ),
        secret=options.key,
        if_unknown=(
            "It has not joined yet, and has no key. Create one with 'duly key create --scopes "
            "node', and give it with --key-file or in DULY_KEY."
        ),
        on_joined=lambda: options.on_ready(len(executor.pool.functions)),
    )
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(reloader.run())
        try:
            return await member.serve(gateway, session, stop)
        finally:
            watching.cancel()


async def _warm(executor: FunctionExecutor, stop: asyncio.Event) -> bool:
    """Start the processes; False if told to stop before they are warm."""
    opening, stopping = asyncio.create_task(executor.pool.open()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            return False
        opening.result()
        return True
    finally:
        opening.cancel()
        stopping.cancel()
