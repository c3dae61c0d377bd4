"""How an agent fetches the bundles of attempts, keeps them, and what a task finds of them."""

import asyncio
import hashlib
import os
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from duly import wire
from duly.agent import bundles, gateway
from duly.agent.bundle_cache import Arrival, BundleCache
from duly.agent.bundles import BundleFetcher
from duly.agent.gateway import Gateway
from duly.agent.outcome import NEVER_BEGUN
from duly.agent.users import SameUser
from duly.errors import Unauthenticated
from duly.model.resources import Resources
from duly.model.task import Outcome, Payload
from duly.wire import ArtifactPiece, ArtifactWanted, Assignment, AttemptRef
from tests.agent.test_unpack import entry, tar
from tests.faults.test_full_disks import small_disk

A, B, C = AttemptRef(7, 1, 40), AttemptRef(8, 1, 41), AttemptRef(9, 1, 42)
REFUSAL = b'{"error": {"code": "%s", "message": "no"}}'
JOB = tar(entry("run.sh", b"#!/bin/sh\n", mode=0o755), entry("data/x", b"hello"))
OTHER = tar(entry("other", b"1"))


def name_of(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(gateway, "FIRST_PAUSE", 0.0)


class Counted(SameUser):
    """Users of whom it is known how many are taken."""

    taken = 0

    def take(self):
        self.taken += 1
        return super().take()

    def give_back(self, user):
        self.taken -= 1


class Bundling:
    """A fetcher at work, and what it has said and removed."""

    def __init__(self, folder, most_bytes):
        self.folder = folder
        self.users = Counted(None)
        self.cache = BundleCache(folder / "cache", most_bytes)
        self.said = asyncio.Queue()
        self.removed = []
        self.fetcher = None

    def want(self, ref, data=JOB, *, tenant=3, disk_mb=0, name=None):
        payload = Payload(command=["true"], artifact=name or name_of(data))
        self.fetcher.fetch(assignment(ref, payload, tenant, disk_mb), str(self.at(ref)))

    def at(self, ref):
        return self.folder / str(ref.task)

    async def end(self):
        """Return the next attempt that may begin, or what it ends as."""
        async with asyncio.timeout(20):
            assigned, refusal = await self.said.get()
            return assigned.ref, refusal

    async def fails(self):
        """Return why the next attempt ends, having seen that nothing is left of it."""
        ref, refusal = await self.end()
        assert not self.at(ref).exists()
        assert self.users.taken == 0
        return refusal.outcome, refusal.reason.code, refusal.reason.message

    def kept(self):
        return sorted(str(path.relative_to(self.folder / "cache")) for path in self._files())

    def _files(self):
        return (path for path in (self.folder / "cache").rglob("*") if path.is_file())


def assignment(ref, payload, tenant, disk_mb):
    return Assignment(
        ref=ref,
        payload=payload,
        resources=Resources(disk_mb=disk_mb),
        execution_cap=1.0,
        grace=1.0,
        idempotency_key="k",
        log_limit=1,
        result_limit=1,
        tenant=tenant,
    )


@asynccontextmanager
async def bundling(server, folder, most_bytes=10**6):
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        told = Bundling(folder, most_bytes)
        told.fetcher = BundleFetcher(
            line,
            told.cache,
            told.users,
            lambda *said: told.said.put_nowait(said),
            told.removed.append,
        )
        loops = [group.create_task(told.fetcher.run()), group.create_task(told.fetcher.unpack())]
        yield told
        for loop in loops:
            loop.cancel()


def give(server, data, *cuts, size=None):
    """Prepare an artifact, in pieces."""
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        piece = ArtifactPiece(data=data[start:end], size=len(data) if size is None else size)
        server.prepare(200, wire.encode(piece))


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


def asked(server):
    """Return which pieces were asked for."""
    assert {path for path, _, _ in server.seen} <= {"/v1/gateway/artifact"}
    found = [wire.decode(body, ArtifactWanted) for _, _, body in server.seen]
    return [(one.ref, one.offset) for one in found]


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


async def test_what_is_here_is_not_fetched_again_but_by_another_tenant(server, tmp_path):
    give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
        told.want(B)
        assert await told.end() == (B, None)
        assert (told.at(B) / "data/x").read_bytes() == b"hello"
        assert asked(server) == [(A, 0)]
        give(server, JOB)
        told.want(C, tenant=4)
        assert await told.end() == (C, None)
        assert asked(server) == [(A, 0), (C, 0)]
        assert told.kept() == [f"3/{name_of(JOB)}", f"4/{name_of(JOB)}"]


async def test_an_agent_that_was_killed_keeps_what_was_whole(server, tmp_path):
    give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        await told.end()
        Arrival(told.cache.path_of(3, name_of(OTHER))).add(OTHER[:100])
        assert len(told.kept()) == 2
    async with bundling(server, tmp_path) as told:
        assert told.kept() == [f"3/{name_of(JOB)}"]
        told.want(B)
        assert await told.end() == (B, None)
    assert len(server.seen) == 1


async def test_several_that_wait_for_a_bundle_get_it_at_once(server, tmp_path):
    give(server, JOB, 100)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        told.want(B)
        assert {await told.end(), await told.end()} == {(A, None), (B, None)}
    assert asked(server) == [(A, 0), (A, 100)]


async def test_a_large_bundle_keeps_no_small_one_waiting(server, tmp_path):
    first, *rest = [JOB[:700], JOB[700:]]
    server.prepare(200, wire.encode(ArtifactPiece(data=first, size=len(JOB))))
    give(server, OTHER)
    server.prepare(200, wire.encode(ArtifactPiece(data=rest[0], size=len(JOB))))
    async with bundling(server, tmp_path) as told:
        told.want(A)
        told.want(B, OTHER)
        assert {await told.end(), await told.end()} == {(A, None), (B, None)}
    assert asked(server) == [(A, 0), (B, 0), (A, 700)]


async def test_another_asks_on_when_an_attempt_is_not_ours_any_more(server, tmp_path):
    server.prepare(200, wire.encode(ArtifactPiece(data=JOB[:700], size=len(JOB))))
    server.prepare(409, REFUSAL % b"fenced")
    server.prepare(200, wire.encode(ArtifactPiece(data=JOB[700:], size=len(JOB))))
    async with bundling(server, tmp_path) as told:
        told.want(A)
        told.want(B)
        assert await told.end() == (A, NEVER_BEGUN)
        assert await told.end() == (B, None)
    assert asked(server) == [(A, 0), (A, 700), (B, 700)]


@pytest.mark.parametrize("status", [503, 500, 404])
async def test_a_piece_that_did_not_come_is_asked_for_again(server, tmp_path, status):
    server.prepare(200, wire.encode(ArtifactPiece(data=JOB[:700], size=len(JOB))))
    server.prepare(status)
    server.prepare(200, wire.encode(ArtifactPiece(data=JOB[700:], size=len(JOB))))
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
    assert asked(server) == [(A, 0), (A, 700), (A, 700)]


async def test_a_bundle_that_cannot_be_had_keeps_no_other_one_waiting(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(gateway, "FIRST_PAUSE", 3600.0)
    server.prepare(503)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        await until(lambda: server.seen)
        give(server, OTHER, 600)
        told.want(B, OTHER)
        assert await told.end() == (B, None)
    assert asked(server) == [(A, 0), (B, 0), (B, 600)]


async def test_after_a_while_without_a_piece_attempts_go_back(server, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "PATIENCE", -1.0)
    server.prepare(503, REFUSAL % b"unavailable")
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.EXPIRED, "artifact_unavailable")
        give(server, JOB)
        told.want(B)
        assert await told.end() == (B, None)


async def test_an_attempt_whose_bundle_comes_too_slowly_fails(server, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "LONGEST", -1.0)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.FAILED, "artifact_unavailable")
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


async def test_what_was_kept_and_is_damaged_is_fetched_again(server, tmp_path):
    give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        await told.end()
        file = told.cache.path_of(3, name_of(JOB))
        for damaged in (OTHER, JOB[:-1], JOB[:600], b""):
            file.write_bytes(damaged)
            give(server, JOB)
            told.want(B)
            assert await told.end() == (B, None)
            assert sorted(path.name for path in told.at(B).iterdir()) == ["data", "run.sh"]
            told.fetcher.abandon(B)
            told.at(B).rename(tmp_path / f"gone-{len(damaged)}")
        assert len(server.seen) == 5


async def test_a_disk_that_spoils_all_it_keeps_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(Arrival, "keep", lambda self: bool(self.target.write_bytes(OTHER)))
    for _ in range(9):
        give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.FAILED, "artifact_unavailable")
    assert len(server.seen) == bundles.MOST_DAMAGED


async def test_what_was_used_longest_ago_goes_first(server, tmp_path):
    jobs = [tar(entry(str(n), b"x" * 1000)) for n in range(4)]
    async with bundling(server, tmp_path, most_bytes=2 * len(jobs[0])) as told:
        for ref, job in zip((A, B), jobs[:2], strict=True):
            give(server, job)
            told.want(ref, job)
            await told.end()
        told.fetcher.abandon(A)
        told.at(A).rename(tmp_path / "gone")
        told.want(A, jobs[0])
        await told.end()
        give(server, jobs[2])
        told.want(C, jobs[2])
        assert await told.end() == (C, None)
        left = sorted(f"3/{name_of(job)}" for job in (jobs[0], jobs[2]))
        await until(lambda: told.kept() == left)


def test_what_comes_to_be_needed_while_room_is_made_stays(tmp_path):
    cache, needed = BundleCache(tmp_path, 0), set()
    first, second = (cache.path_of(3, name_of(data)) for data in (JOB, OTHER))
    first.parent.mkdir()
    for age, file in enumerate((second, first)):
        file.write_bytes(b"x")
        os.utime(file, (-age, -age))

    def is_needed(path):
        needed.add(second)
        return path in needed

    assert cache.trim(is_needed) is False
    assert (cache.use(first), cache.use(second)) == (False, True)


async def test_what_is_larger_than_all_that_may_be_kept_is_used_and_gone(server, tmp_path):
    async with bundling(server, tmp_path, most_bytes=100) as told:
        give(server, JOB)
        told.want(A)
        assert await told.end() == (A, None)
        give(server, OTHER)
        told.want(B, OTHER)
        assert await told.end() == (B, None)
        assert f"3/{name_of(JOB)}" not in told.kept()


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


@pytest.mark.parametrize("name", ["../x", "", "a" * 63, "A" * 64, "/" * 64, "a" * 64 + "\n"])
async def test_no_name_leads_out_of_what_is_kept(server, tmp_path, name):
    async with bundling(server, tmp_path) as told:
        told.want(A, name=name or "x")
        assert (await told.fails())[1] == "artifact_unavailable"
        assert server.seen == []


async def test_without_a_tenant_nothing_is_kept_or_used(server, tmp_path):
    async with bundling(server, tmp_path) as told:
        told.want(A, tenant=None)
        assert (await told.fails())[1] == "artifact_unavailable"


async def test_a_disk_that_is_full_ends_the_attempt_with_the_reason(server, tmp_path):
    give(server, JOB)
    (tmp_path / "8").write_text("something is in the way")
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert await told.end() == (A, None)
        told.fetcher.abandon(A)
        told.want(B)
        _, refusal = await told.end()
        assert "could not be fetched: File exists" in refusal.reason.message
        assert (tmp_path / "8").read_text() == "something is in the way"
        (tmp_path / "cache/5").write_text("here, too")
        give(server, JOB)
        told.want(C, tenant=5)
        assert "File exists" in (await told.fails())[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize(("kept", "tries"), [(230_000, 2), (150_000, 1)], ids=["fetch", "unpack"])
async def test_what_is_kept_for_later_goes_when_the_disk_is_full(server, tmp_path, kept, tries):
    job, old = tar(entry("x", os.urandom(50_000))), os.urandom(kept)
    with small_disk(tmp_path / "small", "256k") as disk:
        async with bundling(server, disk) as told:
            arrival = Arrival(told.cache.path_of(3, name_of(old)))
            arrival.add(old)
            assert arrival.keep()
            for _ in range(tries):
                give(server, job)
            told.want(A, job)
            assert await told.end() == (A, None)
            assert told.kept() == [f"3/{name_of(job)}"]
            told.want(B, large := tar(entry("x", os.urandom(300_000))))
            give(server, large)
            give(server, large)
            assert "No space left on device" in (await told.end())[1].reason.message
            assert not told.at(B).exists()


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
    folder = node.executor.bundle_of(ref)
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
async def test_no_other_task_reads_the_bundle_of_one(best_node):
    ref = best_node.start("sleep", "60", bundle=JOB)
    folder = Path(best_node.executor.bundle_of(ref))
    report = await best_node.run("sh", "-c", f"cat {folder}/data/x 2>&1")
    assert b"Permission denied" in report.tail
    best_node.command("kill", ref)
    await best_node.end(ref)
