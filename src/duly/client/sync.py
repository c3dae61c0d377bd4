"""The client for ordinary, blocking code."""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from duly import clock
from duly.client import calls
from duly.client.artifact_calls import ArtifactMethods
from duly.client.call import Call, read_answer, read_error
from duly.client.connection import Connections
from duly.client.endpoint import endpoint, find_endpoint
from duly.client.graph_calls import GraphMethods
from duly.client.pause_calls import PauseMethods
from duly.client.people import PeopleMethods
from duly.client.plan_calls import PlanMethods
from duly.client.retry import NoAnswer, Patience
from duly.client.schedule_calls import ScheduleMethods
from duly.client.shapes import (
    FINAL,
    Allocation,
    Attempt,
    DeadLetter,
    Duration,
    Instant,
    Node,
    NodeToken,
    Page,
    Reason,
    ResourceFields,
    Server,
    Status,
    Task,
    TaskFields,
    TaskFilter,
    TokenUses,
    UsageTold,
)
from duly.client.tries import Servers, Tries
from duly.errors import LimitExceeded, NotFound, Unavailable

T = TypeVar("T")


class Client(
    PeopleMethods, PlanMethods, ScheduleMethods, GraphMethods, ArtifactMethods, PauseMethods
):
    """Everything that the REST API can do; `duly.AsyncClient` is the same with `await`.

    Without a URL, the server and key are those of DULY_URL and DULY_KEY, or else those that
    `duly up` wrote for this user. Calls that can be repeated without harm are, for as long as
    `patience` says; every submission can, because each has an idempotency key. Threads may
    share a client.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        ca_file: str | Path | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.endpoint = find_endpoint() if url is None else endpoint(url, key, ca_file)
        self.patience = patience or Patience()
        self._servers = Servers(self.endpoint)
        self._connections = Connections(self.endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; the client can be used again all the same."""
        self._connections.close()

    def submit(self, **task: Unpack[TaskFields]) -> Task:
        """Submit a task: `client.submit(command=["echo", "hi"], tier="basic")`."""
        return self._send(calls.submit(task))

    def submit_many(
        self, tasks: Iterable[TaskFields], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Submit all of `tasks` or none, and return their ids in the same order."""
        return self._send(calls.submit_many(tasks, idempotency_key))

    def list_tasks(
        self, *, limit: int | None = None, cursor: str | None = None, **which: Unpack[TaskFilter]
    ) -> Page[Task]:
        """Return a page of the tasks that `which` means, newest first."""
        return self._send(calls.list_tasks(which, limit, cursor))

    def iter_tasks(self, **which: Unpack[TaskFilter]) -> Iterator[Task]:
        """Yield all the tasks that `which` means, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self.list_tasks(limit=calls.PAGE, cursor=cursor, **which)
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def get_task(self, task: str) -> Task:
        """Return a task as it is now."""
        return self._send(calls.get_task(task))

    def wait(self, task: str, timeout: float | None = None) -> Task:
        """Wait until a task has ended, well or not, and return it; raises TimeoutError."""
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = calls.LONGEST_WAIT if until is None else max(until - clock.monotonic(), 0.0)
            found = self._send(calls.get_task(task, wait=left))
            if found["status"] in FINAL:
                return found
            if until is not None and clock.monotonic() >= until:
                raise TimeoutError(f"Task {task} is still {found['status']} after {timeout:g} s.")

    def update_task(self, task: str, **fields: Unpack[TaskFields]) -> Task:
        """Change a task that has not started yet."""
        return self._send(calls.update_task(task, fields))

    def cancel_task(self, task: str) -> Task:
        """End a task; one that runs is `cancelled` when its processes are gone."""
        return self._send(calls.cancel_task(task))

    def cancel_tasks(self, **which: Unpack[TaskFilter]) -> int:
        """End all the tasks that `which` means, and return how many they were."""
        count = 0
        while True:
            done = self._send(calls.cancel_tasks(which))
            count += done["cancelled"]
            if not done.get("more"):
                return count

    def replay_task(self, task: str, *, downstream: bool = False) -> Task:
        """Submit a task that has ended once more, and return the new one."""
        return self._send(calls.replay_task(task, downstream=downstream))

    def list_attempts(self, task: str) -> list[Attempt]:
        """Return the attempts at a task, the first one first."""
        return self._send(calls.list_attempts(task))

    def explain(self, task: str) -> Reason:
        """Say why a task is where it is."""
        return self._send(calls.explain(task))

    def get_result(self, task: str) -> Any:
        """Return the JSON that a task left as its result, None for nothing."""
        return self._send(calls.get_result(task))

    def read_logs(self, task: str, attempt: int | None = None) -> bytes:
        """Return what an attempt has written so far, the latest unless one is named."""
        return self._send(calls.read_logs(task, attempt))

    def follow_logs(self, task: str, attempt: int | None = None) -> Iterator[bytes]:
        """Yield what a task writes as it comes, until it has ended, or only the named attempt.

        It begins with the latest attempt. A connection that breaks is taken up where it was.
        """
        number = attempt
        while True:
            if number is None:
                number = max(self.get_task(task)["attempt"], 1)
            try:
                yield from self._follow(task, number)
            except NotFound:
                if attempt is not None:
                    raise  # otherwise it ended without another attempt, or is told below
            if attempt is not None:
                return
            found = self.get_task(task)
            if found["attempt"] <= number and found["status"] in FINAL:
                return
            number += 1

    def list_dead_letters(
        self,
        *,
        reason: str | None = None,
        since: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Task]:
        """Return a page of the tasks that failed for good."""
        return self._send(calls.list_dead_letters(reason, since, limit, cursor))

    def iter_dead_letters(
        self, *, reason: str | None = None, since: Instant | None = None
    ) -> Iterator[Task]:
        """Yield all the tasks that failed for good, page by page."""
        cursor: str | None = None
        while True:
            page = self.list_dead_letters(
                reason=reason, since=since, limit=calls.PAGE, cursor=cursor
            )
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def get_dead_letter(self, task: str) -> DeadLetter:
        """Return one dead letter, with its last attempt and the end of its log."""
        return self._send(calls.get_dead_letter(task))

    def replay_dead_letter(self, task: str, *, downstream: bool = False) -> Task:
        """Submit a dead letter once more, and return the new task."""
        return self._send(calls.replay_dead_letter(task, downstream=downstream))

    def drop_dead_letter(self, task: str) -> None:
        """Take a task out of the dead letters; its history stays."""
        return self._send(calls.drop_dead_letter(task))

    def list_nodes(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Node]:
        """Return a page of the nodes."""
        return self._send(calls.list_nodes(limit, cursor))

    def list_servers(self) -> Page[Server]:
        """Return the servers, and what each of them leads."""
        return self._send(calls.list_servers())

    def get_node(self, node: str) -> Node:
        """Return a node as it is now."""
        return self._send(calls.get_node(node))

    def drain_node(self, node: str) -> Node:
        """Let a node finish what it runs and take no more."""
        return self._send(calls.drain_node(node, drain=True))

    def undrain_node(self, node: str) -> Node:
        """Let a node take tasks again."""
        return self._send(calls.drain_node(node, drain=False))

    def set_capacity(self, node: str, capacity: ResourceFields | None) -> Node:
        """Say what a node has, kind by kind, whatever its agent says; None undoes that."""
        return self._send(calls.set_capacity(node, capacity))

    def remove_node(self, node: str) -> None:
        """Take a node away for good: what runs there is handed over, and it cannot come back."""
        self._send(calls.remove_node(node))

    def create_node_token(
        self, expires_in: Duration | None = None, uses: TokenUses | None = None
    ) -> NodeToken:
        """Return a token with which one new node, or `uses` of them, may join within an hour."""
        return self._send(calls.create_node_token(expires_in, uses))

    def list_resources(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Allocation]:
        """Return a page of who has what of the nodes: tasks that run, and reservations."""
        return self._send(calls.list_resources(limit, cursor))

    def reserve(
        self,
        resources: ResourceFields,
        *,
        node: str | None = None,
        expires_in: Duration | None = None,
    ) -> Allocation:
        """Keep part of a node free of tasks: of the one named, or of one where it fits."""
        return self._send(calls.reserve(resources, node, expires_in))

    def update_reservation(
        self,
        reservation: str,
        resources: ResourceFields | None = None,
        *,
        expires_in: Duration | None = None,
    ) -> Allocation:
        """Change what is reserved, kind by kind, or how long from now it lasts."""
        return self._send(calls.update_reservation(reservation, resources, expires_in))

    def release(self, reservation: str) -> None:
        """Give back what is reserved."""
        self._send(calls.release(reservation))

    def usage(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        by: str | Sequence[str] = (),
        tenant: str | None = None,
    ) -> UsageTold:
        """Return what was used on days from `since` to `until` (dates), and what it costs.

        `by` says what to tell apart: day (if nothing is said), tenant, user, tier, urgency.
        """
        return self._send(calls.usage(since, until, by, tenant))

    def status(self) -> Status:
        """Return the whole at a glance."""
        return self._send(calls.status())

    def healthz(self) -> bool:
        """Return True when a server is there; raises Unreachable when none is."""
        return self._send(calls.healthz())

    def _follow(self, task: str, attempt: int) -> Iterator[bytes]:
        """Yield the log of one attempt until it is over; raises NotFound if there never is one."""
        call = calls.read_logs(task, attempt, follow=True)
        tries = Tries(call, self._servers, self.patience)
        seen = 0
        while True:
            url = self._servers.current
            try:
                for chunk in self._stream(url, call, skip=seen):
                    seen += len(chunk)
                    tries = Tries(call, self._servers, self.patience)
                    yield chunk
                return
            except (NoAnswer, LimitExceeded, Unavailable) as trouble:
                time.sleep(tries.after(url, trouble))

    def _send(self, call: Call[T]) -> T:
        tries = Tries(call, self._servers, self.patience)
        while True:
            url = self._servers.current
            try:
                return read_answer(call, self._connections.exchange(url, tries.call))
            except (NoAnswer, LimitExceeded, Unavailable) as trouble:
                time.sleep(tries.after(url, trouble))

    def _stream(self, url: str, call: Call[bytes], skip: int) -> Iterator[bytes]:
        stream = self._connections.stream(url, call)
        if stream.answer.status != 200:
            raise read_error(stream.answer)
        for chunk in stream:
            if skip < len(chunk):
                yield chunk[skip:]
            skip = max(skip - len(chunk), 0)
