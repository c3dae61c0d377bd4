"""Pages of lists that are read as a whole, because they are short or computed.

A cursor names the last item of its page by a key, so that items which come or go elsewhere in the
list neither repeat nor hide others.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

from duly.api.requests.query import Query
from duly.errors import Invalid

T = TypeVar("T")


def page_of(
    items: Sequence[T], query: Query, key: Callable[[T], str], *, default_limit: int | None = None
) -> tuple[Sequence[T], str | None]:
    """Return the page of `items` that a query asks for, and the cursor of the next one."""
    limit = query.limit(default_limit)
    first = _position_after(items, query.get("cursor"), key)
    page = items[first : first + limit]
    return page, _encode(key(page[-1])) if first + limit < len(items) else None


def _position_after(items: Sequence[T], cursor: str | None, key: Callable[[T], str]) -> int:
    if cursor is None:
        return 0
    last = _decode(cursor)
    for position, item in enumerate(items):
        if key(item) == last:
            return position + 1
    raise Invalid(
        "cursor", "the list no longer has the item where the last page ended. Start anew."
    )


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    try:
        return base64.b64decode(
            cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        ).decode()
    except (binascii.Error, ValueError):
        raise Invalid("cursor", "it is not the next_cursor of an earlier response.") from None
