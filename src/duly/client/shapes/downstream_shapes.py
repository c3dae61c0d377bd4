"""JSON types of downstreams: the limits of what tasks call."""

from typing import TypedDict


class DownstreamFields(TypedDict, total=False):
    """The limits of a key: a rate like 100/s, 30/m or 1000/h, a concurrency, or both."""

    rate: str | None
    concurrency: int | None
    adaptive: bool
    everyone: bool


class Downstream(TypedDict):
    """A key with limits; `defined_by` is tenant or everyone."""

    key: str
    defined_by: str
    rate: str | None
    concurrency: int | None
    adaptive: bool
    current_rate: str | None
    current_concurrency: int | None
    running: int
    waiting: int
    throttled_at: str | None
    retry_at: str | None
