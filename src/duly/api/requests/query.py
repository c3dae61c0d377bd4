"""Queries: the part of an address after the question mark, checked like a body.

A parameter that does not exist is refused: a filter that is silently ignored
would show, or cancel, more than was meant.
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
from duly.model.request import check_text
from duly.model.task import Status
from duly.store import database
from duly.store.database import Connection
from duly.store.views import LARGEST_ID, TaskFilter

DEFAULT_LIMIT = 50
MAX_LIMIT = 1000
LONGEST_TIME = 100
"""Characters of a time or a duration; matching takes long for a text of any length."""
DURATION = re.compile(r"[\d.]+(ms|[smhdw])?([\d.]+(ms|[smhdw]))*|[pP].*")


class Query:
    """The parameters of one request, by name."""

    def __init__(self, given: Mapping[str, Sequence[str]]) -> None:
        self._given = given

    def several(self, name: str) -> Sequence[str]:
        """Return every value of a parameter."""
        return self._given.get(name, ())

    def one(self, name: str) -> str | None:
        """Return the value of a parameter; raises Invalid when it is given more than once."""
        values = self._given.get(name, ())
        if len(values) > 1:
            raise Invalid(name, f"{name} may be given only once.")
        return values[0] if values else None

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return a parameter as a whole number between `low` and `high`."""
        text = self.one(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise Invalid(
                name, f"{name} is a whole number from {low} to {high}, not {text[:40]!r}."
            )
        return int(text)

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        text = self.one(name)
        if text not in (None, "true", "false"):
            raise Invalid(name, f"{name} is true or false, not {text[:40]!r}.")
        return text == "true"

    def limit(self) -> int:
        """Return how many items the caller asks for."""
        return self.integer("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT

    def before(self) -> int:
        """Return the id below which the page begins."""
        text = self.one("cursor")
        return LARGEST_ID if text is None else read_cursor(text)


def query_of(request: Request) -> Query:
    """Return the parameters of a request; raises Invalid for one that the route has not."""
    raw = request.scope["query_string"]
    operation: Operation = request.scope["route"].operation
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if name not in operation.names and name != "tenant":
            near = difflib.get_close_matches(name[:60], operation.names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise Invalid(name[:60], f"There is no parameter {name[:60]!r} here.{hint}")
        given.setdefault(name, []).append(check_text(value, name))
    return Query(given)


def write_cursor(task_id: int) -> str:
    """Return where the next page begins, in a form that says nothing."""
    return base64.urlsafe_b64encode(task_id.to_bytes(8)).decode().rstrip("=")


def read_cursor(text: str) -> int:
    """Read what `write_cursor` wrote."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 8 or int.from_bytes(raw) > LARGEST_ID:
        raise Invalid("cursor", "cursor must be the next_cursor of an earlier answer.")
    return int.from_bytes(raw)


def statuses(values: Sequence[str]) -> frozenset[Status]:
    """Read statuses, given one by one or in comma lists."""
    names = [name.strip() for value in values for name in value.split(",")]
    unknown = [name for name in names if name not in list(Status)]
    if unknown:
        raise Invalid(
            "status", f"There is no status {unknown[0][:40]!r}; there are {', '.join(Status)}."
        )
    return frozenset(Status(name) for name in names)


def labels(values: Sequence[str]) -> dict[str, str]:
    """Read labels of the form key=value; all of them must hold."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise Invalid("label", f"label has the form key=value, not {value[:60]!r}.")
        if found.setdefault(name, text) != text:
            raise Invalid("label", f"No task has two values of the label {name[:60]!r}.")
    return found


async def since(conn: Connection, text: str | None, field: str = "since") -> datetime | None:
    """Read a time, or a duration that is counted back from now by PostgreSQL's clock."""
    if text is None:
        return None
    if len(text) <= LONGEST_TIME and DURATION.fullmatch(text.strip()):
        return await database.now(conn) - parse_duration(text, field)
    return parse_time(text.replace(" ", "+"), field)


async def task_filter(conn: Connection, query: Query) -> TaskFilter:
    """Read which tasks are meant."""
    return TaskFilter(
        statuses=statuses(query.several("status")),
        name=query.one("name"),
        labels=labels(query.several("label")),
        user=query.one("user"),
        node=query.one("node"),
        since=await since(conn, query.one("since")),
    )
