"""Prepares attempts, hands them to the supervisor, and gathers what they leave.

It knows files, users, ports and environments, and decides nothing: what is started
and ended is the state machine's to say.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from duly.agent import environment, workspace
from duly.agent.callers import Caller, workspace_of
from duly.agent.disk_usage import DiskUsage
from duly.agent.disk_watch import Folder
from duly.agent.link import Link
from duly.agent.outcome import Conclusion, Exit, Failure
from duly.agent.ports import Ports
from duly.agent.spares import Spares
from duly.agent.spawner import MADE, MAKE, RENEW
from duly.agent.speaker import Speaker
from duly.agent.users import User, Users
from duly.clock import monotonic
from duly.model.resources import Resources
from duly.model.task import Outcome, Payload, Usage
from duly.wire import TAIL_BYTES, Assignment, AttemptRef, AttemptReport

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Local:
    """What an attempt has on this node, from its start until it is forgotten."""

    ref: AttemptRef
    id: int
    workspace: str
    spool: str
    program: str
    interpreter: str | None
    execution_cap: float
    resources: Resources
    result_limit: int
    inputs: str | None = None
    """The folder of what its upstreams have left, if they have left anything."""
    tenant: int | None = None
    """Whose it is."""
    is_folder_kept: bool = False
    """Whether its folder is kept for the next attempt of its tenant, if it leaves it empty."""
    user: User | None = None
    ports: Sequence[int] = ()
    log_size: int = 0
    log: bytes | None = b""
    """All of its output, unless that is in the spool file."""
    log_notice: bytes = b""
    """What is to be said after what is in the spool file, which could not hold it."""
    disk_usage: DiskUsage | None = None
    """What its folder held when it was last measured, if it was."""
    assigned_at: float = field(default_factory=monotonic)
    ended_at: float | None = None
    ran: float | None = None
    usage: Usage | None = None
    result: bytes | None = None
    speaker: Speaker | None = None
    """Set once it has connected to the agent's socket."""


class Unpacked(Protocol):
    """The bundle of an attempt, unpacked for a user who was taken for that."""

    folder: str
    user: User | None


class Executor:
    """The attempts that have something on this node, by reference."""

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
        self._no_inputs = f"{work}/{workspace.NO_INPUTS}"
        self._spool = str(spool)
        self._users = users
        self._ports = ports
        self.remove = remove
        self._socket = socket
        self._spares = Spares()
        self._local: dict[AttemptRef, Local] = {}
        self._by_id: dict[int, Local] = {}
        self._by_uid: dict[int, dict[str, Local]] = {}
        """Those that run as each user, by their workspaces: one, where each has its own user."""
        self._last_id = 0
        self._name_key = secrets.token_bytes(16)

    def find(self, ref: AttemptRef) -> Local:
        """Return what the attempt has here; it must have been started and not forgotten."""
        return self._local[ref]

    def by_id(self, number: int) -> Local | None:
        """Return the attempt that the supervisor knows by this number, unless it has ended."""
        return self._by_id.get(number)

    @property
    def running(self) -> Collection[Local]:
        """The attempts that have been handed to the supervisor and have not ended."""
        return self._by_id.values()

    def by_caller(self, caller: Caller) -> Local | None:
        """Return the running attempt that a process belongs to; None if it belongs to none."""
        alike = self._by_uid.get(caller.uid)
        if alike is None:
            return None
        if self._users.own_uids:
            return next(iter(alike.values()))
        found = workspace_of(caller.pid, self._work)
        return None if found is None else alike.get(found)

    def folders(self) -> list[Folder]:
        """Return the folders of the attempts that run, with the bytes that each may hold."""
        return [
            Folder(local.id, local.workspace, local.resources.disk_mb * 2**20, local.tenant)
            for local in self._by_id.values()
        ]

    def inputs_of(self, ref: AttemptRef) -> str:
        """Return the folder for the inputs of an attempt, before it is started.

        Not in its workspace: that is the task's to change.
        """
        return f"{self._folder_of(ref)}.inputs"

    def bundle_of(self, ref: AttemptRef) -> str:
        """Return the folder for the bundle of an attempt, in which it is started then."""
        return self._folder_of(ref)

    def _folder_of(self, ref: AttemptRef) -> str:
        """Return a folder that is always the same for an attempt, and whose name tells nothing.

        Tasks see their folders, and must not learn from a token how many attempts others have had.
        """
        name = hashlib.blake2b(name_of(ref).encode(), key=self._name_key, digest_size=8)
        return f"{self._work}/{name.hexdigest()}"

    def start(
        self, assignment: Assignment, link: Link, unpacked: Unpacked | None = None
    ) -> Exit | None:
        """Prepare the attempt and have it started; an Exit says that it could not be."""
        self._last_id += 1
        ref, payload = assignment.ref, assignment.payload
        # Who shares its user with others cannot be kept out of what is kept for the next one.
        is_filled = payload.source is not None or unpacked is not None
        tenant = assignment.tenant if self._users.own_uids and not is_filled else None
        spare = self._spares.take(tenant)
        if tenant is not None and not self._spares.has_room():
            tenant = None
        folder = f"{self._work}/{secrets.token_hex(8)}" if spare is None else spare
        if unpacked is not None:
            folder = unpacked.folder
        program = environment.program(payload, folder)
        local = Local(
            ref,
            self._last_id,
            folder,
            f"{self._spool}/{name_of(ref)}",
            program,
            _interpreter(payload, folder, program) if is_filled else None,
            assignment.execution_cap,
            assignment.resources,
            assignment.result_limit,
            None if assignment.inputs_limit is None else self.inputs_of(ref),
            assignment.tenant,
            is_folder_kept=tenant is not None,
        )
        self._local[ref] = self._by_id[local.id] = local
        step = "user"
        try:
            local.user = self._users.take() if unpacked is None else unpacked.user
            self._by_uid.setdefault(_uid_of(local), {})[local.workspace] = local
            step = "ports"
            local.ports = self._ports.take(assignment.resources.ports)
            step = "inputs"
            if local.inputs is not None:
                workspace.show_inputs(local.inputs, local.user)
            step = "workspace"
            if payload.source is not None:
                workspace.make(local.workspace, local.user, payload.source)
        except OSError as error:
            extra = {"ref": name_of(ref), "error": str(error)}
            log.warning("cannot prepare an attempt", extra=extra)
            self._clear(local)
            return Exit(code=None, failure=Failure(step, error.errno or 0, program))
        found = MADE if is_filled else MAKE if spare is None else RENEW
        link.send("start", self._spec(assignment, local, found))
        return None

    def _spec(self, assignment: Assignment, local: Local, folder: int) -> dict[str, Any]:
        user = local.user
        return {
            "id": local.id,
            "tenant": assignment.tenant,
            "begin": (
                environment.arguments(assignment.payload, local.workspace),
                environment.build(
                    assignment,
                    local.workspace,
                    local.inputs or self._no_inputs,
                    local.ports,
                    self._socket,
                ),
                local.workspace,
                folder,
                None if user is None else tuple(user),
                local.is_folder_kept,
            ),
            "disk": local.resources.disk_mb * 2**20,
            "own_uid": user.uid if user is not None and self._users.own_uids else None,
            "marker": environment.marker(local.workspace),
            "limits": (
                local.resources.memory_mb * 2**20,
                local.resources.cpu_milli,
                self._cpu_quota or assignment.cpu_quota,
            ),
            "execution_cap": assignment.execution_cap,
            "grace": assignment.grace,
            "log_limit": assignment.log_limit,
            "spool": local.spool,
        }

    def exited(self, told: dict[str, Any]) -> tuple[AttemptRef, Exit] | None:
        """Take in what the supervisor tells of an end; None if it is of nothing that we know."""
        local = self._by_id.get(told["id"])
        if local is None:
            return None
        end = self._describe(local, told)
        is_bare = told.get("is_bare", False)
        if end.code == 0 and not is_bare:
            local.result = workspace.read_result(local.workspace, local.result_limit)
        self._clear(local, is_bare)
        return local.ref, end

    def _describe(self, local: Local, told: dict[str, Any]) -> Exit:
        if told.get("failure"):
            local.ended_at = monotonic()
            step, number = told["failure"]
            failure = Failure(step, number, local.program, local.interpreter)
            return Exit(code=None, failure=failure)
        local.ended_at = told["ended_at"]
        if told["never_begun"]:
            return Exit(code=None, never_begun=True)
        local.ran = max(0.0, told["ended_at"] - told["started_at"])
        peak = (told["peak_memory"] or 0) / 2**20
        local.usage = Usage(told["cpu_seconds"] or 0.0, round(peak, 3), local.ran)
        local.log_size = told["log_size"]
        local.log = told["log"]
        local.log_notice = told["log_notice"]
        if told["disk_usage"] is not None:
            local.disk_usage = DiskUsage(*told["disk_usage"])
        disk_limit = local.resources.disk_mb * 2**20
        return Exit(
            code=told["code"],
            is_unknown=told["is_unknown"],
            stopped=told["stopped"],
            capped=told["capped"],
            out_of_memory=told["out_of_memory"],
            disk_exceeded=local.disk_usage is not None and local.disk_usage.exceeds(disk_limit),
            disk_usage=local.disk_usage,
            disk_full=bool(told["code"]) and workspace.is_full(self._work),
            ran=local.ran,
            execution_cap=local.execution_cap,
            memory_mb=local.resources.memory_mb,
            disk_mb=local.resources.disk_mb,
            peak_memory_mb=peak,
        )

    def _clear(self, local: Local, is_bare: bool = False) -> None:
        """Give back what was only needed while it ran; a bare workspace is gone, or a spare."""
        del self._by_id[local.id]
        alike = self._by_uid.get(_uid_of(local), {})
        if alike.pop(local.workspace, None) is not None and not alike:
            del self._by_uid[_uid_of(local)]
        unwanted: str | None = None if is_bare else local.workspace
        if is_bare and local.is_folder_kept and local.tenant is not None:
            unwanted = self._spares.keep(local.workspace, local.tenant)
        if unwanted is not None:
            self.remove(unwanted)
        if local.inputs is not None:
            self.remove(local.inputs)
        self._users.give_back(local.user)
        self._ports.give_back(local.ports)
        local.user, local.ports = None, ()

    def tidy(self) -> None:
        """Remove the folders that were kept for somebody who has not come."""
        for folder in self._spares.forget():
            self.remove(folder)

    def report(self, ref: AttemptRef, conclusion: Conclusion) -> AttemptReport:
        """Put together what the servers are told of an attempt that has ended."""
        report = AttemptReport(
            ref=ref,
            outcome=conclusion.outcome,
            exit_code=conclusion.exit_code,
            reason=conclusion.reason,
        )
        local = self._local.get(ref)
        if local is not None:
            report.ran = local.ran
            report.usage = local.usage
            report.tail = self._tail(local)
            report.log_size = local.log_size
            if conclusion.outcome is Outcome.SUCCEEDED:
                report.result = local.result
                report.result_limit = local.result_limit
        return report

    def ended_at(self, ref: AttemptRef) -> float | None:
        """Return when the attempt ended on our clock; None if it never began."""
        local = self._local.get(ref)
        return local.ended_at if local is not None else None

    def _tail(self, local: Local) -> bytes:
        if local.log is not None:
            return local.log
        kept = read_spool(local.spool, max(0, local.log_size - TAIL_BYTES), TAIL_BYTES)
        return kept + local.log_notice

    def forget(self, ref: AttemptRef) -> None:
        """Remove what is left of an attempt whose report was answered."""
        local = self._local.pop(ref, None)
        if local is not None and local.log is None:
            Path(local.spool).unlink(missing_ok=True)


def _uid_of(local: Local) -> int:
    return os.geteuid() if local.user is None else local.user.uid


def _interpreter(payload: Payload, folder: str, program: str) -> str | None:
    if payload.source is not None:
        return environment.interpreter(payload)
    return environment.interpreter_in(folder, program)


def name_of(ref: AttemptRef) -> str:
    """Return what an attempt is called where no task can look: in the spool, and in logs.

    The token too: a database that has lost its last commits gives the same number again.
    """
    return f"{ref.task}-{ref.attempt}-{ref.token}"


def read_spool(path: str, offset: int, size: int) -> bytes:
    """Return up to `size` bytes of a spool file; fewer at its end, none if it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
