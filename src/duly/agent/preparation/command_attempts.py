"""The attempts of an agent: prepares them for the supervisor, and describes how they ended.

Knows files, users, ports and environments, and decides nothing.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from duly.agent.limits.disk_usage import DiskUsage
from duly.agent.limits.disk_watch import WatchedFolder
from duly.agent.local_attempt import LocalAttempt, name_of, report_of
from duly.agent.preparation import environment, workspace
from duly.agent.preparation.ports import Ports
from duly.agent.preparation.task_users import User, Users
from duly.agent.preparation.workspace_pool import WorkspacePool
from duly.agent.reporting.peer_credentials import Caller, workspace_of
from duly.agent.supervision.outcome import Conclusion, Exit, Failure
from duly.agent.supervision.spawner import WORKSPACE_MISSING, WORKSPACE_POOLED, WORKSPACE_READY
from duly.agent.supervision.supervisor_link import SupervisorLink
from duly.clock import monotonic
from duly.model.resources import Resources
from duly.model.task import Payload, Usage
from duly.wire import Assignment, AttemptRef, AttemptReport

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class CommandAttempt(LocalAttempt):
    """The local state of an attempt at running a command."""

    workspace: str
    program: str
    interpreter: str | None
    resources: Resources
    inputs: str | None = None
    """The folder with the results of its upstreams, if it has inputs."""
    is_folder_pooled: bool = False
    """Whether its folder is pooled for its tenant's next attempt, if it is left empty."""
    user: User | None = None
    ports: Sequence[int] = ()
    disk_usage: DiskUsage | None = None
    """The last measurement of its folder, if there was one."""


class Unpacked(Protocol):
    """The unpacked bundle of an attempt, and the user that was allocated for it."""

    folder: str
    user: User | None


class CommandAttempts:
    """The attempts that have local state on this node, by reference."""

    def __init__(
        self,
        *,
        work: Path,
        spool: Path,
        users: Users,
        ports: Ports,
        remove: Callable[[str], None],
        socket: str | None = None,
        cpu_quota: bool = False,
    ) -> None:
        self._cpu_quota = cpu_quota
        self._work = str(work)
        self._no_inputs = f"{work}/{workspace.EMPTY_INPUTS}"
        self._spool = str(spool)
        self._users = users
        self._ports = ports
        self.remove = remove
        self._socket = socket
        self._workspace_pool = WorkspacePool()
        self._by_ref: dict[AttemptRef, CommandAttempt] = {}
        self._by_id: dict[int, CommandAttempt] = {}
        self._by_uid: dict[int, dict[str, CommandAttempt]] = {}
        """Attempts by user id, then by workspace: one each where every attempt has its own user."""
        self._last_id = 0
        self._name_key = secrets.token_bytes(16)

    def find(self, ref: AttemptRef) -> CommandAttempt:
        """Return the attempt, which must have been started and not forgotten."""
        return self._by_ref[ref]

    def by_id(self, number: int) -> CommandAttempt | None:
        """Return the attempt with this supervisor id, unless it has ended."""
        return self._by_id.get(number)

    @property
    def running(self) -> Collection[CommandAttempt]:
        """The attempts that have been handed to the supervisor and have not ended."""
        return self._by_id.values()

    def by_caller(self, caller: Caller) -> CommandAttempt | None:
        """Return the running attempt that a process belongs to, or None."""
        same_user = self._by_uid.get(caller.uid)
        if same_user is None:
            return None
        if self._users.own_uids:
            return next(iter(same_user.values()))
        found = workspace_of(caller.pid, self._work)
        return None if found is None else same_user.get(found)

    def folders(self) -> list[WatchedFolder]:
        """Return the folders of the running attempts, with the size limit of each in bytes."""
        return [
            WatchedFolder(
                attempt.id, attempt.workspace, attempt.resources.disk_mb * 2**20, attempt.tenant
            )
            for attempt in self._by_id.values()
        ]

    def inputs_of(self, ref: AttemptRef) -> str:
        """Return the folder for the inputs of an attempt, before it is started.

        It is outside of the workspace, which the task can change.
        """
        return f"{self._folder_of(ref)}.inputs"

    def bundle_of(self, ref: AttemptRef) -> str:
        """Return the folder for the bundle of an attempt, which becomes its workspace."""
        return self._folder_of(ref)

    def _folder_of(self, ref: AttemptRef) -> str:
        """Return a folder that is always the same for an attempt, and whose name reveals nothing.

        Tasks see the name, and must not learn from a token how many attempts other tenants had.
        """
        name = hashlib.blake2b(name_of(ref).encode(), key=self._name_key, digest_size=8)
        return f"{self._work}/{name.hexdigest()}"

    def start(
        self, assignment: Assignment, link: SupervisorLink, unpacked: Unpacked | None = None
    ) -> Exit | None:
        """Prepare the attempt and send it to the supervisor; returns an Exit if that failed."""
        self._last_id += 1
        ref, payload = assignment.ref, assignment.payload
        # Folders are pooled only with one user per attempt: a shared user could enter a pooled one.
        is_filled = payload.source is not None or unpacked is not None
        tenant = assignment.tenant if self._users.own_uids and not is_filled else None
        pooled = self._workspace_pool.take(tenant)
        if tenant is not None and not self._workspace_pool.has_room():
            tenant = None
        folder = f"{self._work}/{secrets.token_hex(8)}" if pooled is None else pooled
        if unpacked is not None:
            folder = unpacked.folder
        program = environment.program(payload, folder)
        attempt = CommandAttempt(
            ref,
            self._last_id,
            f"{self._spool}/{name_of(ref)}",
            assignment.execution_cap,
            assignment.result_limit,
            assignment.tenant,
            payload.uses,
            workspace=folder,
            program=program,
            interpreter=_interpreter(payload, folder, program) if is_filled else None,
            resources=assignment.resources,
            inputs=None if assignment.inputs_limit is None else self.inputs_of(ref),
            is_folder_pooled=tenant is not None,
        )
        self._by_ref[ref] = self._by_id[attempt.id] = attempt
        step = "user"
        try:
            attempt.user = self._users.take() if unpacked is None else unpacked.user
            self._by_uid.setdefault(_uid_of(attempt), {})[attempt.workspace] = attempt
            step = "ports"
            attempt.ports = self._ports.take(assignment.resources.ports)
            step = "inputs"
            if attempt.inputs is not None:
                workspace.show_inputs(attempt.inputs, attempt.user)
            step = "workspace"
            if payload.source is not None:
                workspace.make(attempt.workspace, attempt.user, payload.source)
        except OSError as error:
            extra = {"ref": name_of(ref), "error": str(error)}
            log.warning("cannot prepare an attempt", extra=extra)
            self._clear(attempt)
            return Exit(code=None, failure=Failure(step, error.errno or 0, program))
        found = (
            WORKSPACE_READY
            if is_filled
            else WORKSPACE_MISSING
            if pooled is None
            else WORKSPACE_POOLED
        )
        link.send("start", self._spec(assignment, attempt, found))
        return None

    def _spec(self, assignment: Assignment, attempt: CommandAttempt, folder: int) -> dict[str, Any]:
        user = attempt.user
        return {
            "id": attempt.id,
            "tenant": assignment.tenant,
            "begin": (
                environment.arguments(assignment.payload, attempt.workspace),
                environment.build(
                    assignment,
                    attempt.workspace,
                    attempt.inputs or self._no_inputs,
                    attempt.ports,
                    self._socket,
                ),
                attempt.workspace,
                folder,
                None if user is None else tuple(user),
                attempt.is_folder_pooled,
                *environment.stdin(assignment.payload),
            ),
            "disk": attempt.resources.disk_mb * 2**20,
            "own_uid": user.uid if user is not None and self._users.own_uids else None,
            "marker": environment.marker(attempt.workspace),
            "limits": (
                attempt.resources.memory_mb * 2**20,
                attempt.resources.cpu_milli,
                self._cpu_quota or assignment.cpu_quota,
            ),
            "execution_cap": assignment.execution_cap,
            "grace": assignment.grace,
            "log_limit": assignment.log_limit,
            "spool": attempt.spool,
        }

    def exited(self, event: dict[str, Any]) -> tuple[AttemptRef, Exit] | None:
        """Process the supervisor's exit event; returns None for an unknown attempt."""
        attempt = self._by_id.get(event["id"])
        if attempt is None:
            return None
        end = self._describe(attempt, event)
        is_workspace_empty = event.get("is_workspace_empty", False)
        if end.code == 0 and not is_workspace_empty:
            attempt.result = workspace.read_result(attempt.workspace, attempt.result_limit)
        self._clear(attempt, is_workspace_empty)
        return attempt.ref, end

    def _describe(self, attempt: CommandAttempt, event: dict[str, Any]) -> Exit:
        if event.get("failure"):
            attempt.ended_at = monotonic()
            step, number = event["failure"]
            failure = Failure(step, number, attempt.program, attempt.interpreter)
            return Exit(code=None, failure=failure)
        attempt.ended_at = event["ended_at"]
        if event["never_begun"]:
            return Exit(code=None, never_begun=True)
        attempt.ran = max(0.0, event["ended_at"] - event["started_at"])
        peak = event["peak_memory"] and round(event["peak_memory"] / 2**20, 3)
        attempt.usage = Usage(event["cpu_seconds"] or 0.0, peak, attempt.ran)
        attempt.log_size = event["log_size"]
        attempt.log = event["log"]
        attempt.log_notice = event["log_notice"]
        if event["disk_usage"] is not None:
            attempt.disk_usage = DiskUsage(*event["disk_usage"])
        disk_limit = attempt.resources.disk_mb * 2**20
        return Exit(
            code=event["code"],
            is_unknown=event["is_unknown"],
            stopped=event["stopped"],
            capped=event["capped"],
            out_of_memory=event["out_of_memory"],
            disk_exceeded=attempt.disk_usage is not None and attempt.disk_usage.exceeds(disk_limit),
            disk_usage=attempt.disk_usage,
            disk_full=bool(event["code"]) and workspace.is_full(self._work),
            ran=attempt.ran,
            execution_cap=attempt.execution_cap,
            memory_mb=attempt.resources.memory_mb,
            disk_mb=attempt.resources.disk_mb,
            peak_memory_mb=peak,
        )

    def _clear(self, attempt: CommandAttempt, is_workspace_empty: bool = False) -> None:
        """Release what the attempt needed only while it ran; an empty workspace may be pooled."""
        del self._by_id[attempt.id]
        same_user = self._by_uid.get(_uid_of(attempt), {})
        if same_user.pop(attempt.workspace, None) is not None and not same_user:
            del self._by_uid[_uid_of(attempt)]
        unwanted: str | None = None if is_workspace_empty else attempt.workspace
        if is_workspace_empty and attempt.is_folder_pooled and attempt.tenant is not None:
            unwanted = self._workspace_pool.keep(attempt.workspace, attempt.tenant)
        if unwanted is not None:
            self.remove(unwanted)
        if attempt.inputs is not None:
            self.remove(attempt.inputs)
        self._users.release(attempt.user)
        self._ports.release(attempt.ports)
        attempt.user, attempt.ports = None, ()

    def evict_idle_workspaces(self) -> None:
        """Remove the pooled folders that no attempt has used for a long time."""
        for folder in self._workspace_pool.forget():
            self.remove(folder)

    def report(self, ref: AttemptRef, conclusion: Conclusion) -> AttemptReport:
        """Build the report of an attempt that has ended."""
        return report_of(ref, conclusion, self._by_ref.get(ref))

    def ended_at(self, ref: AttemptRef) -> float | None:
        """Return the monotonic time at which the attempt ended; None if it never began."""
        attempt = self._by_ref.get(ref)
        return attempt.ended_at if attempt is not None else None

    def forget(self, ref: AttemptRef) -> None:
        """Drop the state and the spool file of an attempt whose report was answered."""
        attempt = self._by_ref.pop(ref, None)
        if attempt is not None:
            attempt.remove_log()


def _uid_of(attempt: CommandAttempt) -> int:
    return os.geteuid() if attempt.user is None else attempt.user.uid


def _interpreter(payload: Payload, folder: str, program: str) -> str | None:
    if payload.source is not None:
        return environment.interpreter(payload)
    return environment.interpreter_in(folder, program)
