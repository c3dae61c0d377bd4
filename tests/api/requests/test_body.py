"""Request bodies that arrive whole, in chunks, or never."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from duly.api.limits import slow_bodies
from duly.api.requests import body
from duly.errors import Malformed, TooLarge


def request_of(*pieces: bytes | None, more: bool = False) -> Request:
    """Return a request whose body comes in `pieces`; None stands for a client that hangs up."""
    coming = list(pieces)

    async def receive() -> dict[str, Any]:
        if not coming:
            await asyncio.Event().wait()
        piece = coming.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": more or bool(coming)}

    return Request({"type": "http", "headers": []}, receive)


@pytest.mark.parametrize("pieces", [(b"",), (b"abc",), (b"", b"abc"), (b"ab", b"", b"cd")])
async def test_a_body_is_the_sum_of_its_pieces(pieces):
    assert await body.read_body(request_of(*pieces), 4) == b"".join(pieces)


@pytest.mark.parametrize("pieces", [(b"abcde",), (b"ab", b"cde"), (b"abcd", b"e", b"")])
async def test_a_body_beyond_the_limit_is_refused(pieces):
    with pytest.raises(TooLarge):
        await body.read_body(request_of(*pieces), 4)


@pytest.mark.parametrize("pieces", [(), (b"ab",)])
async def test_a_body_that_does_not_come_is_given_up(pieces, monkeypatch):
    monkeypatch.setattr(slow_bodies, "RATE_WINDOW_SECONDS", 0.01)
    with pytest.raises(Malformed, match="stopped before its end"):
        await body.read_body(request_of(*pieces, more=True), 4)


@pytest.mark.parametrize("first", [b"", b"a" * 2**20])
async def test_a_body_that_comes_drop_by_drop_is_given_up_however_fast_it_began(first, monkeypatch):
    pieces = [first]

    async def drop() -> dict[str, Any]:
        await asyncio.sleep(0.001)
        piece = pieces.pop() if pieces else b"a"
        return {"type": "http.request", "body": piece, "more_body": True}

    monkeypatch.setattr(slow_bodies, "RATE_WINDOW_SECONDS", 0.05)
    monkeypatch.setattr(body, "MIN_BODY_RATE", 10**6)
    with pytest.raises(Malformed, match="too slowly"):
        async with asyncio.timeout(10):
            await body.read_body(Request({"type": "http", "headers": []}, drop), 10**9)


async def test_a_small_body_has_to_begin_soon(monkeypatch):
    monkeypatch.setattr(slow_bodies, "FIRST_BYTE_SECONDS", 0.01)
    request = request_of()
    request.scope["headers"] = [(b"content-length", b"10")]
    with pytest.raises(Malformed, match="stopped before its end"):
        async with asyncio.timeout(10):
            await body.read_body(request, 100)


@pytest.mark.parametrize("pieces", [(None,), (b"ab", None)])
async def test_a_client_that_hangs_up_has_sent_no_body(pieces):
    with pytest.raises(Malformed, match="disconnected"):
        await body.read_body(request_of(*pieces), 4)
