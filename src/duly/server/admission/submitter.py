"""Stores submitted tasks by group commit, and returns their ids after the commit.

Requests that arrive during a commit share the next one, so the cost of a commit is shared and no
request waits for a timer. One bad row must not fail the others of its group: a group that
PostgreSQL refuses is bisected until the bad row is alone.
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
from duly.server.admission import dependencies, idempotency, unique_keys
from duly.server.admission.admission_control import AdmissionControl
from duly.server.admission.batches import BatchStore, StoredBatch
from duly.server.admission.commit_queue import Admitted, CommitQueue, CommitRequest
from duly.server.admission.commit_results import resolve_request
from duly.server.admission.dependencies import STANDALONE, DependencyLinks
from duly.server.admission.new_task import new_task, owned_by
from duly.server.admission.rate_limiter import RateLimiter, rate_of
from duly.server.admission.shape_ids import ShapeIds
from duly.server.artifacts import artifact_references
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.offload import offload
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.server.scheduling.run_times import RunTimes
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.store.database import Connection, Database, Taken, Unstorable, confirm
from duly.store.tasks import edges, tasks
from duly.store.tasks.edges import NewGraph
from duly.store.tasks.tasks import NewTask

MAX_GROUP_SIZE = 500
"""Tasks in one commit."""
COMMIT_TIMED_OUT = "The database is too slow now. Nothing was stored; try again."
COMMIT_UNCERTAIN = (
    "The database did not answer, so it is not known whether the task was stored. "
    "Submit it again with the same idempotency key."
)

DUPLICATE_ID = "An id was minted twice"
REPLAY_UNCERTAIN = (
    "The database did not answer, so it is not known whether the tasks were replayed. "
    "Before you replay them again, check the list of tasks: a replay names its original."
)
BATCH_UNCERTAIN = (
    "The database did not answer, so it is not known whether the batch was stored. "
    "Submit it again with the same Idempotency-Key."
)

TransactionStep = Callable[[Connection, Sequence[int]], Awaitable[None]]
"""A step in the transaction that stores tasks, given their ids."""


class Submitter(Service):
    """Stores submissions: single tasks by group commit, batches and graphs on their own."""

    def __init__(
        self,
        database: Database,
        settings: RequestSettings,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        leader_nudge: LeaderNudge,
        rate_limiter: RateLimiter,
        admission: AdmissionControl,
        shapes: ShapeIds,
        run_times: RunTimes,
    ) -> None:
        super().__init__(settings.timeout)
        self._database = database
        self._timeout_seconds = settings.timeout.total_seconds()
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._leader_nudge = leader_nudge
        self._rate_limiter = rate_limiter
        self._batches = BatchStore(rate_limiter)
        self._admission = admission
        self._shapes = shapes
        self._run_times = run_times
        self._queue = CommitQueue()

    async def submit(self, credential: Credential, spec: TaskSpec) -> Admitted:
        """Store one task in the next group commit.

        A request that times out is removed from the queue, so that no task is stored after its
        client was told that it was not.
        """
        if spec.depends_on or spec.payload.artifact is not None:
            return await self._submit_alone(credential, spec)
        is_duplicate = partial(idempotency.is_duplicate, self._database, credential, spec)
        certainly_new = int(spec.idempotency_key is None)
        async with self._admission.admit(
            credential, 1, is_duplicate, certainly_new=certainly_new
        ) as permit:
            admitted = await self._enqueue(credential, spec)
            permit.stored = int(admitted.created)
        return admitted

    async def submit_child(
        self, credential: Credential, spec: TaskSpec, last_step: TransactionStep
    ) -> Admitted:
        """Store a task that an attempt submits; `last_step` ends the transaction."""
        return await self._submit_alone(credential, spec, last_step)

    async def _submit_alone(
        self, credential: Credential, spec: TaskSpec, last_step: TransactionStep | None = None
    ) -> Admitted:
        """Store a task in a transaction of its own, as a batch of one.

        It locks other rows, those of its upstreams and its artifact, and must not make a group
        wait for them.
        """
        is_duplicate = partial(idempotency.is_duplicate, self._database, credential, spec)
        batch = await self._admit_batch(
            credential, [spec], None, is_duplicate, is_alone=True, last_step=last_step
        )
        return Admitted(batch.ids[0], batch.created)

    async def _enqueue(self, credential: Credential, spec: TaskSpec) -> Admitted:
        """Push a task onto the commit queue, and wait for its commit."""
        spec = owned_by(spec, credential)
        shape_id = self._shapes.get(spec)
        if shape_id is None:
            shape_id = await self._create_shape(spec)
        is_limited = rate_of(credential.plan) is not None
        request = self._queue.push(
            new_task(
                self._sequencer.mint(),
                credential,
                spec,
                shape_id,
                self._run_times,
                is_limited=is_limited,
            )
        )
        # A plain timer: `asyncio.timeout` would cost several times as much for every request.
        timer = asyncio.get_running_loop().call_later(
            self._timeout_seconds, self._time_out, request
        )
        self.nudge()
        try:
            return await request.result
        finally:
            timer.cancel()

    async def _create_shape(self, spec: TaskSpec) -> int:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                (shape_id,) = await self._shapes.get_or_create([spec])
        except TimeoutError:
            raise Unavailable(COMMIT_TIMED_OUT) from None
        return shape_id

    def _time_out(self, request: CommitRequest) -> None:
        was_queued = self._queue.remove(request.task.id)
        request.refuse(Unavailable(COMMIT_TIMED_OUT if was_queued else COMMIT_UNCERTAIN))

    def pause(self) -> timedelta:
        """Return how long to wait for a nudge: until the first tenant's backoff ends."""
        seconds = self._queue.seconds_to_backoff_end
        return self.interval if seconds is None else timedelta(seconds=seconds)

    async def tick(self) -> bool:
        """Commit the next group of waiting requests."""
        group = self._queue.pop_group(MAX_GROUP_SIZE)
        try:
            if group:
                with telemetry.timed(telemetry.COMMIT_SECONDS):
                    await self._commit(group)
        finally:
            # Whatever went wrong, no request is left without a result.
            for request in group:
                if request not in self._queue:
                    request.refuse(Unavailable(COMMIT_UNCERTAIN))
        return self._queue.has_ready

    async def _commit(self, group: Sequence[CommitRequest]) -> None:
        """Store a group, bisecting it around a task that cannot be stored."""
        new = [request.task for request in group]
        try:
            self._leader_nudge.announce_expected(new)
            async with self._database.connection() as conn:
                inserted = await tasks.insert(conn, new, server=self._cluster_manager.number)
                earlier = await idempotency.read_earlier(conn, new, inserted.stored)
        except Unstorable as error:
            if isinstance(error, Taken) and unique_keys.is_key_conflict(error):
                # The winner of the race has committed by now, and the next insert sees it.
                self._queue.requeue(group, backoff=0)
            else:
                await self._bisect(group, error)
        except Unavailable:
            await self._recover(group)
        else:
            self._rate_limiter.observe(inserted.buckets)
            self._leader_nudge.announce_stored(new, inserted.stored)
            stored = {task.id: task for task in inserted.stored}
            self._queue.requeue(
                request
                for request in group
                if not resolve_request(request, stored, earlier, inserted)
            )

    async def _bisect(self, group: Sequence[CommitRequest], error: Unstorable) -> None:
        if len(group) > 1:
            middle = len(group) // 2
            await self._commit(group[:middle])
            await self._commit(group[middle:])
        elif isinstance(error, Taken):
            # Another server minted this id, believing that it held the number of this one.
            request = group[0]
            request.task = msgspec.structs.replace(request.task, id=self._sequencer.mint())
            await self._commit([request])
        else:
            group[0].refuse(Invalid("task", f"the database cannot store it: {error}"))

    async def _recover(self, group: Sequence[CommitRequest]) -> None:
        """Resolve a group whose commit got no response, by reading which tasks were stored."""
        ids = [request.task.id for request in group]
        try:
            async with self._database.connection() as conn:
                stored = {task.id: task for task in await tasks.read_admitted(conn, ids)}
                if stored:
                    await confirm(conn)
        except Unavailable:
            stored = {}
        new = [request.task for request in group if request.task.id in stored]
        self._leader_nudge.announce_stored(new, list(stored.values()))
        for request in group:
            if request.task.id in stored:
                request.resolve(Admitted(request.task.id, True, stored[request.task.id]))
            else:
                request.refuse(Unavailable(COMMIT_UNCERTAIN))

    async def submit_batch(
        self, credential: Credential, specs: Sequence[TaskSpec], *, key: str | None = None
    ) -> StoredBatch:
        """Store many tasks, all or none; the ids are in the order of `specs`."""
        is_duplicate = partial(idempotency.is_key_used, self._database, credential, key)
        return await self._admit_batch(credential, specs, key, is_duplicate)

    async def submit_graph(
        self,
        credential: Credential,
        name: str | None,
        specs: Sequence[TaskSpec],
        *,
        key: str | None = None,
    ) -> tuple[int, StoredBatch]:
        """Store tasks as a graph; return its id, and its tasks in the order of `specs`."""
        graph = NewGraph(self._sequencer.mint(), name)
        is_duplicate = partial(idempotency.is_key_used, self._database, credential, key)
        batch = await self._admit_batch(credential, specs, key, is_duplicate, graph)
        if batch.created:
            return graph.id, batch
        async with self._database.reading_for(credential.tenant_id) as conn:
            graph_id = await edges.read_graph_of(conn, credential.tenant_id, batch.ids[0])
        if graph_id is None:
            raise KeyReused(
                "The idempotency key was used for a request that is not a graph. Use a new key."
            )
        return graph_id, batch

    async def submit_linked(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        links: DependencyLinks | None,
        graph: NewGraph | None,
        last_step: TransactionStep,
    ) -> list[int]:
        """Store tasks with resolved dependencies, all or none; `last_step` ends the transaction."""
        is_duplicate = partial(idempotency.is_key_used, self._database, credential, None)
        size = len(specs)
        async with self._admission.admit(
            credential, size, is_duplicate, certainly_new=size
        ) as permit:
            batch = await self._store_batch(credential, specs, None, links, graph, last_step)
            permit.stored = batch.new_count
        return batch.ids

    async def _admit_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        key: str | None,
        is_duplicate: Callable[[], Awaitable[bool]],
        graph: NewGraph | None = None,
        *,
        is_alone: bool = False,
        last_step: TransactionStep | None = None,
    ) -> StoredBatch:
        size = len(specs)
        links = await offload(size, partial(dependencies.resolve, is_alone=is_alone), specs)
        certainly_new = 0 if key is not None else sum(not spec.has_key for spec in specs)
        async with self._admission.admit(
            credential, size, is_duplicate, certainly_new=certainly_new
        ) as permit:
            batch = await self._store_batch(credential, specs, key, links, graph, last_step)
            permit.stored = batch.new_count
        return batch

    async def _store_batch(
        self,
        credential: Credential,
        specs: Sequence[TaskSpec],
        key: str | None,
        links: DependencyLinks | None,
        graph: NewGraph | None,
        last_step: TransactionStep | None = None,
    ) -> StoredBatch:
        await offload(len(specs), unique_keys.check_distinct, specs)
        if links is not None:
            specs = [specs[index] for index in links.topological_order]
        specs = [owned_by(spec, credential) for spec in specs]
        shapes = await self._shapes.get_or_create(specs)
        ids = self._sequencer.mint_many(len(specs))
        new = await offload(
            len(ids), _new_tasks, ids, credential, specs, shapes, self._run_times, links, graph
        )
        server = self._cluster_manager.number
        try:
            async with self._database.writing_for(credential.tenant_id) as conn:
                batch = await self._batches.store(conn, credential, new, key=key, server=server)
                if links is not None and batch.new_count:
                    await dependencies.store_edges(
                        conn, credential.tenant_id, links, new, batch.ids
                    )
                if batch.new_count:
                    await artifact_references.add(conn, credential.tenant_id, new, batch.ids)
                if graph is not None and batch.new_count:
                    await edges.insert_graph(conn, graph, credential, batch.ids)
                if last_step is not None:
                    ids = batch.ids if links is None else links.in_request_order(batch.ids)
                    await last_step(conn, ids)
        except Taken as error:
            is_key_taken = unique_keys.is_key_conflict(error)
            reason = "A unique key was just taken" if is_key_taken else DUPLICATE_ID
            raise Unavailable(f"{reason}. Nothing was stored; submit the tasks again.") from error
        except Unavailable as error:
            subqueues = {(task.tenant_id, task.shape_id) for task in new}
            self._leader_nudge.announce_ready(subqueues, due=True)
            message = BATCH_UNCERTAIN if last_step is None else REPLAY_UNCERTAIN
            raise Unavailable(message) from error
        except Unstorable as error:
            raise Invalid("tasks", f"the database cannot store them: {error}") from error
        if batch.bucket is not None:
            self._rate_limiter.observe({credential.tenant_id: batch.bucket})
        self._leader_nudge.announce_batch(new, batch.earliest_start_by)
        if links is not None:
            batch = msgspec.structs.replace(batch, ids=links.in_request_order(batch.ids))
        return batch


def _new_tasks(
    ids: Sequence[int],
    credential: Credential,
    specs: Sequence[TaskSpec],
    shapes: Sequence[int],
    run_times: RunTimes,
    links: DependencyLinks | None,
    graph: NewGraph | None,
) -> list[NewTask]:
    """Return the tasks of `specs`, which are in topological order if there are `links`."""
    graph_id = None if graph is None else graph.id
    indexes = range(len(specs)) if links is None else links.topological_order
    return [
        new_task(
            task_id,
            credential,
            spec,
            shape_id,
            run_times,
            position=STANDALONE if links is None else links.position_of(index),
            graph_id=graph_id,
        )
        for task_id, index, spec, shape_id in zip(ids, indexes, specs, shapes, strict=True)
    ]
