"""An agent from start to stop: take the folder, clear it, start the supervisor, join, work."""

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
from duly import alarm, wire
from duly.agent import bundle_cache, hierarchies, identity, link, task_socket, users, workspace
from duly.agent.bundle_cache import BundleCache
from duly.agent.enforcement import enforcement
from duly.agent.executor import Executor
from duly.agent.gateway import Backoff, Gateway
from duly.agent.janitor import Janitor
from duly.agent.ports import Ports
from duly.agent.session import Session, SupervisorLost
from duly.agent.sweep import sweep
from duly.agent.task_socket import TaskSocket
from duly.agent.watchdog import Watchdog
from duly.clock import monotonic
from duly.errors import ConfigError, Forbidden, Unauthenticated, Unavailable
from duly.model.resources import Resources
from duly.wire import Join, Joined

log = logging.getLogger(__name__)

JOIN_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What an agent is started with."""

    urls: list[str]
    data: Path
    name: str
    capacity: Resources
    join_token: str | None = field(default=None, repr=False)
    """Needed for the first join only; after that the node has a key of its own."""
    trust: ssl.SSLContext | None = None
    """Whose certificates are good, for https; None for those that the machine trusts."""
    labels: dict[str, str] = field(default_factory=dict)
    tasks_as: str | None = None
    port_range: tuple[int, int] | None = None
    isolation: str = "process"
    cpu_quota: bool = False
    """Whether tasks get no more cpu than they asked for even while processors are idle."""
    on_joined: Callable[[], None] | None = None
    """Called whenever a server has accepted this node."""


async def run_agent(options: AgentOptions, stop: asyncio.Event) -> int:
    """Work until `stop` is set, and return 0; 1 means that the supervisor died.

    Raises ConfigError when the folder is in use or no server accepts this node. Cancelling it
    kills what runs at once instead of handing it back.
    """
    if options.isolation != "process":
        raise ConfigError(f"There is no isolation level {options.isolation!r} yet; use process.")
    data = options.data.resolve()
    locked = identity.lock(data)
    try:
        return await _run(options, data, stop)
    finally:
        os.close(locked)


async def _run(options: AgentOptions, data: Path, stop: asyncio.Event) -> int:
    chosen = users.choose(options.tasks_as)
    mark = identity.mark(data)
    work = workspace.root(data, mark, shared=chosen.runs_as_others)
    spool = data / "spool"
    left = sweep(mark, work, spool, chosen)
    workspace.make_root(work)
    spool.mkdir(mode=0o700, exist_ok=True)
    layout = hierarchies.find(mark, limit_processes=not chosen.own_uids)
    if not layout.folders:
        log.warning("no cgroup can be used here: memory is only sampled, and attempts not frozen")
    enforced = enforcement(layout, chosen, cpu_quota=options.cpu_quota)
    async with Gateway(options.urls, options.trust) as gateway, Janitor() as janitor:
        for folder in left:
            janitor.remove(folder)
        ports = Ports(*options.port_range) if options.port_range else Ports()
        listener = task_socket.listen(work, mark, everybody=chosen.runs_as_others)
        executor = Executor(
            work=work,
            spool=spool,
            users=chosen,
            ports=ports,
            remove=janitor.remove,
            socket=None if listener is None else listener.getsockname(),
            cpu_quota=options.cpu_quota,
        )
        cache = BundleCache(data / "bundles", bundle_cache.room_on(data))
        session = Session(gateway, executor, cache, chosen, freezer=layout.can_freeze)
        session.link = await link.start(
            data, layout, own_uids=chosen.own_uids, on_event=session.supervisor_says
        )
        try:
            with _listening(listener, executor, session), Watchdog(session.lease_ends_at):
                return await _work(options, data, gateway, session, enforced, stop)
        except SupervisorLost:
            log.critical("the supervisor died; killing what it left")
            return 1
        finally:
            await session.link.close()
            sweep(mark, work, spool, chosen)
            workspace.remove_root(work)
            chosen.close()


def _listening(
    listener: socket.socket | None, executor: Executor, session: Session
) -> AbstractContextManager[object]:
    """Let tasks speak to us, where they can."""
    if listener is None:
        return nullcontext()
    return TaskSocket(listener, executor.by_caller, session.attempt_says)


async def _work(
    options: AgentOptions,
    data: Path,
    gateway: Gateway,
    session: Session,
    enforced: dict[str, str],
    stop: asyncio.Event,
) -> int:
    """Join, serve, and join again whenever an incarnation is over."""
    while True:
        sent_at, joined = await _join(options, data, gateway, enforced, stop)
        if joined is None:
            return 0
        log.info("joined", extra={"node": joined.node, "incarnation": joined.incarnation})
        if options.on_joined:
            options.on_joined()
        if await session.serve(joined, sent_at, stop):
            return 0


async def _join(
    options: AgentOptions,
    data: Path,
    gateway: Gateway,
    enforced: dict[str, str],
    stop: asyncio.Event,
) -> tuple[float, Joined | None]:
    """Join as the node that we are, or as a new one; None means that we were told to stop."""
    message = Join(
        name=options.name,
        key=identity.ensure(data).key,
        capacity=wire.capacity(options.capacity),
        labels=options.labels,
        isolation=options.isolation,
        version=duly.__version__,
        enforcement=enforced,
    )
    backoff = Backoff()
    while not stop.is_set():
        sent_at = monotonic()
        try:
            return sent_at, await _ask_to_join(options, data, gateway, message)
        except Unavailable as error:
            log.warning("cannot join", extra={"error": error.message})
        await alarm.wait_for(stop, backoff.next())
    return 0.0, None


async def _ask_to_join(
    options: AgentOptions, data: Path, gateway: Gateway, message: Join
) -> Joined:
    known = identity.ensure(data)
    advice = "Make a token with `duly node token create`, and give it with --join-token-file."
    for secret in _secrets(known, options.join_token):
        gateway.key = secret
        try:
            joined = await gateway.join(message, timeout=JOIN_TIMEOUT)
        except (Unauthenticated, Forbidden) as error:
            log.warning("not accepted", extra={"error": error.message})
            if secret == options.join_token:
                advice = error.message
            continue
        gateway.key = known.key
        if joined.node != known.node:
            identity.save(data, identity.Identity(joined.node, known.key))
        return joined
    raise ConfigError(
        f"No server accepts this node. {advice} "
        f"If the node was removed, take {data / 'node.json'} away too."
    )


def _secrets(known: identity.Identity, token: str | None) -> list[str]:
    """Return what to join with, likeliest first.

    The key may be known even to a node that was never answered: its token may have expired since.
    """
    tokens = [token] if token else []
    return [*tokens, known.key] if known.node is None else [known.key, *tokens]
