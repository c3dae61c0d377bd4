"""Admits tasks: gives them an id, stores them, and answers after the commit.

Requests that arrive together are committed together: whoever comes while a commit
is under way joins the next one, so the cost of a commit is shared without anybody
waiting for a timer. One bad row must not take the others down with it, so a batch
that PostgreSQL refuses is cut in halves until the guilty row stands alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from duly import telemetry
from duly.config import RequestSettings
from duly.errors import Conflict, Invalid, KeyReused, NotFound, Unavailable
from duly.model.bucket import Bucket
from duly.model.request import repeat, revise
from duly.model.task import NOT_STARTED, TaskSpec
from duly.model.tenant import Credential
from duly.server import linker, repeats, unique
from duly.server.backlog import Backlog
from duly.server.batches import BatchStore, StoredBatch
from duly.server.cluster_manager import ClusterManager
from duly.server.line import Admitted, Line, Waiting
from duly.server.lines import EARLIEST
from duly.server.linker import Links
from duly.server.rate_limiter import RateLimiter, count_refused, rate_of, refusal
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.server.shape_book import ShapeBook
from duly.server.waker import Waker
from duly.store import edges, tasks, tenants
from duly.store.database import Connection, Database, Taken, Unstorable, confirm
from duly.store.edges import NewGraph
from duly.store.tasks import Inserted, NewTask, Stored, StoredSpec

AT_ONCE = 2000
"""Tasks of a batch that are made before others get their turn on this server."""
GROUP = 500
"""How many requests share one commit, at most."""
TOO_LATE = "The database is too slow to store the task now; nothing was stored. Try again."
UNKNOWN = (
    "The database did not answer, so it is not known whether the task was stored. "
    "Submit it again with the same idempotency key."
)

MINTED_TWICE = "An id was minted twice"
UNKNOWN_BATCH = (
    "The database did not answer, so it is not known whether the batch was stored. "
    "Submit it again with the same Idempotency-Key."
)


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
    ) -> None:
        super().__init__(settings.timeout)
        self._database = database
        self._settings = settings
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._waker = waker
        self._rate_limiter = rate_limiter
        self._batches = BatchStore(rate_limiter)
        self._backlog = Backlog(database)
        self._shapes = ShapeBook(database)
        self._line = Line()

    async def submit(self, credential: Credential, spec: TaskSpec) -> Admitted:
        """Store one task, together with whatever else is being submitted.

        Who has waited in vain is taken out of the line: nothing is stored for nobody.
        """
        if spec.depends_on:
            return await self._submit_apart(credential, spec)
        if spec.idempotency_key is None:
            self._rate_limiter.check(credential)
        if credential.plan.max_waiting is None:
            return await self._submit(credential, spec)
        await self._backlog.enter(
            credential, 1, partial(repeats.is_known, self._database, credential, spec)
        )
        stored = 0
        try:
            admitted = await self._submit(credential, spec)
            stored = int(admitted.created)
            return admitted
        finally:
            self._backlog.leave(credential, 1, stored)

    async def _submit_apart(self, credential: Credential, spec: TaskSpec) -> Admitted:
        """Store a task that waits for others, in a transaction of its own: it holds their rows."""
        known = partial(repeats.is_known, self._database, credential, spec)
        batch = await self._admit_batch(credential, [spec], None, known)
        return Admitted(batch.ids[0], bool(batch.fresh))

    async def _submit(self, credential: Credential, spec: TaskSpec) -> Admitted:
        request: Waiting | None = None
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                (shape_id,) = await self._shapes.learn([spec])
                is_limited = rate_of(credential.plan) is not None
                request = self._line.join(
                    self._new(credential, spec, shape_id, is_limited=is_limited)
                )
                self.nudge()
                return await request.answer
        except TimeoutError:
            pass
        if request is None or self._line.leave(request.task.id):
            raise Unavailable(TOO_LATE)
        raise Unavailable(UNKNOWN)

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
                request for request in group if not _answer(request, fresh, known, done)
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

    async def _admit_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        key: str | None,
        known: Callable[[], Awaitable[bool]],
        graph: NewGraph | None = None,
    ) -> StoredBatch:
        links = await linker.link(specs)
        if key is None:
            sure = sum(spec.idempotency_key is None and spec.unique is None for spec in specs)
            self._rate_limiter.check(credential, sure)
        await self._backlog.enter(credential, len(specs), known)
        stored = 0
        try:
            batch = await self._submit_batch(credential, specs, key, links, graph)
            stored = batch.fresh
            return batch
        finally:
            self._backlog.leave(credential, len(specs), stored)

    async def _submit_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        key: str | None,
        links: Links | None,
        graph: NewGraph | None,
    ) -> StoredBatch:
        if links is not None:
            specs = [specs[place] for place in links.order]
        shapes = await self._shapes.learn(specs)
        new = await self._new_batch(credential, specs, shapes, links, graph)
        server = self._cluster_manager.number
        try:
            async with self._database.writing_for(credential.tenant_id) as conn:
                stored = await self._batches.store(conn, credential, new, key=key, server=server)
                if links is not None and stored.fresh:
                    await linker.attach(conn, credential.tenant_id, links, new, stored.ids)
                if graph is not None and stored.fresh:
                    await edges.insert_graph(conn, graph, credential, stored.ids)
        except Taken as error:
            why = "A unique key was just taken" if unique.is_conflict(error) else MINTED_TWICE
            raise Unavailable(f"{why}; nothing was stored. Submit the batch again.") from error
        except Unavailable as error:
            raise Unavailable(UNKNOWN_BATCH) from error
        except Unstorable as error:
            raise Invalid("tasks", f"The database cannot store this batch: {error}") from error
        self._note(credential, stored.bucket)
        self._waker.wake_batch(new, stored.since)
        if links is not None:
            return msgspec.structs.replace(stored, ids=links.as_asked(stored.ids))
        return stored

    async def _new_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        shapes: Sequence[int],
        links: Links | None,
        graph: NewGraph | None,
    ) -> list[NewTask]:
        """Mint tasks in their order; with `links` that is the order of the links."""
        graph_id = None if graph is None else graph.id
        places = range(len(specs)) if links is None else links.order
        new: list[NewTask] = []
        for place, spec, shape_id in zip(places, specs, shapes, strict=True):
            if len(new) % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            edges_of = (0, False) if links is None else links.edges_of(place)
            new.append(self._new(credential, spec, shape_id, edges_of=edges_of, graph_id=graph_id))
        return new

    def _note(self, credential: Credential, bucket: Bucket | None) -> None:
        if bucket is not None:
            self._rate_limiter.note({credential.tenant_id: bucket})

    async def update(
        self, credential: Credential, task_id: int, changes: Mapping[str, Any]
    ) -> None:
        """Change what a task asks for that has not started; `changes` are fields of a request.

        With `run_at` among them its time becomes that one, or now when it is null.
        """
        with unique.decided():
            shape = await self._update(credential, task_id, changes)
        self._waker.announce({(credential.tenant_id, shape)}, due=True)

    async def _update(
        self, credential: Credential, task_id: int, changes: Mapping[str, Any]
    ) -> int:
        async with self._database.writing_for(credential.tenant_id) as conn:
            held = await tasks.lock_unstarted(conn, credential.tenant_id, task_id)
            # Read under the lock: of two changes at once, neither may undo the other.
            old = await self._read(conn, credential, task_id)
            if held is None or held.status not in NOT_STARTED:
                status = "has ended" if held is None else f"is {held.status}"
                raise Conflict(f"The task {status}; only one that has not started can be changed.")
            spec = revise(old.spec, changes, credential.plan)
            if spec.unique is not None:
                holder = await tasks.read_holder(conn, credential.tenant_id, spec.unique.key)
                if holder not in (None, task_id):
                    raise unique.conflict(spec.unique, holder)
            shape = await self._shapes.find(conn, spec)
            ready_at = held.ready_at
            if "run_at" in changes:
                ready_at = max(spec.run_at or held.now, held.now)
            await tasks.update(conn, task_id, shape, spec, ready_at=ready_at, now=held.now)
            await tasks.add_event(
                conn, task_id, credential.tenant_id, "updated", {"fields": sorted(changes)}
            )
        return shape

    async def replay(self, credential: Credential, task_id: int, *, dead: bool = False) -> int:
        """Submit an ended task again, as a new one that is linked to it; return its id.

        With `dead` it must be among the dead letters, and is taken out of them in the same
        transaction, so that it is replayed once.
        """
        async with self._database.reading_for(credential.tenant_id) as conn:
            old = await self._read(conn, credential, task_id)
        if not old.has_ended:
            raise Conflict("The task has not ended; only one that has can be replayed.")
        spec = repeat(old.spec, credential.plan, replay_of=task_id)
        (shape_id,) = await self._shapes.learn([spec])
        new = self._new(credential, spec, shape_id)
        self._rate_limiter.check(credential)
        await self._backlog.enter(
            credential, 1, partial(repeats.is_seen, self._database, credential, None)
        )
        stored = 0
        try:
            with unique.decided():
                bucket = await self._replay(credential, task_id, new, dead=dead)
            stored = 1
        finally:
            self._backlog.leave(credential, 1, stored)
        self._note(credential, bucket)
        self._waker.wake_batch([new], EARLIEST)
        return new.id

    async def _replay(
        self, credential: Credential, task_id: int, new: NewTask, *, dead: bool
    ) -> Bucket | None:
        async with self._database.writing_for(credential.tenant_id) as conn:
            bucket = await self._rate_limiter.lock(conn, credential)
            await tenants.hold(conn, credential.tenant_id)
            if bucket is not None:
                bucket = await self._rate_limiter.charge(conn, credential, bucket, 1)
            was_dead = await tasks.take_dead_letter(conn, credential.tenant_id, task_id)
            if dead and not was_dead:
                raise NotFound(f"There is no dead letter {task_id}.")
            done = await tasks.insert(conn, [new], server=self._cluster_manager.number)
            if new.spec.unique is not None and new.id in done.held:
                raise unique.conflict(new.spec.unique, done.held[new.id])
            await tasks.add_event(
                conn, task_id, credential.tenant_id, "replayed", {"task": str(new.id)}
            )
        return bucket

    async def _read(self, conn: Connection, credential: Credential, task_id: int) -> StoredSpec:
        old = await tasks.read_spec(conn, credential.tenant_id, task_id)
        if old is None:
            raise NotFound(f"There is no task {task_id}.")
        return old

    async def drop_dead_letter(self, credential: Credential, task_id: int) -> None:
        """Take a task out of the dead letters; its history stays."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            if not await tasks.take_dead_letter(conn, credential.tenant_id, task_id):
                raise NotFound(f"There is no dead letter {task_id}.")
            await tasks.add_event(conn, task_id, credential.tenant_id, "dropped", {})

    def _new(
        self,
        credential: Credential,
        spec: TaskSpec,
        shape_id: int,
        *,
        is_limited: bool = False,
        edges_of: tuple[int, bool] = (0, False),
        graph_id: int | None = None,
    ) -> NewTask:
        return NewTask(
            id=self._sequencer.mint(),
            tenant_id=credential.tenant_id,
            user_id=credential.user_id,
            shape_id=shape_id,
            spec=spec,
            body_hash=b""
            if spec.idempotency_key is None
            else repeats.hash_of(spec, credential.plan),
            is_limited=is_limited,
            blocked_by=edges_of[0],
            has_dependants=edges_of[1],
            graph_id=graph_id,
        )


def _answer(
    request: Waiting,
    fresh: Mapping[int, Stored],
    known: repeats.Known,
    done: Inserted,
) -> bool:
    """Answer a request by what its commit did; False when it did nothing, for no fault of it."""
    task = request.task
    if task.id in fresh:
        request.resolve(Admitted(task.id, True, fresh[task.id]))
        return True
    try:
        seen = repeats.same_task(task, known)
    except KeyReused as error:
        request.refuse(error)
        return True
    if seen is not None:
        request.resolve(Admitted(seen.task_id, False))
        return True
    if task.spec.unique is not None and task.id in done.held:
        try:
            holder = unique.settle(task.spec.unique, done.held[task.id])
        except Conflict as error:
            request.refuse(error)
        else:
            request.resolve(Admitted(holder, False))
        return True
    if task.tenant_id in done.gone:
        request.refuse(tenants.gone())
        return True
    bucket = done.buckets.get(task.tenant_id)
    if task.is_limited and bucket is not None and bucket.whole < 1:
        count_refused()
        request.refuse(refusal(bucket.rate, timedelta(seconds=bucket.seconds_until(1))))
        return True
    # Its bucket or its tenant was held by somebody else, or its key was released a moment ago.
    return False
