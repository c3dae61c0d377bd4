"""Both transports against a server that fails in the ways that networks do."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest

from duly.client.aio import AsyncClient
from duly.client.retry import Patience
from duly.client.sync import Client
from duly.errors import DulyError, LimitExceeded, Unavailable, Unreachable

from .scripted import CLOSE, chunked, free_port, response, scripted

QUICK = Patience(timedelta(seconds=5), timedelta(milliseconds=1), timedelta(milliseconds=5))
TASK = json.dumps({"id": "7", "status": "running", "attempt": 1}).encode()
DONE = json.dumps({"id": "7", "status": "done", "attempt": 1}).encode()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Make one call with either client: `await call(url, "get_task", "7")`."""

    async def run(url, method, *args, patience=QUICK, key="k", **options):
        if request.param == "sync":
            with Client(url, key, patience=patience) as client:
                outcome = getattr(client, method)(*args, **options)
                return list(outcome) if hasattr(outcome, "__next__") else outcome
        async with AsyncClient(url, key, patience=patience) as client:
            outcome = getattr(client, method)(*args, **options)
            if hasattr(outcome, "__aiter__"):
                return [item async for item in outcome]
            return await outcome

    return run


async def test_a_call_sends_the_key_and_reads_the_response(call):
    with scripted(response(200, TASK)) as peer:
        assert (await call(peer.url, "get_task", "7"))["id"] == "7"
    assert peer.lines() == ["GET /v1/tasks/7 HTTP/1.1"]
    assert b"\r\nAuthorization: Bearer k\r\n" in peer.requests[0]


async def test_a_submission_without_a_response_is_retried_with_the_same_key(call):
    with scripted(CLOSE, response(503), response(201, TASK)) as peer:
        await call(peer.url, "submit", command=["true"])
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in peer.requests]
    assert len(bodies) == 3
    assert bodies[0]["idempotency_key"]
    assert bodies[0] == bodies[1] == bodies[2]


async def test_a_replay_without_a_response_is_not_retried(call):
    with (
        scripted(CLOSE, response(201, TASK)) as peer,
        pytest.raises(Unreachable, match="may have been carried out"),
    ):
        await call(peer.url, "replay_task", "7")
    assert len(peer.requests) == 1


async def test_a_replay_that_a_busy_server_rejects_is_not_retried(call):
    with scripted(response(503), response(201, TASK)) as peer, pytest.raises(Unavailable):
        await call(peer.url, "replay_task", "7")
    assert len(peer.requests) == 1


async def test_a_call_fails_over_when_a_server_is_down(call):
    with scripted(response(200, TASK)) as peer:
        urls = f"http://127.0.0.1:{free_port()},{peer.url}"
        assert (await call(urls, "get_task", "7"))["id"] == "7"


async def test_a_call_fails_over_from_a_stopped_server_even_after_the_patience_is_used_up(call):
    patience = Patience(timedelta(seconds=0.1), silence=timedelta(seconds=0.2))
    with socket.create_server(("127.0.0.1", 0)) as stopped, scripted(response(201, TASK)) as peer:
        urls = f"http://127.0.0.1:{stopped.getsockname()[1]},{peer.url}"
        task = await call(urls, "submit", command=["true"], patience=patience)
    assert task["id"] == "7"


async def test_an_unreachable_server_is_named_in_the_error(call):
    url = f"http://127.0.0.1:{free_port()}"
    brief = Patience(timedelta(milliseconds=20), timedelta(milliseconds=1))
    with pytest.raises(Unreachable, match=f"{url}: the connection was refused"):
        await call(url, "status", patience=brief)


async def test_an_unresolvable_host_name_is_reported(call):
    with pytest.raises(Unreachable, match="cannot be resolved"):
        await call("http://name.invalid", "status", patience=Patience(timedelta(0)))


async def test_a_short_rate_limit_is_waited_for(call):
    with scripted(response(429, b"{}", "Retry-After: 0"), response(201, TASK)) as peer:
        await call(peer.url, "replay_task", "7")
    assert len(peer.requests) == 2


async def test_the_retry_after_of_a_busy_server_is_respected(call):
    with scripted(response(503, b"{}", "Retry-After: 1"), response(201, TASK)) as peer:
        since = time.monotonic()
        await call(peer.url, "submit", command=["true"])
    assert len(peer.requests) == 2
    assert time.monotonic() - since >= 1


async def test_a_long_rate_limit_is_raised(call):
    long = response(429, b"{}", "Retry-After: 3000")
    with scripted(long) as peer, pytest.raises(LimitExceeded) as caught:
        await call(peer.url, "submit", command=["true"])
    assert caught.value.retry_after == timedelta(seconds=3000)


async def test_a_redirect_is_not_followed_with_the_key(call):
    away = response(302, b"", "Location: http://elsewhere.invalid/")
    with scripted(away) as peer, pytest.raises(DulyError, match="302"):
        await call(peer.url, "status")


async def test_wait_returns_when_the_task_has_ended(call):
    with scripted(response(200, TASK), response(200, TASK), response(200, DONE)) as peer:
        assert (await call(peer.url, "wait", "7"))["status"] == "done"
    assert set(peer.lines()) == {"GET /v1/tasks/7?wait=25 HTTP/1.1"}


async def test_wait_raises_after_its_timeout(call):
    with scripted(response(200, TASK)) as peer, pytest.raises(TimeoutError, match="still running"):
        await call(peer.url, "wait", "7", timeout=0)


async def test_iteration_reads_every_page(call):
    first = json.dumps({"items": [{"id": "2"}], "next_cursor": "c"}).encode()
    last = json.dumps({"items": [{"id": "1"}], "next_cursor": None}).encode()
    with scripted(response(200, first), response(200, last)) as peer:
        tasks = await call(peer.url, "iter_tasks", status="done")
    assert [task["id"] for task in tasks] == ["2", "1"]
    assert peer.lines()[1] == "GET /v1/tasks?status=done&limit=500&cursor=c HTTP/1.1"


async def test_following_a_log_resumes_at_its_offset_after_a_broken_connection(call):
    script = (
        response(200, TASK),
        chunked(b"one\n", b"tw", whole=False),
        chunked(b"one\ntwo\n", whole=False),
        chunked(b"one\n", b"two\nthree\n"),
        response(200, DONE),
    )
    with scripted(*script) as peer:
        assert b"".join(await call(peer.url, "follow_logs", "7")) == b"one\ntwo\nthree\n"
    assert peer.lines()[1] == "GET /v1/tasks/7/logs?attempt=1&follow=true HTTP/1.1"


async def test_following_a_log_continues_with_the_next_attempt(call):
    second = json.dumps({"id": "7", "status": "done", "attempt": 2}).encode()
    script = (
        response(200, TASK),
        chunked(b"first\n"),
        response(200, TASK),
        chunked(b"second\n"),
        response(200, second),
    )
    with scripted(*script) as peer:
        assert b"".join(await call(peer.url, "follow_logs", "7")) == b"first\nsecond\n"
    assert "attempt=2" in peer.lines()[3]


async def test_following_a_log_ends_when_no_further_attempt_follows(call):
    script = (
        response(200, TASK),
        chunked(b"first\n"),
        response(200, TASK),
        response(404),
        response(200, DONE),
    )
    with scripted(*script) as peer:
        assert b"".join(await call(peer.url, "follow_logs", "7")) == b"first\n"


async def test_cancelling_by_filter_repeats_until_nothing_is_left(call):
    more = json.dumps({"cancelled": 500, "more": True}).encode()
    rest = json.dumps({"cancelled": 3, "more": False}).encode()
    with scripted(response(200, more), response(200, rest)) as peer:
        assert await call(peer.url, "cancel_tasks", name="x") == 503


@contextmanager
def keeping_alive(*counts: int):
    """Serve connections one after the other, each for that many responses; yield the URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for count in counts:
            connection, _ = listener.accept()
            with connection:
                for _ in range(count):
                    connection.recv(65536)
                    connection.sendall(response(200, TASK))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def test_the_sync_client_reuses_a_connection():
    with keeping_alive(2) as url, Client(url) as client:
        assert [client.get_task("7")["id"], client.get_task("7")["id"]] == ["7", "7"]


async def test_the_async_client_reuses_a_connection():
    with keeping_alive(2) as url:
        async with AsyncClient(url) as client:
            ids = [(await client.get_task("7"))["id"], (await client.get_task("7"))["id"]]
    assert ids == ["7", "7"]


def test_an_async_client_can_be_used_in_consecutive_event_loops():
    with keeping_alive(1, 1) as url:
        client = AsyncClient(url, patience=Patience(timedelta(0)))
        ids = [asyncio.run(_get_and_close(client)) for _ in range(2)]
    assert ids == ["7", "7"]


async def _get_and_close(client: AsyncClient) -> str:
    async with client:
        return (await client.get_task("7"))["id"]


async def test_a_cancelled_call_does_not_leave_its_connection_in_the_pool():
    received = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            silent, _ = listener.accept()
            silent.recv(65536)
            received.set()
            connection, _ = listener.accept()
            with connection, silent:
                connection.recv(65536)
                connection.sendall(response(200, TASK))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        async with AsyncClient(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(client.status())
                await asyncio.to_thread(received.wait, 10)
                waiting.cancel()
            assert (await client.get_task("7"))["id"] == "7"
        thread.join(10)
