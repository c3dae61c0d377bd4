"""Admits tasks: gives them an id, stores them, and answers after the commit.

Requests that arrive together are committed together: whoever comes while a commit
is under way joins the next one, so the cost of a commit is shared without anybody
waiting for a timer. One bad row must not take the others down with it, so a batch
that PostgreSQL refuses is cut in halves until the guilty row stands alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

import msgspec

from duly import telemetry
from duly.config import RequestSettings
from duly.errors import Invalid, KeyReused, Unavailable
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server import bundles, linker, repeats, unique
from duly.server.admission_control import AdmissionControl
from duly.server.answers import answer
from duly.server.batches import BatchStore, StoredBatch
from duly.server.cluster_manager import ClusterManager
from duly.server.line import Admitted, Line, Waiting
from duly.server.linker import ALONE, Links
from duly.server.minting import new_task
from duly.server.offload import offload
from duly.server.rate_limiter import RateLimiter, rate_of
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.server.shape_book import ShapeBook
from duly.server.waker import Waker
from duly.store import edges, tasks
from duly.store.database import Connection, Database, Taken, Unstorable, confirm
from duly.store.edges import NewGraph
from duly.store.tasks import NewTask

GROUP = 500
"""How many requests share one commit, at most."""
TOO_LATE = "The database is too slow to store the task now; nothing was stored. Try again."
UNKNOWN = (
    "The database did not answer, so it is not known whether the task was stored. "
    "Submit it again with the same idempotency key."
)

MINTED_TWICE = "An id was minted twice"
UNKNOWN_REPLAY = (
    "The database did not answer, so it is not known whether the tasks were replayed. "
    "Look at the list of tasks before you do it again: a replay tells what it is a replay of."
)
UNKNOWN_BATCH = (
    "The database did not answer, so it is not known whether the batch was stored. "
    "Submit it again with the same Idempotency-Key."
)

Note = Callable[[Connection, Sequence[int]], Awaitable[None]]
"""What else is written with tasks, given their ids."""


class Submitter(Service):
    """Commits what clients submit."""

    def __init__(
        self,
        database: Database,
        settings: RequestSettings,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        waker: Waker,
        rate_limiter: RateLimiter,
        admission: AdmissionControl,
        shapes: ShapeBook,
    ) -> None:
        super().__init__(settings.timeout)
        self._database = database
        self._seconds = settings.timeout.total_seconds()
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._waker = waker
        self._rate_limiter = rate_limiter
        self._batches = BatchStore(rate_limiter)
        self._admission = admission
        self._shapes = shapes
        self._line = Line()

    async def submit(self, credential: Credential, spec: TaskSpec) -> Admitted:
        """Store one task, together with whatever else is being submitted.

        Who has waited in vain is taken out of the line: nothing is stored for nobody.
        """
        if spec.depends_on or spec.payload.artifact is not None:
            return await self._submit_apart(credential, spec)
        known = partial(repeats.is_known, self._database, credential, spec)
        certain = int(spec.idempotency_key is None)
        async with self._admission.enter(credential, 1, known, certainly_new=certain) as entry:
            admitted = await self._submit(credential, spec)
            entry.stored = int(admitted.created)
        return admitted

    async def _submit_apart(self, credential: Credential, spec: TaskSpec) -> Admitted:
        """Store a task in a transaction of its own, because it holds the rows of other things.

        These are what it waits for, and the artifact that it needs.
        """
        known = partial(repeats.is_known, self._database, credential, spec)
        batch = await self._admit_batch(credential, [spec], None, known)
        return Admitted(batch.ids[0], bool(batch.fresh))

    async def _submit(self, credential: Credential, spec: TaskSpec) -> Admitted:
        shape_id = self._shapes.recall(spec)
        if shape_id is None:
            shape_id = await self._learn(spec)
        is_limited = rate_of(credential.plan) is not None
        request = self._line.join(
            new_task(self._sequencer.mint(), credential, spec, shape_id, is_limited=is_limited)
        )
        # A timer alone: `asyncio.timeout` would cost several times as much for every request.
        timer = asyncio.get_running_loop().call_later(self._seconds, self._give_up, request)
        self.nudge()
        try:
            return await request.answer
        finally:
            timer.cancel()

    async def _learn(self, spec: TaskSpec) -> int:
        try:
            async with asyncio.timeout(self._seconds):
                (shape_id,) = await self._shapes.learn([spec])
        except TimeoutError:
            raise Unavailable(TOO_LATE) from None
        return shape_id

    def _give_up(self, request: Waiting) -> None:
        is_waiting = self._line.leave(request.task.id)
        request.refuse(Unavailable(TOO_LATE if is_waiting else UNKNOWN))

    def pause(self) -> timedelta:
        """Return how long to wait for a nudge: not longer than a tenant is passed over."""
        rest = self._line.rest
        return self.interval if rest is None else timedelta(seconds=rest)

    async def tick(self) -> bool:
        """Commit everything that waits, up to one group."""
        group = self._line.take(GROUP)
        try:
            if group:
                with telemetry.timed(telemetry.COMMIT_SECONDS):
                    await self._commit(group)
        finally:
            # Whatever went wrong, nobody is left waiting for an answer that will not come.
            for request in group:
                if request not in self._line:
                    request.refuse(Unavailable(UNKNOWN))
        return self._line.is_ready

    async def _commit(self, group: Sequence[Waiting]) -> None:
        """Store a group, cut in halves around what cannot be stored."""
        new = [request.task for request in group]
        try:
            self._waker.expect(new)
            async with self._database.connection() as conn:
                done = await tasks.insert(conn, new, server=self._cluster_manager.number)
                known = await repeats.read_known(conn, new, done.stored)
        except Unstorable as error:
            if isinstance(error, Taken) and unique.is_conflict(error):
                # Who was faster has committed by now, and is seen by the next statement.
                self._line.rejoin(group, rest=0)
            else:
                await self._isolate(group, error)
        except Unavailable:
            await self._recover(group)
        else:
            self._rate_limiter.note(done.buckets)
            self._waker.wake(new, done.stored)
            fresh = {one.id: one for one in done.stored}
            self._line.rejoin(
                request for request in group if not answer(request, fresh, known, done)
            )

    async def _isolate(self, group: Sequence[Waiting], error: Unstorable) -> None:
        if len(group) > 1:
            middle = len(group) // 2
            await self._commit(group[:middle])
            await self._commit(group[middle:])
        elif isinstance(error, Taken):
            # Another server minted this id while it believed to hold our number.
            request = group[0]
            request.task = msgspec.structs.replace(request.task, id=self._sequencer.mint())
            await self._commit([request])
        else:
            group[0].refuse(Invalid("task", f"The database cannot store this task: {error}"))

    async def _recover(self, group: Sequence[Waiting]) -> None:
        """Find out what became of a group whose answer was lost."""
        ids = [request.task.id for request in group]
        try:
            async with self._database.connection() as conn:
                stored = {one.id: one for one in await tasks.read_admitted(conn, ids)}
                if stored:
                    await confirm(conn)
        except Unavailable:
            stored = {}
        new = [request.task for request in group if request.task.id in stored]
        self._waker.wake(new, list(stored.values()))
        for request in group:
            if request.task.id in stored:
                request.resolve(Admitted(request.task.id, True, stored[request.task.id]))
            else:
                request.refuse(Unavailable(UNKNOWN))

    async def submit_batch(
        self, credential: Credential, specs: Sequence[TaskSpec], *, key: str | None = None
    ) -> list[int]:
        """Store many tasks, all or none, and return their ids in order."""
        known = partial(repeats.is_seen, self._database, credential, key)
        return (await self._admit_batch(credential, specs, key, known)).ids

    async def submit_graph(
        self,
        credential: Credential,
        name: str | None,
        specs: Sequence[TaskSpec],
        *,
        key: str | None = None,
    ) -> tuple[int, list[int]]:
        """Store tasks as a whole with an id of its own; return that, and theirs in order."""
        graph = NewGraph(self._sequencer.mint(), name)
        known = partial(repeats.is_seen, self._database, credential, key)
        batch = await self._admit_batch(credential, specs, key, known, graph)
        if batch.fresh:
            return graph.id, batch.ids
        async with self._database.reading_for(credential.tenant_id) as conn:
            stored = await edges.read_graph_of(conn, credential.tenant_id, batch.ids[0])
        if stored is None:
            raise KeyReused("The idempotency key belongs to another submission, not of a graph.")
        return stored, batch.ids

    async def submit_linked(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        links: Links | None,
        graph: NewGraph | None,
        note: Note,
    ) -> list[int]:
        """Store tasks that are linked already, all or none; `note` is part of the transaction."""
        known = partial(repeats.is_seen, self._database, credential, None)
        many = len(specs)
        async with self._admission.enter(credential, many, known, certainly_new=many) as entry:
            batch = await self._submit_batch(credential, specs, None, links, graph, note)
            entry.stored = batch.fresh
        return batch.ids

    async def _admit_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        key: str | None,
        known: Callable[[], Awaitable[bool]],
        graph: NewGraph | None = None,
    ) -> StoredBatch:
        many = len(specs)
        links = await offload(many, linker.link, specs)
        certain = 0 if key is not None else sum(not one.has_key for one in specs)
        async with self._admission.enter(credential, many, known, certainly_new=certain) as entry:
            batch = await self._submit_batch(credential, specs, key, links, graph)
            entry.stored = batch.fresh
        return batch

    async def _submit_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        key: str | None,
        links: Links | None,
        graph: NewGraph | None,
        note: Note | None = None,
    ) -> StoredBatch:
        if links is not None:
            specs = [specs[place] for place in links.order]
        shapes = await self._shapes.learn(specs)
        ids = self._sequencer.mint_many(len(specs))
        new = await offload(len(ids), _new_batch, ids, credential, specs, shapes, links, graph)
        server = self._cluster_manager.number
        try:
            async with self._database.writing_for(credential.tenant_id) as conn:
                stored = await self._batches.store(conn, credential, new, key=key, server=server)
                if links is not None and stored.fresh:
                    await linker.attach(conn, credential.tenant_id, links, new, stored.ids)
                if stored.fresh:
                    await bundles.hold(conn, credential.tenant_id, new, stored.ids)
                if graph is not None and stored.fresh:
                    await edges.insert_graph(conn, graph, credential, stored.ids)
                if note is not None:
                    await note(conn, stored.ids if links is None else links.as_asked(stored.ids))
        except Taken as error:
            why = "A unique key was just taken" if unique.is_conflict(error) else MINTED_TWICE
            raise Unavailable(f"{why}; nothing was stored. Submit the batch again.") from error
        except Unavailable as error:
            pairs = {(task.tenant_id, task.shape_id) for task in new}
            self._waker.announce(pairs, due=True)
            raise Unavailable(UNKNOWN_BATCH if note is None else UNKNOWN_REPLAY) from error
        except Unstorable as error:
            raise Invalid("tasks", f"The database cannot store this batch: {error}") from error
        if stored.bucket is not None:
            self._rate_limiter.note({credential.tenant_id: stored.bucket})
        self._waker.wake_batch(new, stored.since)
        if links is not None:
            stored = msgspec.structs.replace(stored, ids=links.as_asked(stored.ids))
        return stored


def _new_batch(
    ids: Sequence[int],
    credential: Credential,
    specs: Sequence[TaskSpec],
    shapes: Sequence[int],
    links: Links | None,
    graph: NewGraph | None,
) -> list[NewTask]:
    """Return tasks in their order; with `links` that is the order of the links."""
    graph_id = None if graph is None else graph.id
    places = range(len(specs)) if links is None else links.order
    return [
        new_task(
            task_id,
            credential,
            spec,
            shape_id,
            part=ALONE if links is None else links.part_of(place),
            graph_id=graph_id,
        )
        for task_id, place, spec, shape_id in zip(ids, places, specs, shapes, strict=True)
    ]
