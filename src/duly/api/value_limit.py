"""Bounds the memory that decoding a body takes, before any of it is decoded.

A JSON value can be two bytes on the wire (`1,`) and is some hundred in memory, so that a limit
on bytes alone lets a request take thirty times its size and more. Values are therefore
counted first. Every value but the first follows a comma or begins a list or an object, so
these three characters bound their number; a body in which there are many is scanned once more
for those outside of strings.
"""

import re

from duly.errors import TooLarge

STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
SEPARATED = rb'(?:[^",\[{]*+(?:%b[^",\[{]*+)*+[,\[{]){%d}+'
"""Possessive throughout: it neither backtracks nor remembers, whatever it is given."""


class ValueLimit:
    """How many values a body may hold."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._more = re.compile(SEPARATED % (STRING, most), re.DOTALL)

    def holds(self, body: bytes) -> bool:
        """Say whether `body` holds no more values than it may."""
        # A value has two bytes at least, its comma included.
        if len(body) <= 2 * self.most:
            return True
        if body.count(b",") + body.count(b"[") + body.count(b"{") < self.most:
            return True
        return self._more.match(body) is None

    def exceeded(self, what: str) -> TooLarge:
        """Return what to answer if `what` holds more values than it may."""
        return TooLarge(f"{what} may hold at most {self.most} values.", limit=self.most)


ONE_THING = ValueLimit(50_000)
"""More than a task has with as many arguments, variables and upstreams as it may have."""
GRAPH_OF_A_SCHEDULE = ValueLimit(100_000)
