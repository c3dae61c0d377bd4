"""The rate headers, tested without a server."""

from types import SimpleNamespace

import pytest
from starlette.responses import Response

from duly.api.limits.rate_headers import with_rate_headers
from duly.model.bucket import Bucket, Rate
from duly.server.admission import rate_limiter
from duly.server.admission.rate_limiter import RateLimiter

CALLER = SimpleNamespace(tenant_id=1, plan=SimpleNamespace(burst=10, tasks_per_hour=3600))


@pytest.fixture
def components():
    return SimpleNamespace(rate_limiter=RateLimiter())


def note(components, tokens):
    components.rate_limiter.observe({1: Bucket(Rate(3600, 10), tokens, None)})


def told(components):
    headers = with_rate_headers(Response(), components, CALLER).raw_headers[1:]
    return {name.decode(): int(value) for name, value in headers}


def test_who_is_answered_after_one_commit_is_told_what_it_left(components):
    note(components, 4.0)
    first = told(components)
    assert first == {"ratelimit-limit": 10, "ratelimit-remaining": 4, "ratelimit-reset": 6}
    assert told(components) == first
    note(components, 3.0)
    assert told(components) == first | {"ratelimit-remaining": 3, "ratelimit-reset": 7}


def test_who_is_answered_later_is_told_what_has_come_since(components, monkeypatch):
    note(components, 4.0)
    told(components)
    seen = components.rate_limiter._cache[1].cached_at
    monkeypatch.setattr(rate_limiter.clock, "monotonic", lambda: seen + 2.5)
    assert told(components) == {
        "ratelimit-limit": 10,
        "ratelimit-remaining": 6,
        "ratelimit-reset": 4,
    }
