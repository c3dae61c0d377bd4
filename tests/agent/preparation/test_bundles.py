"""How an agent fetches the bundles of attempts, and what a task finds of them."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from duly import wire
from duly.agent import gateway
from duly.agent.preparation import bundles
from duly.agent.supervision.outcome import NEVER_BEGUN
from duly.errors import Unauthenticated
from duly.model.task import Outcome
from duly.wire import ArtifactChunk, AttemptRef
from tests.agent.bundling import JOB, OTHER, A, B, C, asked, bundling, give, name_of, until
from tests.agent.preparation.test_unpack import entry, tar

pytestmark = pytest.mark.usefixtures("retrying_at_once")
REFUSAL = b'{"error": {"code": "%s", "message": "no"}}'


async def test_a_bundle_comes_in_pieces_and_is_unpacked(server, tmp_path):
    give(server, JOB, 700, 701)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
        assert asked(server) == [(A, 0), (A, 700), (A, 701)]
        assert (told.at(A) / "data/x").read_bytes() == b"hello"
        assert os.access(told.at(A) / "run.sh", os.X_OK)
        assert told.kept() == [f"3/{name_of(JOB)}"]
        taken = told.fetcher.take(A)
        assert (taken.folder, taken.assignment.ref) == (str(told.at(A)), A)
        assert (told.fetcher.take(A), told.removed, told.users.taken) == (None, [], 1)


async def test_several_that_wait_for_a_bundle_get_it_at_once(server, tmp_path):
    give(server, JOB, 100)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        told.want(B)
        assert {await told.end(), await told.end()} == {(A, None), (B, None)}
    assert asked(server) == [(A, 0), (A, 100)]


async def test_a_large_bundle_keeps_no_small_one_waiting(server, tmp_path):
    first, *rest = [JOB[:700], JOB[700:]]
    server.prepare(200, wire.encode(ArtifactChunk(data=first, size=len(JOB))))
    give(server, OTHER)
    server.prepare(200, wire.encode(ArtifactChunk(data=rest[0], size=len(JOB))))
    async with bundling(server, tmp_path) as told:
        told.want(A)
        told.want(B, OTHER)
        assert {await told.end(), await told.end()} == {(A, None), (B, None)}
    assert asked(server) == [(A, 0), (B, 0), (A, 700)]


async def test_many_bundles_of_a_tenant_keep_no_other_one_waiting(server, tmp_path):
    many = [tar(entry(f"file{n}", b"1")) for n in range(3)]
    for _ in range(4):
        server.prepare(200, wire.encode(ArtifactChunk(data=b"1", size=1000)))
    refs = [AttemptRef(20 + n, 1, 50 + n) for n in range(3)]
    async with bundling(server, tmp_path) as told:
        for ref, data in zip(refs, many, strict=True):
            told.want(ref, data)
        told.want(B, OTHER, tenant=4)
        await until(lambda: len(server.seen) >= 4)
    assert [ref for ref, _ in asked(server)][:4] == [refs[0], B, refs[1], B]


async def test_slow_bundles_of_a_tenant_keep_no_other_tenant_waiting(server, tmp_path, monkeypatch):
    go_on, real, begun = threading.Event(), bundles.unpack, []

    def slowly(file, *args, **options):
        if file.parent.name == "3":
            begun.append(file)
            assert go_on.wait(20)
        real(file, *args, **options)

    monkeypatch.setattr(bundles, "unpack", slowly)
    refs = [AttemptRef(20 + n, 1, 50 + n) for n in range(4)]
    give(server, JOB)
    async with bundling(server, tmp_path, unpackers=bundles.MAX_CONCURRENT_UNPACKS) as told:
        for ref in refs:
            told.want(ref)
        await until(lambda: len(begun) >= bundles.MAX_UNPACKS_PER_TENANT)
        give(server, OTHER)
        told.want(B, OTHER, tenant=4)
        try:
            assert await told.end() == (B, None)
        finally:
            go_on.set()
        assert {await told.end() for _ in refs} == {(ref, None) for ref in refs}


async def test_another_asks_on_when_an_attempt_is_not_ours_any_more(server, tmp_path):
    server.prepare(200, wire.encode(ArtifactChunk(data=JOB[:700], size=len(JOB))))
    server.prepare(409, REFUSAL % b"fenced")
    server.prepare(200, wire.encode(ArtifactChunk(data=JOB[700:], size=len(JOB))))
    async with bundling(server, tmp_path) as told:
        told.want(A)
        told.want(B)
        assert await told.end() == (A, NEVER_BEGUN)
        assert await told.end() == (B, None)
    assert asked(server) == [(A, 0), (A, 700), (B, 700)]


@pytest.mark.parametrize("status", [503, 500, 404])
async def test_a_piece_that_did_not_come_is_asked_for_again(server, tmp_path, status):
    server.prepare(200, wire.encode(ArtifactChunk(data=JOB[:700], size=len(JOB))))
    server.prepare(status)
    server.prepare(200, wire.encode(ArtifactChunk(data=JOB[700:], size=len(JOB))))
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
    assert asked(server) == [(A, 0), (A, 700), (A, 700)]


async def test_a_bundle_that_cannot_be_had_keeps_no_other_one_waiting(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(gateway, "MIN_BACKOFF_SECONDS", 3600.0)
    server.prepare(503)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        await until(lambda: server.seen)
        give(server, OTHER, 600)
        told.want(B, OTHER)
        assert await told.end() == (B, None)
    assert asked(server) == [(A, 0), (B, 0), (B, 600)]


async def test_after_a_while_without_a_piece_attempts_go_back(server, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "STALL_TIMEOUT_SECONDS", -1.0)
    server.prepare(503, REFUSAL % b"unavailable")
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.EXPIRED, "artifact_unavailable")
        give(server, JOB)
        told.want(B)
        assert await told.end() == (B, None)


async def test_an_attempt_whose_bundle_comes_too_slowly_fails(server, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "MAX_FETCH_SECONDS", -1.0)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.FAILED, "artifact_unavailable")
        assert server.seen == []


async def test_an_attempt_that_others_kept_waiting_goes_back(server, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "MAX_FETCH_SECONDS", 0.0)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.EXPIRED, "artifact_unavailable")
        assert server.seen == []


async def test_an_attempt_whose_bundle_is_lost_fails_with_what_the_server_says(server, tmp_path):
    server.prepare(422, REFUSAL % b"unknown_artifact")
    async with bundling(server, tmp_path) as told:
        told.want(A)
        outcome, code, message = await told.fails()
        assert (outcome, code) == (Outcome.FAILED, "artifact_unavailable")
        assert message == "Its bundle could not be fetched: no"


@pytest.mark.parametrize("size", [len(OTHER), 100, 0])
async def test_what_is_not_what_was_asked_for_is_not_kept(server, tmp_path, size):
    give(server, OTHER, size=size)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        outcome, code, message = await told.fails()
        assert (outcome, code) == (Outcome.FAILED, "artifact_unavailable")
        assert "another hash" in message
        assert told.kept() == []


async def test_an_archive_that_is_none_ends_the_attempt_with_the_reason(server, tmp_path):
    bad = tar(entry("../x", b"1"))
    give(server, bad)
    async with bundling(server, tmp_path) as told:
        told.want(A, bad)
        outcome, code, message = await told.fails()
        assert (outcome, code) == (Outcome.FAILED, "artifact_invalid")
        assert "'../x' leads out of the bundle" in message


async def test_a_bundle_may_not_be_larger_than_the_disk_of_the_task(server, tmp_path):
    large = tar(entry("x", bytes(2**20 + 1)), packed=True)
    give(server, large)
    async with bundling(server, tmp_path) as told:
        told.want(A, large, disk_mb=1)
        assert (await told.fails())[:2] == (Outcome.FAILED, "artifact_too_large")
        told.want(B, large, disk_mb=2)
        assert await told.end() == (B, None)


async def test_what_nobody_thought_of_ends_one_attempt_and_nothing_else(
    server, tmp_path, monkeypatch
):
    def fail(*_, **__):
        "ü".encode("ascii")

    give(server, JOB)
    async with bundling(server, tmp_path) as told:
        with monkeypatch.context() as patched:
            patched.setattr(bundles, "unpack", fail)
            told.want(A)
            outcome, code, message = await told.fails()
        assert (outcome, code) == (Outcome.FAILED, "artifact_invalid")
        assert message == "Its bundle could not be unpacked: UnicodeEncodeError on its node."
        told.want(B)
        assert await told.end() == (B, None)


async def test_a_node_that_is_refused_is_told_so(server, tmp_path):
    server.prepare(401)
    with pytest.raises(ExceptionGroup) as caught:
        async with bundling(server, tmp_path) as told:
            told.want(A)
            await asyncio.Event().wait()
    assert caught.group_contains(Unauthenticated)


async def test_what_is_abandoned_is_removed_wherever_it_is(server, tmp_path):
    give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
        told.fetcher.abandon(A)  # It has all, and was still to wait for its start.
        assert (told.removed, told.users.taken) == ([str(told.at(A))], 0)
        told.want(B)
        told.fetcher.abandon(B)  # It was to be unpacked next.
        told.want(B, OTHER)
        told.fetcher.abandon(B)  # It was to be asked for next.
        told.want(C)
        assert await told.end() == (C, None)
        assert not told.at(B).exists()
    assert asked(server) == [(A, 0)]


@pytest.mark.parametrize("is_late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["abandoned", "cancelled"])
async def test_what_is_abandoned_while_it_is_unpacked_is_removed_after(
    server, tmp_path, monkeypatch, cancelled, is_late
):
    begun, go_on = threading.Event(), threading.Event()
    real = bundles.unpack

    def slowly(*args, **options):
        if is_late:
            real(*args, **options)
        begun.set()
        assert go_on.wait(20)
        if not is_late:
            real(*args, **options)

    monkeypatch.setattr(bundles, "unpack", slowly)
    give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await asyncio.to_thread(begun.wait, 20)
        if cancelled:
            asyncio.get_running_loop().call_later(0.01, go_on.set)
        else:
            told.fetcher.abandon(A)
            go_on.set()
            monkeypatch.undo()
            told.want(B)
            assert await told.end() == (B, None)
            assert told.users.taken == 1
    assert not told.at(A).exists() or str(told.at(A)) in told.removed
    assert told.users.taken == (0 if cancelled else 1)


# What the task sees.

SEEN = """#!/bin/sh
cat data/x; pwd; ls -l run.sh | cut -c1-10
test "$PWD" = "$HOME" && echo 1 > data/x && echo '{"n": 1}' > "$DULY_RESULT"
exit 3
"""


async def test_a_task_runs_in_its_bundle_and_leaves_nothing_for_the_next(node):
    data = tar(entry("run.sh", SEEN.encode(), mode=0o4755), entry("data/x", b"hello "))
    ref = node.start("./run.sh", bundle=data)
    folder = node.attempts.bundle_of(ref)
    _, report = await node.end(ref)
    assert report.tail.decode() == f"hello {folder}\n-rwxr-xr-x\n"
    assert report.exit_code == 3
    assert folder in node.left
    for _ in range(2):
        after = await node.run("sh", "-c", "pwd; ls -A")
        assert after.tail.decode().count("\n") == 1
        assert folder not in after.tail.decode()


async def test_a_program_or_interpreter_that_is_not_there_is_told_of(best_node):
    report = await best_node.run("./run.sh", bundle=tar(entry("x", b"")))
    assert report.reason.message == "The program './run.sh' was not found on the node."
    odd = tar(entry("run.sh", b"#!/bin/sh\r\necho\r\n", mode=0o755))
    report = await best_node.run("./run.sh", bundle=odd)
    assert r"The interpreter '/bin/sh\r' of the script was not found" in report.reason.message
    report = await best_node.run("./run.sh", bundle=tar(entry("run.sh", b"#!/bin/sh\n")))
    assert report.reason.code == "command_not_executable"


@pytest.mark.skipif(os.geteuid() != 0, reason="tasks run as the user of the agent")
async def test_nothing_outside_of_a_bundle_is_opened_for_its_interpreter(best_node, tmp_path):
    """A pipe that nobody writes to would stop the agent, and with it all that runs here."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    written = b"#!/interpreter of somebody else\n".ljust(1000)
    held = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    os.write(held, written)
    report = await best_node.run("../" * 40 + str(pipe)[1:], bundle=JOB)
    assert report.reason.code == "command_not_executable"
    assert os.read(held, 4096) == written
    os.close(held)


@pytest.mark.skipif(os.geteuid() != 0, reason="tasks run as the user of the agent")
async def test_no_other_task_reads_the_bundle_of_one(best_node):
    ref = best_node.start("sleep", "60", bundle=JOB)
    folder = Path(best_node.attempts.bundle_of(ref))
    report = await best_node.run("sh", "-c", f"cat {folder}/data/x 2>&1")
    assert b"Permission denied" in report.tail
    best_node.command("kill", ref)
    await best_node.end(ref)
