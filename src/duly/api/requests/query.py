"""Parses and checks query parameters.

An unknown parameter is refused: a filter that is silently ignored would list, or cancel, more
than was meant.
"""

import base64
import binascii
import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import parse_qsl

from starlette.requests import Request

from duly.api.routes import Operation
from duly.duration import parse_duration, parse_time
from duly.errors import Invalid
from duly.model.requests.texts import check_text
from duly.model.task import Outcome, Status
from duly.model.wording import either
from duly.store import database
from duly.store.database import Connection
from duly.store.tasks.views import MAX_ID, TaskFilter

DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
MAX_TIME_CHARACTERS = 100
"""Bounds the time that matching the duration pattern takes."""
DURATION_PATTERN = re.compile(r"[\d.]+(ms|[smhdw])?([\d.]+(ms|[smhdw]))*|[pP].*")


class Query:
    """The query parameters of one request, by name."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    @property
    def names(self) -> set[str]:
        """Return the names of the parameters that were given."""
        return set(self._values)

    def get_all(self, name: str) -> Sequence[str]:
        """Return every value of a parameter."""
        return self._values.get(name, ())

    def get(self, name: str) -> str | None:
        """Return the value of a parameter; raises Invalid if it is given more than once."""
        values = self._values.get(name, ())
        if len(values) > 1:
            raise Invalid(name, "it is given more than once. Give it once.")
        return values[0] if values else None

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return a parameter as an integer between `low` and `high`."""
        text = self.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise Invalid(name, f"{text[:40]!r} is not a whole number from {low} to {high}.")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return a boolean parameter, false by default."""
        text = self.get(name)
        if text not in (None, "true", "false"):
            raise Invalid(name, f"{text[:40]!r} is unknown. Use true or false.")
        return text == "true"

    def limit(self, default: int | None = None) -> int:
        """Return the requested size of a page."""
        return self.integer("limit", 1, MAX_LIMIT) or default or DEFAULT_LIMIT

    def before_id(self) -> int:
        """Return the exclusive upper bound of the page's ids, from its cursor."""
        text = self.get("cursor")
        return MAX_ID if text is None else decode_cursor(text)

    def after_number(self) -> int:
        """Return the exclusive lower bound of the page's numbers, from its cursor."""
        text = self.get("cursor")
        return 0 if text is None else decode_cursor(text)


def parent_of(query: Query) -> int | None:
    """Return the task whose children are asked for; raises Invalid if other filters are given."""
    text = query.get("parent")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Invalid("parent", f"{text[:40]!r} is not the id of a task.")
    if others := query.names - {"parent", "limit", "cursor", "tenant"}:
        raise Invalid(min(others), "it cannot be combined with parent. Leave one of them out.")
    return int(text)


def query_of(request: Request) -> Query:
    """Return the query parameters; raises Invalid for one that the route does not declare."""
    raw = request.scope["query_string"]
    operation: Operation = request.scope["route"].operation
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name not in operation.parameter_names and name != "tenant":
            near = difflib.get_close_matches(name[:60], operation.parameter_names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise Invalid(name[:60], f"there is no such parameter.{hint}")
        values.setdefault(name, []).append(check_text(value, name))
    return Query(values)


def encode_cursor(task_id: int) -> str:
    """Return an opaque cursor for the page after `task_id`."""
    return base64.urlsafe_b64encode(task_id.to_bytes(8)).decode().rstrip("=")


def decode_cursor(text: str) -> int:
    """Return the id in a cursor; raises Invalid unless `encode_cursor` made it."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 8 or int.from_bytes(raw) > MAX_ID:
        raise Invalid("cursor", "it is not the next_cursor of an earlier response.")
    return int.from_bytes(raw)


def parse_statuses(values: Sequence[str]) -> frozenset[Status]:
    """Parse statuses, which may be repeated or comma-separated."""
    names = [name.strip() for value in values for name in value.split(",")]
    unknown = [name for name in names if name not in list(Status)]
    if unknown:
        raise Invalid("status", f"there is no status {unknown[0][:40]!r}. Use {either(Status)}.")
    return frozenset(Status(name) for name in names)


def parse_outcomes(values: Sequence[str]) -> frozenset[Outcome]:
    """Parse outcomes, which may be repeated or comma-separated."""
    names = [name.strip() for value in values for name in value.split(",")]
    unknown = [name for name in names if name not in list(Outcome)]
    if unknown:
        raise Invalid("outcome", f"there is no outcome {unknown[0][:40]!r}. Use {either(Outcome)}.")
    return frozenset(Outcome(name) for name in names)


def parse_labels(values: Sequence[str]) -> dict[str, str]:
    """Parse labels of the form key=value, all of which a task must have."""
    labels: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise Invalid("label", f"{value[:60]!r} is not a label. Write it like NAME=VALUE.")
        if labels.setdefault(name, text) != text:
            raise Invalid(
                "label", f"the label {name[:60]!r} is given twice. No task has two values of it."
            )
    return labels


async def parse_since(conn: Connection, text: str | None, field: str = "since") -> datetime | None:
    """Parse a time, or a duration before now by PostgreSQL's clock."""
    if text is None:
        return None
    if len(text) <= MAX_TIME_CHARACTERS and DURATION_PATTERN.fullmatch(text.strip()):
        return await database.now(conn) - parse_duration(text, field)
    return parse_time(text.replace(" ", "+"), field)


async def parse_task_filter(
    conn: Connection, query: Query, *, matches_refs: bool = False
) -> TaskFilter:
    """Parse the query parameters that filter tasks; a list also finds refs by `name`."""
    statuses = parse_statuses(query.get_all("status"))
    overdue = query.flag("overdue")
    return TaskFilter(
        statuses=frozenset({Status.WAITING}) if overdue and not statuses else statuses,
        name=query.get("name"),
        matches_refs=matches_refs,
        labels=parse_labels(query.get_all("label")),
        user=query.get("user"),
        node=query.get("node"),
        since=await parse_since(conn, query.get("since")),
        overdue=overdue,
    )
