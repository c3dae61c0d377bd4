"""What an agent keeps of the bundles that it fetched, and what goes when there is no room."""

import os

import pytest

from duly.agent.preparation import bundles
from duly.agent.preparation.bundle_cache import BundleCache, PartialBundle
from duly.model.task import Outcome
from tests.agent.bundling import JOB, OTHER, A, B, C, asked, bundling, give, name_of, until
from tests.agent.preparation.test_unpack import entry, tar
from tests.faults.test_full_disks import small_disk

pytestmark = pytest.mark.usefixtures("retrying_at_once")


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
        PartialBundle(told.cache.path_of(3, name_of(OTHER))).add(OTHER[:100])
        assert len(told.kept()) == 2
    async with bundling(server, tmp_path) as told:
        assert told.kept() == [f"3/{name_of(JOB)}"]
        told.want(B)
        assert await told.end() == (B, None)
    assert len(server.seen) == 1


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
    monkeypatch.setattr(PartialBundle, "keep", lambda self: bool(self.target.write_bytes(OTHER)))
    for _ in range(9):
        give(server, JOB)
    async with bundling(server, tmp_path) as told:
        told.want(A)
        assert (await told.fails())[:2] == (Outcome.FAILED, "artifact_unavailable")
    assert len(server.seen) == bundles.MAX_DAMAGED_COPIES


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
            arrival = PartialBundle(told.cache.path_of(3, name_of(old)))
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
