"""The numbers of shapes: what a task needs and requires, told apart once for all tasks."""

from collections.abc import Mapping, Sequence

from duly.model.shape import Shape
from duly.model.task import TaskSpec
from duly.server.offload import offload
from duly.store import tasks
from duly.store.database import Connection, Database, confirm
from duly.store.lanes import Lane


class ShapeBook:
    """Remembers the numbers of the shapes that this server has seen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers: dict[str, int] = {}

    def recall(self, spec: TaskSpec) -> int | None:
        """Return the shape of `spec`, if this server has seen it."""
        return self._numbers.get(tasks.shape_key(spec.shape))

    async def learn(self, specs: Sequence[TaskSpec]) -> list[int]:
        """Return the shape of each of `specs`; new ones are stored, and remembered once certain."""
        keys = await offload(len(specs), _keys, specs)
        if not all(key in self._numbers for key in keys):
            async with self._database.connection(Lane.GUEST) as conn:
                # Of many who come at once, the first have learned it while the others waited.
                unknown = self._unknown(keys, specs)
                learned = {}
                if unknown:
                    learned = await tasks.intern_shapes(conn, unknown)
                    await confirm(conn)
            self._numbers.update(learned)
        return [self._numbers[key] for key in keys]

    async def find(self, conn: Connection, spec: TaskSpec) -> int:
        """Return the shape of `spec`; a new one is not remembered, for it may be rolled back."""
        key = tasks.shape_key(spec.shape)
        if key in self._numbers:
            return self._numbers[key]
        return (await tasks.intern_shapes(conn, {key: spec.shape}))[key]

    async def find_all(
        self, conn: Connection, specs: Sequence[TaskSpec]
    ) -> tuple[list[int], dict[str, int]]:
        """Return the shape of each of `specs`, and the new ones by key.

        Those are to be remembered once they are committed.
        """
        keys = await offload(len(specs), _keys, specs)
        unknown = self._unknown(keys, specs)
        found = await tasks.intern_shapes(conn, unknown) if unknown else {}
        return [found.get(key) or self._numbers[key] for key in keys], found

    def remember(self, numbers: Mapping[str, int]) -> None:
        """Take in what `find_all` found that was new, after the commit."""
        self._numbers.update(numbers)

    def _unknown(self, keys: Sequence[str], specs: Sequence[TaskSpec]) -> dict[str, Shape]:
        return {
            key: spec.shape
            for key, spec in zip(keys, specs, strict=True)
            if key not in self._numbers
        }


def _keys(specs: Sequence[TaskSpec]) -> list[str]:
    """Return the key of each shape; the tasks of a batch mostly share what makes it."""
    keys: list[str] = []
    before: TaskSpec | None = None
    for spec in specs:
        if before is None or not _have_one_shape(spec, before):
            key = tasks.shape_key(spec.shape)
        keys.append(key)
        before = spec
    return keys


def _have_one_shape(one: TaskSpec, other: TaskSpec) -> bool:
    """Say whether two tasks have the very same values; equal ones would take longer to compare."""
    return (
        one.resources is other.resources
        and one.requires is other.requires
        and one.concurrency is other.concurrency
        and one.queue is other.queue
    )
