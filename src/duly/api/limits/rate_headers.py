"""The RateLimit-Limit, -Remaining and -Reset headers of a rate-limited tenant.

Clients read these three today; few understand the newer draft with one structured field. The
limit is the burst, the remainder is in whole tasks, and the reset is the number of seconds until
the token bucket is full again.
"""

from collections.abc import Mapping
from math import ceil

from starlette.responses import Response

from duly.model.tenant import Credential
from duly.server.components import Components


def rate_headers(components: Components, credential: Credential) -> dict[str, str]:
    """Return the headers for a tenant; none if its plan has no rate or its bucket is not cached."""
    remaining = components.rate_limiter.remaining(credential)
    if remaining is None:
        return {}
    full_in = (remaining.rate.burst - remaining.tokens) / remaining.rate.per_second
    return bucket_headers(remaining.rate.burst, max(0, int(remaining.tokens)), full_in)


def bucket_headers(burst: int, left: int, full_in: float) -> dict[str, str]:
    """Return the headers for a bucket with `left` tokens that is full in `full_in` seconds."""
    return {
        "ratelimit-limit": str(burst),
        "ratelimit-remaining": str(left),
        "ratelimit-reset": str(ceil(full_in)),
    }


def with_rate_headers(
    response: Response, components: Components, credential: Credential
) -> Response:
    """Add the caller's rate headers to a response, and return it."""
    add_headers(response, rate_headers(components, credential))
    return response


def add_headers(response: Response, headers: Mapping[str, str]) -> None:
    """Add headers to a response."""
    response.raw_headers += [(name.encode(), value.encode()) for name, value in headers.items()]
