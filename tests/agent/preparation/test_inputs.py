"""How an agent fetches what the upstreams of an attempt have left, and what the task sees of it."""

import asyncio
import os
import stat
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from duly import wire
from duly.agent import gateway
from duly.agent.gateway import Gateway
from duly.agent.preparation import inputs
from duly.agent.preparation.inputs import InputFetcher
from duly.agent.supervision.outcome import NEVER_BEGUN
from duly.errors import Unauthenticated
from duly.model.resources import Resources
from duly.model.task import Outcome, Payload
from duly.wire import Assignment, AttemptRef, InputsPage, InputsRequest, UpstreamResult

A, B = AttemptRef(7, 1, 40), AttemptRef(8, 1, 41)
REFUSAL = b'{"error": {"code": "%s", "message": "no"}}'


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(gateway, "MIN_BACKOFF_SECONDS", 0.0)


class Fetching:
    """A fetcher at work, and what it has said and removed."""

    def __init__(self, fetcher, folder):
        self.fetcher = fetcher
        self.folder = folder
        self.said = asyncio.Queue()
        self.removed = []

    def want(self, ref, limit=1000):
        self.fetcher.fetch(assignment(ref, limit), str(self.folder / str(ref.task)))

    async def end(self):
        """Return the next attempt that may begin, or what it ends as."""
        async with asyncio.timeout(20):
            return await self.said.get()

    def files(self, ref):
        return {path.name: path.read_bytes() for path in (self.folder / str(ref.task)).iterdir()}


def assignment(ref, limit):
    return Assignment(
        ref=ref,
        payload=Payload(command=["true"]),
        resources=Resources(),
        execution_cap=1.0,
        grace=1.0,
        idempotency_key="k",
        log_limit=1,
        result_limit=1,
        inputs_limit=limit,
    )


@asynccontextmanager
async def fetching(server, folder):
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        told = Fetching(None, folder)
        told.fetcher = InputFetcher(
            line, lambda *said: told.said.put_nowait(said), told.removed.append
        )
        loop = group.create_task(told.fetcher.run())
        yield told
        loop.cancel()


def page(server, *results, above=None):
    found = [UpstreamResult(name, result) for name, result in results]
    server.prepare(200, wire.encode(InputsPage(results=found, above=above)))


def asked(server):
    """Return which pages were asked for."""
    found = [wire.decode(body, InputsRequest) for _, _, body in server.seen]
    return [(one.ref, one.above) for one in found]


async def test_every_page_is_written_and_then_the_attempt_may_begin(server, tmp_path):
    page(server, ("a", b"1"), ("b.c-d_1", b'"x"'), above=5)
    page(server, ("123", b"{}"))
    async with fetching(server, tmp_path) as told:
        told.want(A, limit=6)  # as many bytes as there are
        assert await told.end() == (A, None)
        assert asked(server) == [(A, 0), (A, 5)]
        assert {auth for _, auth, _ in server.seen} == {"Bearer node"}
        assert told.files(A) == {"a.json": b"1", "b.c-d_1.json": b'"x"', "123.json": b"{}"}
        assert told.fetcher.take(A).ref == A
        assert (told.fetcher.take(A), told.removed) == (None, [])


async def test_many_inputs_of_one_keep_no_other_waiting(server, tmp_path):
    page(server, ("a", b"1"), above=1)
    page(server)
    page(server)
    async with fetching(server, tmp_path) as told:
        told.want(A)
        told.want(B)
        assert await told.end() == (B, None)
        assert await told.end() == (A, None)
    assert asked(server) == [(A, 0), (B, 0), (A, 1)]


@pytest.mark.parametrize("status", [503, 500, 404])
async def test_a_page_that_did_not_come_is_asked_for_again(server, tmp_path, status):
    """Not even known: by a server that is older than the route."""
    page(server, ("a", b"1"), above=1)
    server.prepare(status)
    page(server, ("b", b"2"))
    async with fetching(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
        assert asked(server) == [(A, 0), (A, 1), (A, 1)]
        assert told.files(A) == {"a.json": b"1", "b.json": b"2"}


async def test_after_a_while_without_a_page_the_attempt_goes_back(server, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "STALL_TIMEOUT_SECONDS", -1.0)
    server.prepare(503, REFUSAL % b"unavailable")
    async with fetching(server, tmp_path) as told:
        told.want(A)
        ref, refusal = await told.end()
    assert (ref, refusal.outcome, refusal.reason.code) == (
        A,
        Outcome.EXPIRED,
        "inputs_unavailable",
    )


async def test_a_page_renews_the_patience(server, tmp_path, monkeypatch):
    ticks = iter([0.0, 65.0, 70.0, 75.0, 100.0, 105.0, 110.0])
    monkeypatch.setattr(inputs, "monotonic", lambda: next(ticks))
    page(server, ("a", b"1"), above=1)
    server.prepare(503)
    page(server, ("b", b"2"))
    async with fetching(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)


async def test_an_attempt_that_is_not_ours_any_more_is_left_alone(server, tmp_path):
    server.prepare(409, REFUSAL % b"fenced")
    async with fetching(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, NEVER_BEGUN)


async def test_an_attempt_whose_inputs_come_too_slowly_fails(server, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_FETCH_SECONDS", -1.0)
    async with fetching(server, tmp_path) as told:
        told.want(A)
        _, refusal = await told.end()
    assert (refusal.outcome, refusal.reason.code) == (Outcome.FAILED, "inputs_unavailable")


async def test_a_node_that_is_refused_is_told_so(server, tmp_path):
    server.prepare(401)
    with pytest.raises(ExceptionGroup) as caught:
        async with fetching(server, tmp_path) as told:
            told.want(A)
            await asyncio.Event().wait()
    assert caught.group_contains(Unauthenticated)


async def test_inputs_that_are_too_large_together_end_the_attempt(server, tmp_path):
    page(server, ("a", b"x" * 600), above=1)
    page(server, ("b", b"x" * 401))
    async with fetching(server, tmp_path) as told:
        told.want(A, limit=1000)
        ref, refusal = await told.end()
        assert (ref, refusal.outcome) == (A, Outcome.FAILED)
        assert refusal.reason.code == "inputs_too_large"
        assert "more than 1000 bytes" in refusal.reason.message
        told.fetcher.abandon(A)
        assert told.removed == [str(tmp_path / "7")]


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/x", "a/b", "", ".", "..", "a\0b", "é", "\u0661", "x" * 101, "1" * 20, "a\n"],
)
async def test_no_name_leads_out_of_the_folder(server, tmp_path, name):
    page(server, ("a", b"1"), (name, b"2"))
    (tmp_path / "in").mkdir()
    async with fetching(server, tmp_path / "in") as told:
        told.want(A)
        _, refusal = await told.end()
    assert (refusal.outcome, refusal.reason.code) == (Outcome.FAILED, "inputs_unavailable")
    assert list(tmp_path.rglob("*.json")) == []


async def test_a_disk_that_is_full_ends_the_attempt_with_the_reason(server, tmp_path):
    (tmp_path / "7").write_text("something is in the way")
    page(server, ("a", b"1"))
    async with fetching(server, tmp_path) as told:
        told.want(A)
        _, refusal = await told.end()
    assert "could not be fetched: File exists" in refusal.reason.message


async def test_what_is_abandoned_is_asked_for_no_more_and_removed(server, tmp_path):
    page(server, ("a", b"1"))
    async with fetching(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
        # It has all of them, and was still to wait for its start.
        told.fetcher.abandon(A)
        assert told.removed == [str(tmp_path / "7")]
        told.want(B)
        told.fetcher.abandon(B)
        page(server)
        told.want(A)
        assert await told.end() == (A, None)
    assert asked(server) == [(A, 0), (A, 0)]


@pytest.mark.parametrize("above", [1, None])
async def test_what_is_abandoned_while_its_page_is_written_is_removed_after(
    server, tmp_path, monkeypatch, above
):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(write, folder, results):
        begun.set()
        await go_on.wait()
        write(folder, results)

    monkeypatch.setattr(asyncio, "to_thread", slowly)
    page(server, ("a", b"1"), above=above)
    page(server)
    async with fetching(server, tmp_path) as told:
        told.want(A)
        await begun.wait()
        told.fetcher.abandon(A)
        assert told.removed == []
        told.want(B)
        go_on.set()
        assert await told.end() == (B, None)
        assert told.removed == [str(tmp_path / "7")]


# What the task sees.

LOOK = 'cd "$DULY_INPUTS"; cat a.json 12.json; for one in *; do echo " $one"; done'


async def test_a_task_reads_its_inputs(node):
    report = await node.run("sh", "-c", LOOK, inputs={"a": b"[1]", "12": b'"x"'})
    assert report.tail == b'[1]"x" 12.json\n a.json\n'


async def test_a_task_without_inputs_finds_an_empty_folder(node):
    report = await node.run("sh", "-c", 'cd "$DULY_INPUTS" && ls -A && echo ok')
    assert report.tail == b"ok\n"


TAMPER = """
cd "$DULY_INPUTS"
( echo 2 > a.json ) 2>/dev/null && echo written
( echo 2 > new.json ) 2>/dev/null && echo made
unlink a.json 2>/dev/null && echo removed
chmod 777 . 2>/dev/null && echo opened
mv "$DULY_INPUTS" "$HOME/mine" 2>/dev/null && echo moved
cat a.json
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="tasks run as the user of the agent")
@pytest.mark.parametrize("given", [{"a": b"1"}, None])
async def test_a_task_cannot_change_its_inputs(node, given):
    report = await node.run("sh", "-c", TAMPER, inputs=given)
    assert report.tail.startswith(b"1" if given else b"cat: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="tasks run as the user of the agent")
async def test_no_other_task_reads_the_inputs_of_one(best_node):
    ref = best_node.start("sleep", "60", inputs={"a": b"1"})
    folder = Path(best_node.attempts.inputs_of(ref))
    report = await best_node.run("sh", "-c", f"cat {folder}/a.json 2>&1")
    assert b"Permission denied" in report.tail
    assert stat.S_IMODE(folder.stat().st_mode) == 0o550
    best_node.command("kill", ref)
    await best_node.end(ref)
    assert str(folder) in best_node.left
