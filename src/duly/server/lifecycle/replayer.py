"""Submits ended tasks again, as new ones that are linked to the old; clears dead letters."""

from functools import partial

from duly.errors import Conflict, NotFound
from duly.model.bucket import Bucket
from duly.model.request import repeat
from duly.model.tenant import Credential
from duly.server import bundles, repeats, unique
from duly.server.admission_control import AdmissionControl
from duly.server.cluster_manager import ClusterManager
from duly.server.lines import EARLIEST
from duly.server.minting import new_task
from duly.server.rate_limiter import RateLimiter
from duly.server.sequencer import Sequencer
from duly.server.shape_book import ShapeBook
from duly.server.waker import Waker
from duly.store import inputs, tasks, tenants
from duly.store.database import Connection, Database
from duly.store.tasks import NewTask, StoredSpec


class Replayer:
    """Replays tasks, within the limits of whoever asks for it."""

    def __init__(
        self,
        database: Database,
        cluster_manager: ClusterManager,
        sequencer: Sequencer,
        waker: Waker,
        rate_limiter: RateLimiter,
        admission: AdmissionControl,
        shapes: ShapeBook,
    ) -> None:
        self._database = database
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._waker = waker
        self._rate_limiter = rate_limiter
        self._admission = admission
        self._shapes = shapes

    async def replay(self, credential: Credential, task_id: int, *, dead: bool = False) -> int:
        """Submit an ended task again, as a new one that is linked to it; return its id.

        With `dead` it must be among the dead letters, and is taken out of them in the same
        transaction, so that it is replayed once.
        """
        async with self._database.reading_for(credential.tenant_id) as conn:
            old = await read_spec(conn, credential, task_id)
        if not old.has_ended:
            raise Conflict("The task has not ended; only one that has can be replayed.")
        spec = repeat(old.spec, credential.plan, replay_of=task_id)
        (shape_id,) = await self._shapes.learn([spec])
        new = new_task(self._sequencer.mint(), credential, spec, shape_id)
        known = partial(repeats.is_seen, self._database, credential, None)
        async with self._admission.enter(credential, 1, known, certainly_new=1) as entry:
            with unique.decided():
                bucket = await self._replay(credential, task_id, new, dead=dead)
            entry.stored = 1
        if bucket is not None:
            self._rate_limiter.note({credential.tenant_id: bucket})
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
            await bundles.hold(conn, credential.tenant_id, [new], [new.id])
            if new.spec.payload.has_upstreams:
                await inputs.copy_ended(conn, credential.tenant_id, task_id, new.id)
            await tasks.add_event(
                conn, task_id, credential.tenant_id, "replayed", {"task": str(new.id)}
            )
        return bucket

    async def drop_dead_letter(self, credential: Credential, task_id: int) -> None:
        """Take a task out of the dead letters; its history stays."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            if not await tasks.take_dead_letter(conn, credential.tenant_id, task_id):
                raise NotFound(f"There is no dead letter {task_id}.")
            await tasks.add_event(conn, task_id, credential.tenant_id, "dropped", {})


async def read_spec(conn: Connection, credential: Credential, task_id: int) -> StoredSpec:
    """Return what a task of the caller's tenant asks for; raises NotFound."""
    old = await tasks.read_spec(conn, credential.tenant_id, task_id)
    if old is None:
        raise NotFound(f"There is no task {task_id}.")
    return old
