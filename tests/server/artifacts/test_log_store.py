import pytest

from duly.errors import ConfigError, TooLarge
from duly.server.artifacts.log_store import LOST_NOTICE, LogStore, day_of
from duly.server.artifacts.store_guard import StoreGuard
from duly.wire import AttemptRef

DAY = 86_400 << 31
TASK = 318 * DAY + 12345


def make_log_store(url, limit):
    return LogStore(url, StoreGuard(url, None), limit=limit)


@pytest.fixture
def log_store(tmp_path):
    return make_log_store(str(tmp_path / "store"), 100_000)


async def read(stream):
    return b"".join([data async for data in stream])


async def keep(log_store, offset, data, task=TASK, attempt=1):
    await log_store.append(AttemptRef(task, attempt, 7), offset, data)


async def test_chunks_are_read_in_order_of_their_offsets(log_store):
    await keep(log_store, 10, b"b" * 990)
    await keep(log_store, 0, b"a" * 10)
    await keep(log_store, 1000, b"c")
    assert await read(log_store.read(TASK, 1)) == b"a" * 10 + b"b" * 990 + b"c"


async def test_chunks_that_overlap_or_are_sent_again_are_read_once(log_store):
    await keep(log_store, 0, b"abcdef")
    await keep(log_store, 4, b"efgh")
    await keep(log_store, 2, b"cd")
    await keep(log_store, 4, b"efghij")
    assert await read(log_store.read(TASK, 1)) == b"abcdefghij"


async def test_reading_begins_at_the_offset_and_stops_at_a_gap(log_store):
    await keep(log_store, 0, b"abc")
    await keep(log_store, 3, b"def")
    await keep(log_store, 9, b"late")
    assert await read(log_store.read(TASK, 1, 4)) == b"ef"
    assert await read(log_store.read(TASK, 1, 6)) == b""


async def test_the_log_of_an_unknown_attempt_is_empty(log_store):
    assert await read(log_store.read(TASK, 2)) == b""


async def test_the_tail_alone_is_the_whole_of_a_short_log(log_store):
    assert await read(log_store.read_ended(TASK, 1, size=3, tail=b"abc")) == b"abc"
    assert await read(log_store.read_ended(TASK, 1, size=3, tail=b"abc", start=2)) == b"c"
    assert await read(log_store.read_ended(TASK, 1, size=3, tail=b"abc", start=3)) == b""


@pytest.mark.parametrize("kept", [4, 6, 7, 10])
async def test_chunks_and_tail_are_one_log_wherever_the_chunks_end(log_store, kept):
    await keep(log_store, 0, b"0123456789"[:kept])
    whole = await read(log_store.read_ended(TASK, 1, size=10, tail=b"456789"))
    assert whole == b"0123456789"


async def test_missing_bytes_are_announced_in_the_log(log_store):
    await keep(log_store, 0, b"01")
    whole = await read(log_store.read_ended(TASK, 1, size=10, tail=b"89"))
    assert whole.decode() == "01\n[… 6 bytes were not kept …]\n89"


async def test_a_log_beyond_its_limit_is_refused(log_store):
    await keep(log_store, 100_000, b"[the rest was dropped]")
    with pytest.raises(TooLarge):
        await keep(log_store, 100_000, b"x" * 5000)
    with pytest.raises(TooLarge):
        await keep(log_store, -1, b"x")


async def test_logs_are_dropped_with_their_day_except_kept_ones(log_store):
    old, kept, fresh = 317 * DAY + 1, 317 * DAY + 2, 318 * DAY
    for task in (old, kept, fresh):
        await keep(log_store, 0, b"x", task=task)
    await log_store.drop_before(day_of(fresh), keep={kept})
    assert await read(log_store.read(old, 1)) == b""
    assert await read(log_store.read(kept, 1)) == b"x"
    assert await read(log_store.read(fresh, 1)) == b"x"


async def test_dropping_days_of_an_empty_store_does_nothing(log_store):
    await log_store.drop_before(1000)


def test_a_store_that_cannot_be_used_is_a_configuration_error():
    with pytest.raises(ConfigError, match="nonsense"):
        make_log_store("nonsense://secret@place", 1)


@pytest.mark.parametrize("start", [0, 2, 6, 10, 6 + len(LOST_NOTICE), 500])
async def test_the_log_of_a_lost_attempt_ends_with_a_notice(log_store, start):
    await keep(log_store, 0, b"abc")
    await keep(log_store, 3, b"def")
    await keep(log_store, 9, b"after a gap")
    assert await read(log_store.read_lost(TASK, 1, start)) == (b"abcdef" + LOST_NOTICE)[start:]


async def test_the_log_of_a_lost_attempt_that_sent_nothing_is_the_notice(log_store):
    assert await read(log_store.read_lost(TASK, 1)) == LOST_NOTICE
