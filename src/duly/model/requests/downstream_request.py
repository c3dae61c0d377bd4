"""The request that sets the limits of a downstream."""

import msgspec

from duly.errors import Invalid
from duly.model.queues.downstream import MAX_CONCURRENCY, parse_rate


class DownstreamRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PUT /v1/downstreams/{key}; only an administrator may set `everyone`."""

    rate: str | None = None
    """Tasks that may start, like 100/s, 30/m or 1000/h."""
    concurrency: int | None = None
    adaptive: bool = True
    everyone: bool = False


def check_limits(request: DownstreamRequest) -> tuple[float | None, int | None]:
    """Return the rate per second and the concurrency; raises Invalid unless one is given."""
    rate = None if request.rate is None else parse_rate(request.rate)
    most = request.concurrency
    if most is not None and not 1 <= most <= MAX_CONCURRENCY:
        raise Invalid("concurrency", f"{most} is not a whole number from 1 to {MAX_CONCURRENCY}.")
    if rate is None and most is None:
        raise Invalid("rate", "there is nothing to limit. Give a rate, a concurrency, or both.")
    return rate, most
