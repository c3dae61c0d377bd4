"""Replays ended tasks as new tasks that are linked to the old ones, and clears dead letters."""

from functools import partial

from duly.errors import Conflict, NotFound
from duly.model.bucket import Bucket
from duly.model.requests.task_request import replayed
from duly.model.tenant import Credential
from duly.server.admission import idempotency, unique_keys
from duly.server.admission.admission_control import AdmissionControl
from duly.server.admission.new_task import new_task, owned_by
from duly.server.admission.rate_limiter import RateLimiter
from duly.server.admission.shape_ids import ShapeIds
from duly.server.artifacts import artifact_references
from duly.server.cluster.cluster_manager import ClusterManager
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.server.scheduling.run_times import RunTimes
from duly.server.scheduling.subqueues.ready_queues import UNKNOWN_START_BY
from duly.server.sequencer import Sequencer
from duly.store.accounts import tenants
from duly.store.database import Connection, Database
from duly.store.tasks import inputs, tasks
from duly.store.tasks.tasks import NewTask, StoredSpec


class Replayer:
    """Replays tasks within the limits of the caller's plan."""

    def __init__(
        self,
        database: Database,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        leader_nudge: LeaderNudge,
        rate_limiter: RateLimiter,
        admission: AdmissionControl,
        shapes: ShapeIds,
        run_times: RunTimes,
    ) -> None:
        self._database = database
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._leader_nudge = leader_nudge
        self._rate_limiter = rate_limiter
        self._admission = admission
        self._shapes = shapes
        self._run_times = run_times

    async def replay(self, credential: Credential, task_id: int, *, dead: bool = False) -> int:
        """Submit an ended task again as a new task linked to it; return the new id.

        With `dead` the task must be a dead letter, and is taken out of the dead letters in the
        same transaction, so that it is replayed once.
        """
        async with self._database.reading_for(credential.tenant_id) as conn:
            old = await read_spec(conn, credential, task_id)
        if not old.has_ended:
            raise Conflict(
                f"Task {task_id} has not ended; only a task that has ended can be replayed."
            )
        spec = replayed(old.spec, credential.plan, replay_of=task_id)
        spec = owned_by(spec, credential)
        (shape_id,) = await self._shapes.get_or_create([spec])
        new = new_task(self._sequencer.mint(), credential, spec, shape_id, self._run_times)
        is_key_used = partial(idempotency.is_key_used, self._database, credential, None)
        async with self._admission.admit(credential, 1, is_key_used, certainly_new=1) as entry:
            with unique_keys.violations_as_conflicts():
                bucket = await self._replay(credential, task_id, new, dead=dead)
            entry.stored = 1
        if bucket is not None:
            self._rate_limiter.observe({credential.tenant_id: bucket})
        self._leader_nudge.announce_batch([new], UNKNOWN_START_BY)
        return new.id

    async def _replay(
        self, credential: Credential, task_id: int, new: NewTask, *, dead: bool
    ) -> Bucket | None:
        async with self._database.writing_for(credential.tenant_id) as conn:
            bucket = await self._rate_limiter.lock(conn, credential)
            await tenants.hold(conn, credential.tenant_id)
            if bucket is not None:
                bucket = await self._rate_limiter.charge(conn, credential, bucket, 1)
            was_dead = await tasks.remove_dead_letter(conn, credential.tenant_id, task_id)
            if dead and not was_dead:
                raise NotFound(f"There is no dead letter {str(task_id)!r}.", kind="dead letter")
            inserted = await tasks.insert(conn, [new], server=self._cluster_manager.number)
            if new.spec.unique is not None and new.id in inserted.held:
                raise unique_keys.conflict_error(new.spec.unique, inserted.held[new.id])
            await artifact_references.add(conn, credential.tenant_id, [new], [new.id])
            if new.spec.payload.has_upstreams:
                await inputs.copy_ended(conn, credential.tenant_id, task_id, new.id)
            await tasks.add_event(
                conn, task_id, credential.tenant_id, "replayed", {"task": str(new.id)}
            )
        return bucket

    async def drop_dead_letter(self, credential: Credential, task_id: int) -> None:
        """Remove a task from the dead letters; its history stays."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            if not await tasks.remove_dead_letter(conn, credential.tenant_id, task_id):
                raise NotFound(f"There is no dead letter {str(task_id)!r}.", kind="dead letter")
            await tasks.add_event(conn, task_id, credential.tenant_id, "dropped", {})


async def read_spec(conn: Connection, credential: Credential, task_id: int) -> StoredSpec:
    """Return the stored spec of a task of the caller's tenant; raises NotFound."""
    old = await tasks.read_spec(conn, credential.tenant_id, task_id)
    if old is None:
        raise NotFound(f"There is no task {str(task_id)!r}.", kind="task")
    return old
