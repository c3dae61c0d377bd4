"""Runs an agent: lock and clear the data folder, start the supervisor, join, and serve."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import duly
from duly import wire
from duly.agent import identity
from duly.agent.gateway import Gateway
from duly.agent.leftovers import sweep
from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.enforcement import enforcement
from duly.agent.membership import Membership
from duly.agent.preparation import bundle_cache, task_users, workspace
from duly.agent.preparation.bundle_cache import BundleCache
from duly.agent.preparation.command_attempts import CommandAttempts
from duly.agent.preparation.command_executor import CommandExecutor
from duly.agent.preparation.janitor import Janitor
from duly.agent.preparation.ports import Ports
from duly.agent.reporting import task_socket
from duly.agent.reporting.task_socket import TaskSocket
from duly.agent.session import Session, SupervisorLost
from duly.agent.supervision import supervisor_link
from duly.agent.watchdog import Watchdog
from duly.errors import ConfigError
from duly.model.resources import Resources
from duly.wire import JoinRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The options of an agent."""

    urls: list[str]
    data: Path
    name: str
    capacity: Resources
    join_token: str | None = field(default=None, repr=False)
    """Only needed for the first join; after that the node authenticates with its own key."""
    trust: ssl.SSLContext | None = None
    """The TLS context for https; None means the machine's trusted certificates."""
    labels: dict[str, str] = field(default_factory=dict)
    tasks_as: str | None = None
    port_range: tuple[int, int] | None = None
    isolation: str = "process"
    cpu_quota: bool = False
    """Whether tasks are limited to the CPU they asked for even while processors are idle."""
    on_joined: Callable[[], None] | None = None
    """Called whenever a server has accepted this node."""
    on_tasks_left: Callable[[int], None] = lambda _: None
    """Called while the agent stops, whenever the number of attempts that have not ended changes."""


async def run_agent(options: AgentOptions, stop: asyncio.Event) -> int:
    """Run tasks until `stop` is set, and return 0; 1 means that the supervisor died.

    Raises ConfigError when the folder is in use or no server accepts this node. Cancellation
    kills running attempts at once instead of handing them back.
    """
    if options.isolation != "process":
        raise ConfigError(
            f"--isolation: {options.isolation!r} is unknown. Use --isolation process."
        )
    data = options.data.resolve()
    locked = identity.lock(data)
    try:
        return await _run(options, data, stop)
    finally:
        os.close(locked)


async def _run(options: AgentOptions, data: Path, stop: asyncio.Event) -> int:
    users = task_users.choose(options.tasks_as)
    instance = identity.instance_name(data)
    work = workspace.root(data, instance, shared=users.runs_as_others)
    spool = data / "spool"
    leftover_folders = sweep(instance, work, spool, users)
    workspace.make_root(work)
    spool.mkdir(mode=0o700, exist_ok=True)
    layout = cgroup_hierarchies.find(instance, limit_processes=not users.own_uids)
    if not layout.folders:
        log.warning("no cgroup can be used here: memory is only sampled, and attempts not frozen")
    enforced = enforcement(layout, users, cpu_quota=options.cpu_quota)
    async with Gateway(options.urls, options.trust) as gateway, Janitor() as janitor:
        for folder in leftover_folders:
            janitor.remove(folder)
        ports = Ports(*options.port_range) if options.port_range else Ports()
        listener = task_socket.listen(work, instance, everybody=users.runs_as_others)
        attempts = CommandAttempts(
            work=work,
            spool=spool,
            users=users,
            ports=ports,
            remove=janitor.remove,
            socket=None if listener is None else listener.getsockname(),
            cpu_quota=options.cpu_quota,
        )
        cache = BundleCache(data / "bundles", bundle_cache.max_bytes_on(data))
        executor = CommandExecutor(gateway, attempts, cache, users)
        session = Session(
            gateway, executor, freezer=layout.can_freeze, on_tasks_left=options.on_tasks_left
        )
        executor.link = await supervisor_link.start(
            data, layout, own_uids=users.own_uids, on_event=executor.on_supervisor_event
        )
        try:
            with _listening(listener, attempts, session), Watchdog(session.lease_ends_at):
                return await _membership(options, data, enforced).serve(gateway, session, stop)
        except SupervisorLost:
            log.critical("the supervisor died; killing the attempts that it left behind")
            return 1
        finally:
            await executor.link.close()
            sweep(instance, work, spool, users)
            workspace.remove_root(work)
            users.close()


def _listening(
    listener: socket.socket | None, attempts: CommandAttempts, session: Session
) -> AbstractContextManager[object]:
    """Serve the tasks' socket, if there is one."""
    if listener is None:
        return nullcontext()
    return TaskSocket(listener, attempts.by_caller, session.reported)


def _membership(options: AgentOptions, data: Path, enforced: dict[str, str]) -> Membership:
    """Return how this agent joins."""
    return Membership(
        data=data,
        describe=lambda key: JoinRequest(
            name=options.name,
            key=key,
            capacity=wire.capacity(options.capacity),
            labels=options.labels,
            isolation=options.isolation,
            version=duly.__version__,
            enforcement=enforced,
        ),
        secret=options.join_token,
        if_unknown=(
            "It has not joined yet, and has no join token. Create one with 'duly node token "
            "create', and give it with --join-token-file."
        ),
        on_joined=options.on_joined,
    )
