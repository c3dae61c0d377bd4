"""Headers that tell a limited tenant where it stands: RateLimit-Limit, -Remaining, -Reset.

These three are what clients read today; the newer draft with one structured field is
understood by few of them. The limit is the burst, what remains are whole tasks, and the
reset is the number of seconds until the bucket is full again.
"""

from math import ceil

from duly.api.answer import Answer
from duly.model.tenant import Credential
from duly.server.parts import Parts


def rate_headers(parts: Parts, credential: Credential) -> dict[str, str]:
    """Return the headers for a tenant; none if its plan has no rate, or nothing is known here."""
    left = parts.rate_limiter.left(credential)
    if left is None:
        return {}
    burst = left.rate.burst
    return {
        "ratelimit-limit": str(burst),
        "ratelimit-remaining": str(max(0, int(left.tokens))),
        "ratelimit-reset": str(ceil((burst - left.tokens) / left.rate.per_second)),
    }


def with_rate(answer: Answer, parts: Parts, credential: Credential) -> Answer:
    """Add the headers to an answer."""
    if credential.plan.burst is not None:
        headers = rate_headers(parts, credential)
        answer.headers += [(name.encode(), value.encode()) for name, value in headers.items()]
    return answer
