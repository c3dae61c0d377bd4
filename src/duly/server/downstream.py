"""Replays a task together with those that were cancelled because of how it ended.

The new tasks depend on each other as the old ones did. What else these depended on counts as
it is: an upstream that is done is fulfilled, one that is live is waited for, and of one that
failed and was replayed meanwhile the replay is waited for.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from duly.errors import Conflict, NotFound, TooLarge, Unavailable
from duly.model.graph import Dependency
from duly.model.request import repeat
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server import linker
from duly.server.replayer import read_spec
from duly.server.sequencer import Sequencer
from duly.server.submitter import Submitter
from duly.store import inputs, replays, tasks
from duly.store.database import Connection, Database
from duly.store.edges import NewGraph
from duly.store.replays import Needed

CHUNK = 1000
"""Tasks that are read at once."""
AT_ONCE = 100
"""Tasks that are repeated before others get their turn on this server."""
UNTOLD = "Those that depend on it are still being told how it ended; nothing was stored. Try again."


class Found(msgspec.Struct, frozen=True):
    """What is to be replayed: the task itself comes first."""

    specs: dict[int, TaskSpec]
    upstreams: list[Needed]
    later: dict[int, int]
    """The replays of upstreams that failed."""
    graph: str | None


class Downstream:
    """Replays tasks with what depends on them."""

    def __init__(
        self, database: Database, sequencer: Sequencer, submitter: Submitter, most: int
    ) -> None:
        self._database = database
        self._sequencer = sequencer
        self._submitter = submitter
        self._most = most

    async def replay(self, credential: Credential, task_id: int, *, dead: bool = False) -> int:
        """Submit an ended task and those that were lost with it again; return its new id.

        With `dead` it must be among the dead letters, and is taken out of them in the same
        transaction, so that all of it is replayed once. If there are several they are a graph.
        """
        async with self._database.reading_for(credential.tenant_id) as conn:
            found = await self._find(conn, credential, task_id)
        specs = await _repeated(found.specs, credential)
        links = await linker.link(_linked(found, specs))
        several = len(specs) > 1
        graph = NewGraph(self._sequencer.mint(), found.graph) if several else None

        async def note(conn: Connection, ids: Sequence[int]) -> None:
            was_dead = await tasks.take_dead_letter(conn, credential.tenant_id, task_id)
            if dead and not was_dead:
                raise NotFound(f"There is no dead letter {task_id}.")
            told = {old: {"task": str(new)} for old, new in zip(found.specs, ids, strict=True)}
            await tasks.add_events(conn, credential.tenant_id, "replayed", told)
            called = _called(found, ids)
            if called:
                await inputs.name_by_ref(conn, called)

        ids = await self._submitter.submit_linked(credential, specs, links, graph, note)
        return ids[0]

    async def _find(self, conn: Connection, credential: Credential, task_id: int) -> Found:
        tenant_id = credential.tenant_id
        if not (await read_spec(conn, credential, task_id)).has_ended:
            raise Conflict("The task has not ended; only one that has can be replayed.")
        ids, is_untold = await replays.read_lost(conn, tenant_id, task_id, limit=self._most + 1)
        if len(ids) > self._most:
            raise TooLarge(f"More than {self._most} tasks would be replayed at once.")
        if is_untold:
            raise Unavailable(UNTOLD)
        specs: dict[int, TaskSpec] = {}
        upstreams: list[Needed] = []
        for first in range(0, len(ids), CHUNK):
            chunk = ids[first : first + CHUNK]
            read = await tasks.read_specs(conn, tenant_id, chunk)
            specs |= {one: read[one].spec for one in chunk if one in read}
            upstreams += await replays.read_upstreams(conn, tenant_id, chunk)
        failed = {one.upstream_id for one in upstreams if one.is_met is False} - specs.keys()
        later = await replays.read_replays(conn, tenant_id, sorted(failed)) if failed else {}
        graph = await replays.read_graph_name(conn, tenant_id, task_id)
        return Found(specs, upstreams, later, graph)


def _called(found: Found, ids: Sequence[int]) -> list[tuple[int, int, str | None]]:
    """Return which older tasks are called by a ref, and by whom: their results lie under it."""
    new = dict(zip(found.specs, ids, strict=True))
    return [
        (new[one.dependant_id], found.later.get(one.upstream_id, one.upstream_id), one.ref)
        for one in found.upstreams
        if one.ref is not None and one.upstream_id not in new
    ]


async def _repeated(specs: Mapping[int, TaskSpec], credential: Credential) -> list[TaskSpec]:
    """Return what the replays ask for, now."""
    found: list[TaskSpec] = []
    for old, spec in specs.items():
        if len(found) % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        found.append(repeat(spec, credential.plan, replay_of=old))
    return found


def _linked(found: Found, specs: Iterable[TaskSpec]) -> list[TaskSpec]:
    """Return specs that name each other, by names that no two of them have."""
    names = {old: f"place-{place}" for place, old in enumerate(found.specs)}
    first = next(iter(names))
    needed: dict[int, dict[str, Dependency]] = {old: {} for old in names}
    for one in found.upstreams:
        if one.dependant_id == first and one.is_met is False:
            # This one was asked for by name: it runs, whatever it once waited for.
            continue
        upstream = found.later.get(one.upstream_id, one.upstream_id)
        name = names.get(one.upstream_id, str(upstream))
        needed[one.dependant_id].setdefault(name, Dependency(name, one.condition))
    return [
        msgspec.structs.replace(spec, ref=names[old], depends_on=list(needed[old].values()))
        for old, spec in zip(names, specs, strict=True)
    ]
