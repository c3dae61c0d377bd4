"""Creates, changes, pauses and removes queues, with an entry in the audit log.

The leader reads the queues with the limits of tenants, and every server with the plan of a caller.
A change sends a hint for both; whoever misses it follows within a second, or after the TTL of the
cached keys.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.errors import Conflict, NotFound
from duly.model.queues.queue import QueueDefinition, QueueDefinitions
from duly.model.requests.queue_request import MAX_QUEUES, change_queue
from duly.model.tenant import Credential
from duly.model.wording import count_of
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.store.accounts import audit_log
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database
from duly.store.fleet import queues
from duly.store.fleet.queues import QueueUsers


class Queues:
    """The operations on queues."""

    def __init__(self, database: Database, server_bus: ServerBus) -> None:
        self._database = database
        self._server_bus = server_bus

    async def create(self, credential: Credential, queue: QueueDefinition) -> None:
        """Store a new queue, which tasks can then ask for."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            existing = await queues.lock(conn)
            if queue.name in existing.by_name:
                raise Conflict(
                    f"There is a queue {queue.name!r} already. Update it, or choose another name."
                )
            if len(existing.by_name) >= MAX_QUEUES:
                raise Conflict(
                    f"There are {MAX_QUEUES} queues, which is the limit. Remove one first."
                )
            await queues.add(conn, queue)
            await _record(conn, credential, "create", queue.name, _fields(queue))
        self._announce()

    async def update(self, credential: Credential, name: str, changes: Mapping[str, Any]) -> None:
        """Change the level, the maximum share or the hours of a queue."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            old = _existing(await queues.lock(conn), name)
            new = change_queue(old, changes)
            await queues.change(conn, new)
            await _record(conn, credential, "update", name, _changed(old, new))
        self._announce()

    async def pause(self, credential: Credential, name: str) -> None:
        """Let no task of a queue start until it is resumed; those that run go on."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            if not _existing(await queues.lock(conn), name).is_paused:
                await queues.set_paused(conn, name, credential.actor)
                await _record(conn, credential, "pause", name, {})
        self._announce()

    async def resume(self, credential: Credential, name: str) -> None:
        """Let the tasks of a paused queue start again."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            old = _existing(await queues.lock(conn), name)
            if old.is_paused:
                await queues.set_paused(conn, name, None)
                await _record(conn, credential, "resume", name, {"paused_by": old.paused_by})
        self._announce()

    async def remove(self, credential: Credential, name: str) -> None:
        """Remove an administrator's queue in which no task is live, and that is named nowhere."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            old = _existing(await queues.lock(conn), name)
            if old.is_built_in:
                raise Conflict(f"The queue {name!r} is built in and cannot be removed.")
            _check_unused(name, await queues.read_users(conn, name))
            await queues.remove(conn, name)
            await _record(conn, credential, "remove", name, _fields(old))
        self._announce()

    def _announce(self) -> None:
        self._server_bus.broadcast(Hint(work=True, subqueues=None, credentials=True))


def _existing(definitions: QueueDefinitions, name: str) -> QueueDefinition:
    if name not in definitions.by_name:
        raise NotFound(f"There is no queue {name[:60]!r}.", kind="queue")
    return definitions.by_name[name]


def _check_unused(name: str, users: QueueUsers) -> None:
    if plans := users.plans:
        raise Conflict(
            f"The queue {name!r} is included in the plans {', '.join(plans)}; take it out of their "
            "queues first.",
            plans=plans,
        )
    if schedules := users.schedules:
        raise Conflict(
            f"The queue {name!r} is asked for by schedules: {', '.join(schedules)}. Give them "
            "another queue with 'duly schedule update NAME --queue', or remove them, first.",
            schedules=schedules,
        )
    if tasks := users.tasks:
        have = "has" if tasks == 1 else "have"
        raise Conflict(
            f"The queue {name!r} has {count_of(tasks, 'task')} that {have} not ended. Let them "
            "end, cancel them, or give them another queue with 'duly update ID --queue'.",
            live=tasks,
        )


def _fields(queue: QueueDefinition) -> dict[str, Any]:
    """Return the fields of a queue for the audit log, as they are requested."""
    fields = msgspec.structs.asdict(queue)
    hours = queue.hours
    fields["hours"] = None if hours is None else f"{hours} {hours.timezone}"
    return {
        name: fields[name]
        for name in ("level", "off_peak", "max_share", "hours")
        if fields[name] is not None
    }


def _changed(old: QueueDefinition, new: QueueDefinition) -> dict[str, Any]:
    before, after = _fields(old), _fields(new)
    names = [name for name in before | after if before.get(name) != after.get(name)]
    return {name: [before.get(name), after.get(name)] for name in names}


async def _record(
    conn: Connection, credential: Credential, verb: str, name: str, details: Mapping[str, Any]
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=f"queue.{verb}",
        target=name,
        tenant_id=None,
        details=details,
    )
