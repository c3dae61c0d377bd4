"""The calls of the API about schedules, and their methods for both clients."""

from typing import Any, TypeVar, Unpack

from duly.client.call import Call, encode, instant, parse_json
from duly.client.calls import _get, _page, _segment
from duly.client.graph_shapes import GraphIds
from duly.client.schedule_shapes import FireTime, Schedule, ScheduleChanges, ScheduleFields
from duly.client.shapes import Instant, Page, Task

T = TypeVar("T")


def create_schedule(fields: ScheduleFields) -> Call[Schedule]:
    """Make a schedule. Sent twice, there would be two."""
    said = {name: value for name, value in fields.items() if value is not None}
    return Call("POST", "/v1/schedules", parse_json, body=encode(said))


def list_schedules(
    user: str | None, due_before: Instant | None, limit: int | None, cursor: str | None
) -> Call[Page[Schedule]]:
    """Ask for a page of the schedules that are meant."""
    query = [] if user is None else [("user", user)]
    if due_before is not None:
        query.append(("due_before", instant(due_before, "due_before")))
    return _get("/v1/schedules", [*query, *_page(limit, cursor)])


def get_schedule(schedule: str) -> Call[Schedule]:
    """Ask for one schedule."""
    return _get(_schedule(schedule))


def update_schedule(schedule: str, fields: ScheduleChanges) -> Call[Schedule]:
    """Change a schedule."""
    return Call("PATCH", _schedule(schedule), parse_json, body=encode(fields), repeatable=True)


def pause_schedule(schedule: str) -> Call[Schedule]:
    """Let a schedule not fire."""
    return Call("POST", _schedule(schedule, "pause"), parse_json, repeatable=True)


def resume_schedule(schedule: str) -> Call[Schedule]:
    """Let a schedule fire again."""
    return Call("POST", _schedule(schedule, "resume"), parse_json, repeatable=True)


def remove_schedule(schedule: str) -> Call[None]:
    """Remove a schedule."""
    return Call("DELETE", _schedule(schedule), lambda body: None)


def run_schedule(schedule: str) -> Call[Task | GraphIds]:
    """Submit its task or graph now. Sent twice, it would be submitted twice."""
    return Call("POST", _schedule(schedule, "run"), parse_json)


def backfill_schedule(schedule: str, start_at: Instant, end_at: Instant) -> Call[list[str]]:
    """Make up for fire times. Sent twice, the second answer would know of no task."""
    body = encode({"start_at": start_at, "end_at": end_at})
    path = _schedule(schedule, "backfill")
    return Call("POST", path, lambda answer: list(parse_json(answer)["ids"]), body=body)


def list_schedule_tasks(schedule: str, limit: int | None, cursor: str | None) -> Call[Page[Task]]:
    """Ask for a page of what a schedule has submitted."""
    return _get(_schedule(schedule, "tasks"), _page(limit, cursor))


def list_occurrences(schedule: str, limit: int | None, cursor: str | None) -> Call[Page[FireTime]]:
    """Ask for a page of what became of fire times."""
    return _get(_schedule(schedule, "occurrences"), _page(limit, cursor))


def next_times(schedule: str, count: int | None, after: Instant | None) -> Call[list[str]]:
    """Ask when a schedule fires next."""
    query = [] if count is None else [("count", str(count))]
    if after is not None:
        query.append(("after", instant(after, "after")))
    return _get(_schedule(schedule, "next"), query, read=_times)


def preview_schedule(
    count: int | None, after: Instant | None, fields: ScheduleFields
) -> Call[list[str]]:
    """Ask when a schedule would fire."""
    said: dict[str, Any] = {**fields, "count": count, "after": after}
    body = encode({name: value for name, value in said.items() if value is not None})
    return Call("POST", "/v1/schedules/preview", _times, body=body, repeatable=True)


def _schedule(schedule: str, part: str = "") -> str:
    path = f"/v1/schedules/{_segment(schedule)}"
    return f"{path}/{part}" if part else path


def _times(body: bytes) -> list[str]:
    return list(parse_json(body)["times"])


class ScheduleMethods:
    """What a client can do about schedules."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def create_schedule(self, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Make a schedule: `create_schedule(daily="06:30", task={"command": ["./report"]})`."""
        return self._send(create_schedule(fields))

    def list_schedules(
        self,
        *,
        user: str | None = None,
        due_before: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """Return a page of the schedules, newest first."""
        return self._send(list_schedules(user, due_before, limit, cursor))

    def get_schedule(self, schedule: str) -> Schedule:
        """Return a schedule as it is now."""
        return self._send(get_schedule(schedule))

    def update_schedule(self, schedule: str, **fields: Unpack[ScheduleChanges]) -> Schedule:
        """Change a schedule, perhaps only its next run; None brings a default back."""
        return self._send(update_schedule(schedule, fields))

    def pause_schedule(self, schedule: str) -> Schedule:
        """Let a schedule not fire until it is resumed."""
        return self._send(pause_schedule(schedule))

    def resume_schedule(self, schedule: str) -> Schedule:
        """Let a paused schedule fire again, from its next fire time on."""
        return self._send(resume_schedule(schedule))

    def remove_schedule(self, schedule: str) -> None:
        """Remove a schedule; what it has submitted goes on."""
        self._send(remove_schedule(schedule))

    def run_schedule(self, schedule: str) -> Task | GraphIds:
        """Submit its task now, beside its fire times; of a graph the ids are returned."""
        return self._send(run_schedule(schedule))

    def backfill_schedule(self, schedule: str, start_at: Instant, end_at: Instant) -> list[str]:
        """Submit what past fire times in a range have not led to; return the ids."""
        return self._send(backfill_schedule(schedule, start_at, end_at))

    def list_schedule_tasks(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Task]:
        """Return a page of what a schedule has submitted, the newest fire time first."""
        return self._send(list_schedule_tasks(schedule, limit, cursor))

    def list_occurrences(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[FireTime]:
        """Return a page of fire times, newest first: each with its task or graph, or why not."""
        return self._send(list_occurrences(schedule, limit, cursor))

    def next_times(
        self, schedule: str, *, count: int | None = None, after: Instant | None = None
    ) -> list[str]:
        """Return when a schedule fires next, ten times unless told."""
        return self._send(next_times(schedule, count, after))

    def preview_schedule(
        self,
        *,
        count: int | None = None,
        after: Instant | None = None,
        **fields: Unpack[ScheduleFields],
    ) -> list[str]:
        """Return when a schedule would fire, and store nothing."""
        return self._send(preview_schedule(count, after, fields))


class AsyncScheduleMethods:
    """The same with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def create_schedule(self, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Make a schedule: `create_schedule(daily="06:30", task={"command": ["./report"]})`."""
        return await self._send(create_schedule(fields))

    async def list_schedules(
        self,
        *,
        user: str | None = None,
        due_before: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """Return a page of the schedules, newest first."""
        return await self._send(list_schedules(user, due_before, limit, cursor))

    async def get_schedule(self, schedule: str) -> Schedule:
        """Return a schedule as it is now."""
        return await self._send(get_schedule(schedule))

    async def update_schedule(self, schedule: str, **fields: Unpack[ScheduleChanges]) -> Schedule:
        """Change a schedule, perhaps only its next run; None brings a default back."""
        return await self._send(update_schedule(schedule, fields))

    async def pause_schedule(self, schedule: str) -> Schedule:
        """Let a schedule not fire until it is resumed."""
        return await self._send(pause_schedule(schedule))

    async def resume_schedule(self, schedule: str) -> Schedule:
        """Let a paused schedule fire again, from its next fire time on."""
        return await self._send(resume_schedule(schedule))

    async def remove_schedule(self, schedule: str) -> None:
        """Remove a schedule; what it has submitted goes on."""
        await self._send(remove_schedule(schedule))

    async def run_schedule(self, schedule: str) -> Task | GraphIds:
        """Submit its task now, beside its fire times; of a graph the ids are returned."""
        return await self._send(run_schedule(schedule))

    async def backfill_schedule(
        self, schedule: str, start_at: Instant, end_at: Instant
    ) -> list[str]:
        """Submit what past fire times in a range have not led to; return the ids."""
        return await self._send(backfill_schedule(schedule, start_at, end_at))

    async def list_schedule_tasks(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Task]:
        """Return a page of what a schedule has submitted, the newest fire time first."""
        return await self._send(list_schedule_tasks(schedule, limit, cursor))

    async def list_occurrences(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[FireTime]:
        """Return a page of fire times, newest first: each with its task or graph, or why not."""
        return await self._send(list_occurrences(schedule, limit, cursor))

    async def next_times(
        self, schedule: str, *, count: int | None = None, after: Instant | None = None
    ) -> list[str]:
        """Return when a schedule fires next, ten times unless told."""
        return await self._send(next_times(schedule, count, after))

    async def preview_schedule(
        self,
        *,
        count: int | None = None,
        after: Instant | None = None,
        **fields: Unpack[ScheduleFields],
    ) -> list[str]:
        """Return when a schedule would fire, and store nothing."""
        return await self._send(preview_schedule(count, after, fields))
