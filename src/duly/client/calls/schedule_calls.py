"""The calls about schedules, and their methods for both clients."""

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack

from duly.client.call import Call, encode, format_instant, parse_json
from duly.client.calls.task_calls import PAGE_SIZE, _get, _page_query, _path_segment
from duly.client.shapes.graph_shapes import GraphIds
from duly.client.shapes.schedule_shapes import Occurrence, Schedule, ScheduleChanges, ScheduleFields
from duly.client.shapes.task_shapes import Instant, Page, Task

T = TypeVar("T")


def create_schedule(fields: ScheduleFields) -> Call[Schedule]:
    """Create a schedule. Not repeatable: there would be two."""
    body = encode({name: value for name, value in fields.items() if value is not None})
    return Call("POST", "/v1/schedules", parse_json, body=body)


def list_schedules(
    user: str | None, due_before: Instant | None, limit: int | None, cursor: str | None
) -> Call[Page[Schedule]]:
    """List a page of the schedules that match the filters."""
    query = [] if user is None else [("user", user)]
    if due_before is not None:
        query.append(("due_before", format_instant(due_before, "due_before")))
    return _get("/v1/schedules", [*query, *_page_query(limit, cursor)])


def get_schedule(schedule: str) -> Call[Schedule]:
    """Get a schedule."""
    return _get(_schedule_path(schedule))


def update_schedule(schedule: str, fields: ScheduleChanges) -> Call[Schedule]:
    """Update a schedule."""
    return Call("PATCH", _schedule_path(schedule), parse_json, body=encode(fields), repeatable=True)


def pause_schedule(schedule: str) -> Call[Schedule]:
    """Pause a schedule."""
    return Call("POST", _schedule_path(schedule, "pause"), parse_json, repeatable=True)


def resume_schedule(schedule: str) -> Call[Schedule]:
    """Resume a schedule."""
    return Call("POST", _schedule_path(schedule, "resume"), parse_json, repeatable=True)


def remove_schedule(schedule: str) -> Call[None]:
    """Remove a schedule."""
    return Call("DELETE", _schedule_path(schedule), lambda body: None)


def run_schedule(schedule: str) -> Call[Task | GraphIds]:
    """Submit the schedule's task or graph now. Not repeatable: it would be submitted twice."""
    return Call("POST", _schedule_path(schedule, "run"), parse_json)


def backfill_schedule(schedule: str, start_at: Instant, end_at: Instant) -> Call[list[str]]:
    """Submit missed occurrences. Not repeatable: a second response would list no tasks."""
    body = encode({"start_at": start_at, "end_at": end_at})
    path = _schedule_path(schedule, "backfill")
    return Call("POST", path, lambda response: list(parse_json(response)["ids"]), body=body)


def list_schedule_tasks(schedule: str, limit: int | None, cursor: str | None) -> Call[Page[Task]]:
    """List a page of the tasks that a schedule has submitted."""
    return _get(_schedule_path(schedule, "tasks"), _page_query(limit, cursor))


def list_occurrences(
    schedule: str, limit: int | None, cursor: str | None
) -> Call[Page[Occurrence]]:
    """List a page of a schedule's past occurrences."""
    return _get(_schedule_path(schedule, "occurrences"), _page_query(limit, cursor))


def next_times(schedule: str, count: int | None, after: Instant | None) -> Call[list[str]]:
    """Get the next fire times of a schedule."""
    query = [] if count is None else [("count", str(count))]
    if after is not None:
        query.append(("after", format_instant(after, "after")))
    return _get(_schedule_path(schedule, "next"), query, read=_read_times)


def preview_schedule(
    count: int | None, after: Instant | None, fields: ScheduleFields
) -> Call[list[str]]:
    """Get the fire times that a schedule would have."""
    request: dict[str, Any] = {**fields, "count": count, "after": after}
    body = encode({name: value for name, value in request.items() if value is not None})
    return Call("POST", "/v1/schedules/preview", _read_times, body=body, repeatable=True)


def has_fields(schedule: Schedule, fields: Mapping[str, Any]) -> bool:
    """Return True if a schedule already is as asked for."""
    asked = parse_json(encode({name: v for name, v in fields.items() if v is not None}))
    return all(schedule.get(name) == value for name, value in asked.items())


def _schedule_path(schedule: str, part: str = "") -> str:
    path = f"/v1/schedules/{_path_segment(schedule)}"
    return f"{path}/{part}" if part else path


def _read_times(body: bytes) -> list[str]:
    return list(parse_json(body)["times"])


class ScheduleMethods:
    """Methods for schedules."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def create_schedule(self, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Create a schedule: `create_schedule(daily="06:30", task={"command": ["./report"]})`."""
        return self._send(create_schedule(fields))

    def put_schedule(self, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Create the schedule with its `name`, or update the newest one if it differs.

        Names are not unique: two processes that do this for the first time at the same instant
        create two schedules.
        """
        cursor: str | None = None
        while True:
            page = self.list_schedules(limit=PAGE_SIZE, cursor=cursor)
            for schedule in page["items"]:
                if schedule["name"] == fields.get("name"):
                    if has_fields(schedule, fields):
                        return schedule
                    return self.update_schedule(schedule["id"], **fields)
            cursor = page["next_cursor"]
            if cursor is None:
                return self.create_schedule(**fields)

    def list_schedules(
        self,
        *,
        user: str | None = None,
        due_before: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """Return a page of schedules, newest first."""
        return self._send(list_schedules(user, due_before, limit, cursor))

    def get_schedule(self, schedule: str) -> Schedule:
        """Return a schedule."""
        return self._send(get_schedule(schedule))

    def update_schedule(self, schedule: str, **fields: Unpack[ScheduleChanges]) -> Schedule:
        """Update a schedule, or only its `next_run_at`; None resets a field to its default."""
        return self._send(update_schedule(schedule, fields))

    def pause_schedule(self, schedule: str) -> Schedule:
        """Pause a schedule: it does not fire until it is resumed."""
        return self._send(pause_schedule(schedule))

    def resume_schedule(self, schedule: str) -> Schedule:
        """Resume a paused schedule, from its next fire time on."""
        return self._send(resume_schedule(schedule))

    def remove_schedule(self, schedule: str) -> None:
        """Remove a schedule; tasks that it has submitted are not affected."""
        self._send(remove_schedule(schedule))

    def run_schedule(self, schedule: str) -> Task | GraphIds:
        """Submit the schedule's task now, in addition to its fire times.

        Returns the task, or for a graph the ids of its tasks.
        """
        return self._send(run_schedule(schedule))

    def backfill_schedule(self, schedule: str, start_at: Instant, end_at: Instant) -> list[str]:
        """Submit the occurrences missing between two past times, and return their ids."""
        return self._send(backfill_schedule(schedule, start_at, end_at))

    def list_schedule_tasks(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Task]:
        """Return a page of the tasks that a schedule has submitted, newest fire time first."""
        return self._send(list_schedule_tasks(schedule, limit, cursor))

    def list_occurrences(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Occurrence]:
        """Return a page of past occurrences, newest first.

        Each has the task or graph that it submitted, or the reason why there is none.
        """
        return self._send(list_occurrences(schedule, limit, cursor))

    def next_times(
        self, schedule: str, *, count: int | None = None, after: Instant | None = None
    ) -> list[str]:
        """Return the next `count` fire times of a schedule, by default ten."""
        return self._send(next_times(schedule, count, after))

    def preview_schedule(
        self,
        *,
        count: int | None = None,
        after: Instant | None = None,
        **fields: Unpack[ScheduleFields],
    ) -> list[str]:
        """Return the fire times that such a schedule would have, without creating it."""
        return self._send(preview_schedule(count, after, fields))


class AsyncScheduleMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def create_schedule(self, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Create a schedule: `create_schedule(daily="06:30", task={"command": ["./report"]})`."""
        return await self._send(create_schedule(fields))

    async def put_schedule(self, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Create the schedule with its `name`, or update the newest one if it differs.

        Names are not unique: two processes that do this for the first time at the same instant
        create two schedules.
        """
        cursor: str | None = None
        while True:
            page = await self.list_schedules(limit=PAGE_SIZE, cursor=cursor)
            for schedule in page["items"]:
                if schedule["name"] == fields.get("name"):
                    if has_fields(schedule, fields):
                        return schedule
                    return await self.update_schedule(schedule["id"], **fields)
            cursor = page["next_cursor"]
            if cursor is None:
                return await self.create_schedule(**fields)

    async def list_schedules(
        self,
        *,
        user: str | None = None,
        due_before: Instant | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Schedule]:
        """Return a page of schedules, newest first."""
        return await self._send(list_schedules(user, due_before, limit, cursor))

    async def get_schedule(self, schedule: str) -> Schedule:
        """Return a schedule."""
        return await self._send(get_schedule(schedule))

    async def update_schedule(self, schedule: str, **fields: Unpack[ScheduleChanges]) -> Schedule:
        """Update a schedule, or only its `next_run_at`; None resets a field to its default."""
        return await self._send(update_schedule(schedule, fields))

    async def pause_schedule(self, schedule: str) -> Schedule:
        """Pause a schedule: it does not fire until it is resumed."""
        return await self._send(pause_schedule(schedule))

    async def resume_schedule(self, schedule: str) -> Schedule:
        """Resume a paused schedule, from its next fire time on."""
        return await self._send(resume_schedule(schedule))

    async def remove_schedule(self, schedule: str) -> None:
        """Remove a schedule; tasks that it has submitted are not affected."""
        await self._send(remove_schedule(schedule))

    async def run_schedule(self, schedule: str) -> Task | GraphIds:
        """Submit the schedule's task now, in addition to its fire times.

        Returns the task, or for a graph the ids of its tasks.
        """
        return await self._send(run_schedule(schedule))

    async def backfill_schedule(
        self, schedule: str, start_at: Instant, end_at: Instant
    ) -> list[str]:
        """Submit the occurrences missing between two past times, and return their ids."""
        return await self._send(backfill_schedule(schedule, start_at, end_at))

    async def list_schedule_tasks(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Task]:
        """Return a page of the tasks that a schedule has submitted, newest fire time first."""
        return await self._send(list_schedule_tasks(schedule, limit, cursor))

    async def list_occurrences(
        self, schedule: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Occurrence]:
        """Return a page of past occurrences, newest first.

        Each has the task or graph that it submitted, or the reason why there is none.
        """
        return await self._send(list_occurrences(schedule, limit, cursor))

    async def next_times(
        self, schedule: str, *, count: int | None = None, after: Instant | None = None
    ) -> list[str]:
        """Return the next `count` fire times of a schedule, by default ten."""
        return await self._send(next_times(schedule, count, after))

    async def preview_schedule(
        self,
        *,
        count: int | None = None,
        after: Instant | None = None,
        **fields: Unpack[ScheduleFields],
    ) -> list[str]:
        """Return the fire times that such a schedule would have, without creating it."""
        return await self._send(preview_schedule(count, after, fields))
