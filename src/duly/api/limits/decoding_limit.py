"""Limits the number of JSON values in a body before it is decoded, which bounds its memory.

A value can be two bytes on the wire (`1,`) and about a hundred in memory, so with a limit on
bytes alone a request could take thirty times its size. Every value but the first follows a comma
or begins a list or an object, so the count of these three characters is an upper bound; a body
with many of them is scanned again for those outside of strings.
"""

import re

from duly.errors import TooLarge

STRING_PATTERN = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
SEPARATORS_PATTERN = rb'(?:[^",\[{]*+(?:%b[^",\[{]*+)*+[,\[{]){%d}+'
"""Possessive throughout, so that no input makes it backtrack."""


class DecodingLimit:
    """The maximum number of JSON values in a body."""

    def __init__(self, max_values: int) -> None:
        self.max_values = max_values
        self._exceeds = re.compile(SEPARATORS_PATTERN % (STRING_PATTERN, max_values), re.DOTALL)

    def allows(self, body: bytes) -> bool:
        """Return True if `body` has at most `max_values` values."""
        # A value takes at least two bytes, with its comma.
        if len(body) <= 2 * self.max_values:
            return True
        if body.count(b",") + body.count(b"[") + body.count(b"{") < self.max_values:
            return True
        return self._exceeds.match(body) is None

    def error(self, subject: str, **details: str) -> TooLarge:
        """Return the error for a `subject` with too many values."""
        return TooLarge(
            f"{subject} has more than {self.max_values} values, which is the limit.",
            limit=self.max_values,
            **details,
        )


SINGLE_REQUEST_LIMIT = DecodingLimit(50_000)
"""More than a task with the maximum of arguments, variables and upstreams has."""
SCHEDULE_GRAPH_LIMIT = DecodingLimit(100_000)
