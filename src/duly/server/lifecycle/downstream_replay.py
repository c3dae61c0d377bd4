"""Replays a task together with those that were cancelled because of how it ended.

The new tasks depend on each other as the old ones did. What else these depended on counts as
it is: an upstream that is done is fulfilled, one that is live is waited for, and of one that
failed and was replayed meanwhile the replay is waited for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from duly.errors import Conflict, NotFound, TooLarge, Unavailable
from duly.model.graph import Condition, Dependency
from duly.model.request import repeat
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server import linker
from duly.server.offload import offload
from duly.server.replayer import read_spec
from duly.server.sequencer import Sequencer
from duly.server.submitter import Submitter
from duly.store import inputs, replays, tasks
from duly.store.database import Connection, Database
from duly.store.edges import NewGraph
from duly.store.replays import Needed

CHUNK = 1000
"""Tasks that are read at once."""
UNTOLD = "Those that depend on it are still being told how it ended; nothing was stored. Try again."


class Found(msgspec.Struct, frozen=True):
    """What is to be replayed: the task itself comes first."""

    specs: dict[int, TaskSpec]
    upstreams: list[Needed]
    later: dict[int, int]
    """The replays of upstreams that failed."""
    graph: str | None


class Tie(NamedTuple):
    """How a replay depends on another task."""

    on: Condition
    ref: str | None
    """By what it calls that one, if not by its id."""


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
        specs = await offload(len(found.specs), _repeated, found.specs, credential)
        ties = _ties(found)
        links = await offload(len(specs), linker.link, _linked(ties, specs))
        several = len(specs) > 1
        graph = NewGraph(self._sequencer.mint(), found.graph) if several else None

        async def note(conn: Connection, ids: Sequence[int]) -> None:
            was_dead = await tasks.take_dead_letter(conn, credential.tenant_id, task_id)
            if dead and not was_dead:
                raise NotFound(f"There is no dead letter {task_id}.")
            told = {old: {"task": str(new)} for old, new in zip(found.specs, ids, strict=True)}
            await tasks.add_events(conn, credential.tenant_id, "replayed", told)
            called = _called(ties, ids)
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


def _called(
    ties: Mapping[int, Mapping[int, Tie]], ids: Sequence[int]
) -> list[tuple[int, int, str | None]]:
    """Return which older tasks are called by a ref, and by whom: their results lie under it."""
    return [
        (new, upstream, tie.ref)
        for new, needed in zip(ids, ties.values(), strict=True)
        for upstream, tie in needed.items()
        if tie.ref is not None and upstream not in ties
    ]


def _repeated(specs: Mapping[int, TaskSpec], credential: Credential) -> list[TaskSpec]:
    """Return what the replays ask for, now."""
    return [repeat(spec, credential.plan, replay_of=old) for old, spec in specs.items()]


def _ties(found: Found) -> dict[int, dict[int, Tie]]:
    """Return what each task depends on, with later replays in the places of what failed."""
    first = next(iter(found.specs))
    ties: dict[int, dict[int, Tie]] = {old: {} for old in found.specs}
    # Those first that nothing takes the place of, so that what comes to one of them finds it.
    for one in sorted(found.upstreams, key=lambda one: _stand_in(found, one) != one.upstream_id):
        if one.dependant_id == first and one.is_met is False:
            # This one was asked for by name: it runs, whatever it once waited for.
            continue
        needed = ties[one.dependant_id]
        upstream, on = _stand_in(found, one), one.condition
        known = needed.get(upstream)
        both = on if known is None else _both(known.on, on)
        if both is None:
            # It would have to succeed and to fail. What has ended otherwise says that for good.
            upstream, both = one.upstream_id, on
        needed[upstream] = Tie(both, one.ref if known is None else known.ref or one.ref)
    return ties


def _stand_in(found: Found, needed: Needed) -> int:
    """Return what is waited for in the place of an upstream that has ended otherwise than asked."""
    if needed.is_met is False:
        return found.later.get(needed.upstream_id, needed.upstream_id)
    return needed.upstream_id


def _both(one: Condition, other: Condition) -> Condition | None:
    """Return the condition that holds when both do; None when they never do."""
    if one is other or other is Condition.ALWAYS:
        return one
    return other if one is Condition.ALWAYS else None


def _linked(ties: Mapping[int, Mapping[int, Tie]], specs: Iterable[TaskSpec]) -> list[TaskSpec]:
    """Return specs that name each other, by names that no two of them have."""
    names = {old: f"place-{place}" for place, old in enumerate(ties)}
    return [
        msgspec.structs.replace(
            spec,
            ref=names[old],
            depends_on=[
                Dependency(names.get(upstream, str(upstream)), tie.on)
                for upstream, tie in needed.items()
            ],
        )
        for (old, needed), spec in zip(ties.items(), specs, strict=True)
    ]
