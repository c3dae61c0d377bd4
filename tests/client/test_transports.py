"""Both transports against a peer that fails in the ways that networks do."""

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

from .scripted import CUT, answer, chunked, free_port, scripted

QUICK = Patience(timedelta(seconds=5), timedelta(milliseconds=1), timedelta(milliseconds=5))
TASK = json.dumps({"id": "7", "status": "running", "attempt": 1}).encode()
DONE = json.dumps({"id": "7", "status": "done", "attempt": 1}).encode()


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Make one call with either client: `await call(url, "get_task", "7")`."""

    async def run(url, method, *args, patience=QUICK, key="k", **options):
        if request.param == "sync":
            with Client(url, key, patience=patience) as client:
                found = getattr(client, method)(*args, **options)
                return list(found) if hasattr(found, "__next__") else found
        async with AsyncClient(url, key, patience=patience) as client:
            found = getattr(client, method)(*args, **options)
            if hasattr(found, "__aiter__"):
                return [item async for item in found]
            return await found

    return run


async def test_a_call_carries_the_key_and_reads_the_answer(call):
    with scripted(answer(200, TASK)) as peer:
        assert (await call(peer.url, "get_task", "7"))["id"] == "7"
    assert peer.lines() == ["GET /v1/tasks/7 HTTP/1.1"]
    assert b"\r\nAuthorization: Bearer k\r\n" in peer.requests[0]


async def test_a_submission_whose_answer_was_lost_is_sent_again_with_the_same_key(call):
    with scripted(CUT, answer(503), answer(201, TASK)) as peer:
        await call(peer.url, "submit", command=["true"])
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in peer.requests]
    assert len(bodies) == 3
    assert bodies[0]["idempotency_key"]
    assert bodies[0] == bodies[1] == bodies[2]


async def test_a_replay_whose_answer_was_lost_is_not_sent_again(call):
    with scripted(CUT, answer(201, TASK)) as peer, pytest.raises(Unreachable, match="not known"):
        await call(peer.url, "replay_task", "7")
    assert len(peer.requests) == 1


async def test_a_replay_that_a_busy_server_answers_is_not_sent_again(call):
    with scripted(answer(503), answer(201, TASK)) as peer, pytest.raises(Unavailable):
        await call(peer.url, "replay_task", "7")
    assert len(peer.requests) == 1


async def test_when_a_server_is_gone_the_next_one_is_asked(call):
    with scripted(answer(200, TASK)) as peer:
        urls = f"http://127.0.0.1:{free_port()},{peer.url}"
        assert (await call(urls, "get_task", "7"))["id"] == "7"


async def test_when_a_server_is_stopped_the_next_one_is_asked_though_patience_is_over(call):
    patience = Patience(timedelta(seconds=0.1), silence=timedelta(seconds=0.2))
    with socket.create_server(("127.0.0.1", 0)) as stopped, scripted(answer(201, TASK)) as peer:
        urls = f"http://127.0.0.1:{stopped.getsockname()[1]},{peer.url}"
        task = await call(urls, "submit", command=["true"], patience=patience)
    assert task["id"] == "7"


async def test_a_server_that_cannot_be_reached_is_named(call):
    url = f"http://127.0.0.1:{free_port()}"
    brief = Patience(timedelta(milliseconds=20), timedelta(milliseconds=1))
    with pytest.raises(Unreachable, match=f"{url}: the connection was refused"):
        await call(url, "status", patience=brief)


async def test_a_name_that_does_not_resolve_is_said_so(call):
    with pytest.raises(Unreachable, match="not known"):
        await call("http://name.invalid", "status", patience=Patience(timedelta(0)))


async def test_a_limit_that_ends_soon_is_waited_for(call):
    with scripted(answer(429, b"{}", "Retry-After: 0"), answer(201, TASK)) as peer:
        await call(peer.url, "replay_task", "7")
    assert len(peer.requests) == 2


async def test_a_busy_server_is_given_the_time_that_it_asks_for(call):
    with scripted(answer(503, b"{}", "Retry-After: 1"), answer(201, TASK)) as peer:
        since = time.monotonic()
        await call(peer.url, "submit", command=["true"])
    assert len(peer.requests) == 2
    assert time.monotonic() - since >= 1


async def test_a_limit_that_lasts_is_told(call):
    long = answer(429, b"{}", "Retry-After: 3000")
    with scripted(long) as peer, pytest.raises(LimitExceeded) as caught:
        await call(peer.url, "submit", command=["true"])
    assert caught.value.retry_after == timedelta(seconds=3000)


async def test_a_redirect_is_not_followed_with_the_key(call):
    away = answer(302, b"", "Location: http://elsewhere.invalid/")
    with scripted(away) as peer, pytest.raises(DulyError, match="302"):
        await call(peer.url, "status")


async def test_waiting_goes_on_until_the_task_has_ended(call):
    with scripted(answer(200, TASK), answer(200, TASK), answer(200, DONE)) as peer:
        assert (await call(peer.url, "wait", "7"))["status"] == "done"
    assert set(peer.lines()) == {"GET /v1/tasks/7?wait=25 HTTP/1.1"}


async def test_waiting_ends_with_the_time_that_was_given(call):
    with scripted(answer(200, TASK)) as peer, pytest.raises(TimeoutError, match="still running"):
        await call(peer.url, "wait", "7", timeout=0)


async def test_pages_are_read_to_the_last(call):
    first = json.dumps({"items": [{"id": "2"}], "next_cursor": "c"}).encode()
    last = json.dumps({"items": [{"id": "1"}], "next_cursor": None}).encode()
    with scripted(answer(200, first), answer(200, last)) as peer:
        found = await call(peer.url, "iter_tasks", status="done")
    assert [task["id"] for task in found] == ["2", "1"]
    assert peer.lines()[1] == "GET /v1/tasks?status=done&limit=500&cursor=c HTTP/1.1"


async def test_a_log_that_breaks_off_is_taken_up_where_it_was(call):
    script = (
        answer(200, TASK),
        chunked(b"one\n", b"tw", whole=False),
        chunked(b"one\ntwo\n", whole=False),
        chunked(b"one\n", b"two\nthree\n"),
        answer(200, DONE),
    )
    with scripted(*script) as peer:
        assert b"".join(await call(peer.url, "follow_logs", "7")) == b"one\ntwo\nthree\n"
    assert peer.lines()[1] == "GET /v1/tasks/7/logs?attempt=1&follow=true HTTP/1.1"


async def test_following_goes_on_into_the_next_attempt(call):
    second = json.dumps({"id": "7", "status": "done", "attempt": 2}).encode()
    script = (
        answer(200, TASK),
        chunked(b"first\n"),
        answer(200, TASK),
        chunked(b"second\n"),
        answer(200, second),
    )
    with scripted(*script) as peer:
        assert b"".join(await call(peer.url, "follow_logs", "7")) == b"first\nsecond\n"
    assert "attempt=2" in peer.lines()[3]


async def test_a_task_that_ends_without_another_attempt_ends_the_log(call):
    script = (
        answer(200, TASK),
        chunked(b"first\n"),
        answer(200, TASK),
        answer(404),
        answer(200, DONE),
    )
    with scripted(*script) as peer:
        assert b"".join(await call(peer.url, "follow_logs", "7")) == b"first\n"


async def test_all_that_a_filter_means_is_cancelled_in_several_rounds(call):
    more = json.dumps({"cancelled": 500, "more": True}).encode()
    rest = json.dumps({"cancelled": 3, "more": False}).encode()
    with scripted(answer(200, more), answer(200, rest)) as peer:
        assert await call(peer.url, "cancel_tasks", name="x") == 503


@contextmanager
def keeping_alive(*answers: int):
    """Serve connections one after the other, each for so many answers; yield the URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for count in answers:
            connection, _ = listener.accept()
            with connection:
                for _ in range(count):
                    connection.recv(65536)
                    connection.sendall(answer(200, TASK))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def test_a_connection_is_kept_and_used_again():
    with keeping_alive(2) as url, Client(url) as client:
        assert [client.get_task("7")["id"], client.get_task("7")["id"]] == ["7", "7"]


async def test_a_connection_of_the_async_client_is_kept_and_used_again():
    with keeping_alive(2) as url:
        async with AsyncClient(url) as client:
            found = [(await client.get_task("7"))["id"], (await client.get_task("7"))["id"]]
    assert found == ["7", "7"]


def test_an_async_client_works_in_one_loop_after_the_other():
    with keeping_alive(1, 1) as url:
        client = AsyncClient(url, patience=Patience(timedelta(0)))
        found = [asyncio.run(_get_and_close(client)) for _ in range(2)]
    assert found == ["7", "7"]


async def _get_and_close(client: AsyncClient) -> str:
    async with client:
        return (await client.get_task("7"))["id"]


async def test_a_cancelled_call_leaves_no_connection_that_would_mix_up_answers():
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            silent, _ = listener.accept()
            silent.recv(65536)
            asked.set()
            connection, _ = listener.accept()
            with connection, silent:
                connection.recv(65536)
                connection.sendall(answer(200, TASK))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        async with AsyncClient(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(client.status())
                await asyncio.to_thread(asked.wait, 10)
                waiting.cancel()
            assert (await client.get_task("7"))["id"] == "7"
        thread.join(10)
