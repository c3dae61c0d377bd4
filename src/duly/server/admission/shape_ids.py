"""Caches the ids of shapes: what placement looks at in a task, interned once for all tasks."""

from collections.abc import Mapping, Sequence

from duly.model.shape import Shape
from duly.model.task import TaskSpec
from duly.server.offload import offload
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database, confirm
from duly.store.tasks import tasks


class ShapeIds:
    """The ids of the shapes that this server has seen, by shape key."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: dict[str, int] = {}

    def get(self, spec: TaskSpec) -> int | None:
        """Return the cached shape id of `spec`, if there is one."""
        return self._ids.get(tasks.shape_key(spec.shape))

    async def get_or_create(self, specs: Sequence[TaskSpec]) -> list[int]:
        """Return the shape id of each spec; new shapes are stored, and cached once durable."""
        keys = await offload(len(specs), _shape_keys, specs)
        if not all(key in self._ids for key in keys):
            async with self._database.connection(ConnectionClass.CLIENT) as conn:
                # Concurrent callers may have cached the shapes while this one waited.
                missing = self._missing(keys, specs)
                created = {}
                if missing:
                    created = await tasks.intern_shapes(conn, missing)
                    await confirm(conn)
            self._ids.update(created)
        return [self._ids[key] for key in keys]

    async def intern(self, conn: Connection, spec: TaskSpec) -> int:
        """Return the shape id of `spec`; a new one is not cached, as it may be rolled back."""
        key = tasks.shape_key(spec.shape)
        if key in self._ids:
            return self._ids[key]
        return (await tasks.intern_shapes(conn, {key: spec.shape}))[key]

    async def intern_all(
        self, conn: Connection, specs: Sequence[TaskSpec]
    ) -> tuple[list[int], dict[str, int]]:
        """Return the shape id of each spec, and the ids that are not cached by key.

        The caller passes the latter to `put` after the commit.
        """
        keys = await offload(len(specs), _shape_keys, specs)
        missing = self._missing(keys, specs)
        interned = await tasks.intern_shapes(conn, missing) if missing else {}
        return [interned.get(key) or self._ids[key] for key in keys], interned

    def put(self, ids: Mapping[str, int]) -> None:
        """Cache ids from `intern_all`. Call it after the commit."""
        self._ids.update(ids)

    def _missing(self, keys: Sequence[str], specs: Sequence[TaskSpec]) -> dict[str, Shape]:
        return {
            key: spec.shape for key, spec in zip(keys, specs, strict=True) if key not in self._ids
        }


def _shape_keys(specs: Sequence[TaskSpec]) -> list[str]:
    """Return the key of each shape; most tasks of a batch share the shape of the one before."""
    keys: list[str] = []
    previous: TaskSpec | None = None
    for spec in specs:
        if previous is None or not _share_shape(spec, previous):
            key = tasks.shape_key(spec.shape)
        keys.append(key)
        previous = spec
    return keys


def _share_shape(first: TaskSpec, second: TaskSpec) -> bool:
    """Return True if two specs share the same objects; comparing values would take longer."""
    return (
        first.tenant_id == second.tenant_id
        and first.resources is second.resources
        and first.requires is second.requires
        and first.concurrency is second.concurrency
        and first.queue is second.queue
        and first.user_id == second.user_id
        and first.payload.uses == second.payload.uses
        and _function(first) == _function(second)
    )


def _function(spec: TaskSpec) -> str | None:
    return None if spec.payload.call is None else spec.payload.call.function
