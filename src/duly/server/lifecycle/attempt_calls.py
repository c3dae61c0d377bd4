"""What a running attempt asks for itself: stages to be recorded, and children to be submitted.

Everything is fenced by the attempt's key, in the statement that writes: what comes after the end of
the attempt, or after another has begun, changes nothing.
"""

from collections.abc import Sequence

from duly.config import ExecutionSettings
from duly.errors import Invalid, TenantSuspended, TooLarge, Unauthenticated
from duly.model.attempt_key import AttemptKey
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.model.wording import format_bytes
from duly.server.admission.commit_queue import Admitted
from duly.server.admission.submitter import Submitter
from duly.server.delivery.attempt_keys import INVALID_KEY
from duly.store.attempts import stages
from duly.store.attempts.stages import Stage
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database

MAX_STAGES = 1000
MAX_STAGES_BYTES = 16 * 2**20
"""Of all stages of a task: each attempt reads them at once."""


class AttemptCalls:
    """Stores what attempts ask for."""

    def __init__(
        self, database: Database, submitter: Submitter, settings: ExecutionSettings
    ) -> None:
        self._database = database
        self._submitter = submitter
        self._result_limit = settings.result_limit

    async def save_stage(self, key: AttemptKey, name: str, result: str) -> str:
        """Record a stage once; return what is recorded under its name."""
        async with self._database.connection(ConnectionClass.NODE) as conn:
            saved = await stages.save(
                conn,
                key,
                name,
                result,
                max_stages=MAX_STAGES,
                max_bytes=MAX_STAGES_BYTES,
                max_result=self._result_limit,
            )
        if saved is None:
            raise Unauthenticated(INVALID_KEY)
        if saved.result is not None:
            return saved.result
        if len(result.encode()) > saved.result_limit:
            raise TooLarge(
                f"The result of a stage may have at most {format_bytes(saved.result_limit)}.",
                limit=saved.result_limit,
            )
        raise Invalid(
            "name",
            f"a task may have at most {MAX_STAGES} stages with "
            f"{format_bytes(MAX_STAGES_BYTES)} together.",
        )

    async def read_stages(self, key: AttemptKey) -> list[Stage]:
        """Return what attempts at the task have recorded."""
        async with self._database.connection(ConnectionClass.NODE) as conn:
            return await stages.read_all(conn, key.task)

    async def owner(self, key: AttemptKey) -> Credential:
        """Return what the attempt may submit as."""
        async with self._database.connection(ConnectionClass.NODE) as conn:
            owner = await stages.read_owner(conn, key.task)
        if owner is None:
            raise Unauthenticated(INVALID_KEY)
        if owner.is_suspended:
            raise TenantSuspended(f"The tenant {owner.tenant!r} is suspended and may only read.")
        return owner

    async def submit(self, key: AttemptKey, owner: Credential, spec: TaskSpec) -> Admitted:
        """Submit a child of the attempt's task, in one transaction with their link."""

        async def link(conn: Connection, ids: Sequence[int]) -> None:
            if not await stages.add_child(conn, key, ids[0]):
                raise Unauthenticated(INVALID_KEY)

        return await self._submitter.submit_child(owner, spec, link)
