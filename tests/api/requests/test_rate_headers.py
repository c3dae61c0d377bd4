"""What answers tell of the rate, without a server around it."""

from types import SimpleNamespace

import pytest
from starlette.responses import Response

from duly.api.rate_headers import with_rate
from duly.model.bucket import Bucket, Rate
from duly.server import rate_limiter
from duly.server.rate_limiter import RateLimiter

CALLER = SimpleNamespace(tenant_id=1, plan=SimpleNamespace(burst=10, tasks_per_hour=3600))


@pytest.fixture
def parts():
    return SimpleNamespace(rate_limiter=RateLimiter())


def note(parts, tokens):
    parts.rate_limiter.note({1: Bucket(Rate(3600, 10), tokens, None)})


def told(parts):
    headers = with_rate(Response(), parts, CALLER).raw_headers[1:]
    return {name.decode(): int(value) for name, value in headers}


def test_who_is_answered_after_one_commit_is_told_what_it_left(parts):
    note(parts, 4.0)
    first = told(parts)
    assert first == {"ratelimit-limit": 10, "ratelimit-remaining": 4, "ratelimit-reset": 6}
    assert told(parts) == first
    note(parts, 3.0)
    assert told(parts) == first | {"ratelimit-remaining": 3, "ratelimit-reset": 7}


def test_who_is_answered_later_is_told_what_has_come_since(parts, monkeypatch):
    note(parts, 4.0)
    told(parts)
    seen = parts.rate_limiter._remembered[1].seen
    monkeypatch.setattr(rate_limiter.clock, "monotonic", lambda: seen + 2.5)
    assert told(parts) == {"ratelimit-limit": 10, "ratelimit-remaining": 6, "ratelimit-reset": 4}
