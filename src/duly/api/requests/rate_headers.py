"""Headers that tell a limited tenant where it stands: RateLimit-Limit, -Remaining, -Reset.

These three are what clients read today; the newer draft with one structured field is
understood by few of them. The limit is the burst, what remains are whole tasks, and the
reset is the number of seconds until the bucket is full again.
"""

from collections.abc import Mapping
from math import ceil

from starlette.responses import Response

from duly.model.tenant import Credential
from duly.server.parts import Parts


def rate_headers(parts: Parts, credential: Credential) -> dict[str, str]:
    """Return the headers for a tenant; none if its plan has no rate, or nothing is known here."""
    left = parts.rate_limiter.left(credential)
    if left is None:
        return {}
    full_in = (left.rate.burst - left.tokens) / left.rate.per_second
    return headers_of(left.rate.burst, max(0, int(left.tokens)), full_in)


def headers_of(burst: int, left: int, full_in: float) -> dict[str, str]:
    """Return the headers for a bucket with so many tasks left, full again in so many seconds."""
    return {
        "ratelimit-limit": str(burst),
        "ratelimit-remaining": str(left),
        "ratelimit-reset": str(ceil(full_in)),
    }


def with_rate(answer: Response, parts: Parts, credential: Credential) -> Response:
    """Add the headers to an answer."""
    add_headers(answer, rate_headers(parts, credential))
    return answer


def add_headers(answer: Response, headers: Mapping[str, str]) -> None:
    """Add headers to an answer."""
    answer.raw_headers += [(name.encode(), value.encode()) for name, value in headers.items()]
