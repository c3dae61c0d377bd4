"""Runs commands: fetches what they need, and has the supervisor start and end them."""

from collections.abc import Collection, Sequence
from typing import Any

from duly.agent.executor import Listener, Loop
from duly.agent.gateway import Gateway
from duly.agent.limits.disk_usage import DiskUsage
from duly.agent.limits.disk_watch import DiskWatch
from duly.agent.preparation.bundle_cache import BundleCache
from duly.agent.preparation.bundles import MAX_CONCURRENT_UNPACKS, BundleFetcher
from duly.agent.preparation.command_attempts import CommandAttempt, CommandAttempts
from duly.agent.preparation.inputs import InputFetcher
from duly.agent.preparation.task_users import Users
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.agent.supervision.supervisor_link import SupervisorLink
from duly.wire import Assignment, AttemptRef, AttemptReport


class CommandExecutor:
    """The executor of an agent; `link` is set before anything starts."""

    def __init__(
        self, gateway: Gateway, attempts: CommandAttempts, cache: BundleCache, users: Users
    ) -> None:
        self._attempts = attempts
        self._inputs = InputFetcher(gateway, self._on_fetched, attempts.remove)
        self._bundles = BundleFetcher(gateway, cache, users, self._on_unpacked, attempts.remove)
        self._disk_watch = DiskWatch(attempts.folders, self._kill_over_disk)
        self._link: SupervisorLink
        self._listener: Listener
        self.by_id = attempts.by_id
        self.find = attempts.find
        self.ended_at = attempts.ended_at
        self.forget = attempts.forget
        self.renewed = attempts.evict_idle_workspaces

    @property
    def link(self) -> SupervisorLink:
        """The connection to the supervisor."""
        return self._link

    @link.setter
    def link(self, link: SupervisorLink) -> None:
        self._link = link
        self.lost = link.lost
        self.flush = link.flush

    def connect(self, listener: Listener) -> None:
        """Tell `listener` what happens from now on."""
        self._listener = listener

    def loops(self) -> Sequence[Loop]:
        """Return the loops that fetch, and the one that watches the disk."""
        return (
            self._disk_watch.run,
            self._inputs.run,
            self._bundles.run,
            *(self._bundles.unpack,) * MAX_CONCURRENT_UNPACKS,
        )

    def on_supervisor_event(self, name: str, subject: Any) -> None:
        """Handle an event that the supervisor sent."""
        if name == "exited":
            ended = self._attempts.exited(subject)
            if ended is not None:
                self._listener.exited(*ended)
        elif name == "output":
            attempt = self._attempts.by_id(subject[0])
            if attempt is not None:
                self._listener.written(attempt, subject[1])
        elif name == "measured":
            self._listener.measured(subject)

    def needs_fetch(self, assignment: Assignment) -> bool:
        """Return True if the attempt has inputs or a bundle."""
        return assignment.inputs_limit is not None or assignment.payload.artifact is not None

    def fetch(self, assignment: Assignment) -> None:
        """Fetch the bundle first, if the task has one, then the inputs."""
        if assignment.payload.artifact is not None:
            self._bundles.fetch(assignment, self._attempts.bundle_of(assignment.ref))
        else:
            self._inputs.fetch(assignment, self._attempts.inputs_of(assignment.ref))

    def _on_unpacked(self, assignment: Assignment, refusal: Conclusion | None) -> None:
        if refusal is None and assignment.inputs_limit is not None:
            self._inputs.fetch(assignment, self._attempts.inputs_of(assignment.ref))
        else:
            self._on_fetched(assignment.ref, refusal)

    def _on_fetched(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        self._listener.fetched(ref, refusal)

    def abandon(self, ref: AttemptRef) -> None:
        """Stop fetching, and remove what was fetched."""
        self._bundles.abandon(ref)
        self._inputs.abandon(ref)

    def start(self, ref: AttemptRef, assignment: Assignment | None) -> Exit | None:
        """Start an attempt, which was fetched if None is given."""
        unpacked, fetched = self._bundles.take(ref), self._inputs.take(ref)
        if assignment is None:
            assignment = fetched if unpacked is None else unpacked.assignment
        assert assignment is not None  # noqa: S101
        return self._attempts.start(assignment, self._link, unpacked)

    def _kill_over_disk(self, number: int, usage: DiskUsage) -> None:
        """Kill an attempt that uses too much disk; its exit event leads to the report."""
        attempt = self._attempts.by_id(number)
        if attempt is not None:
            attempt.disk_usage = usage
            self._link.send("kill", number)

    def terminate(self, ref: AttemptRef) -> None:
        """Send SIGTERM, and SIGKILL after the grace period."""
        self._link.send("terminate", self._attempts.find(ref).id)

    def kill(self, ref: AttemptRef) -> None:
        """Send SIGKILL to every process of the attempt."""
        self._link.send("kill", self._attempts.find(ref).id)

    def freeze(self, ref: AttemptRef) -> None:
        """Suspend every process of the attempt."""
        self._link.send("freeze", self._attempts.find(ref).id)

    def thaw(self, ref: AttemptRef) -> None:
        """Resume a frozen attempt."""
        self._link.send("thaw", self._attempts.find(ref).id)

    def trust(self, until: float) -> None:
        """Have the supervisor let attempts run until then."""
        self._link.send("trust", until)

    def measure(self, numbers: list[int]) -> None:
        """Have the supervisor measure attempts."""
        self._link.send("measure", numbers)

    @property
    def running(self) -> Collection[CommandAttempt]:
        """The attempts that have been handed to the supervisor and have not ended."""
        return self._attempts.running

    def offer(self) -> int | None:
        """Return None: commands take resources, not slots."""
        return None

    def report(self, ref: AttemptRef, conclusion: Conclusion) -> AttemptReport:
        """Build the report of an attempt that has ended."""
        return self._attempts.report(ref, conclusion)
