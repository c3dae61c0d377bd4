import asyncio

import pytest

from duly.http.write_coalescing import CoalescingTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """Where a transport would write to."""

    def __init__(self):
        self.written = []
        self.closed_after = None

    def write(self, data):
        self.written.append(data)

    def close(self):
        self.closed_after = len(self.written)

    def is_closing(self):
        return self.closed_after is not None


@pytest.fixture
async def wire():
    return Wire()


@pytest.fixture
async def transport(wire):
    return CoalescingTransport(wire, asyncio.get_running_loop())


async def test_a_head_and_its_body_are_written_at_once(transport, wire):
    for _ in range(2):
        transport.write(HEAD)
        assert not wire.written
        transport.write(b"hello")
        assert wire.written.pop() == HEAD + b"hello"
    await asyncio.sleep(0)
    assert not wire.written


async def test_a_head_whose_body_comes_later_goes_ahead(transport, wire):
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert wire.written == [HEAD]
    transport.write(b"hello")
    assert wire.written == [HEAD, b"hello"]


async def test_nothing_is_held_back_from_a_connection_that_closes(transport, wire):
    transport.write(HEAD)
    transport.close()
    assert (wire.written, wire.closed_after) == ([HEAD], 1)
    assert transport.is_closing()


async def test_an_empty_body_sends_the_head(transport, wire):
    transport.write(HEAD)
    transport.write(b"")
    assert wire.written == [HEAD]
