import pytest

from duly.errors import ConfigError, TooLarge
from duly.server.logbook import REST_LOST, Logbook, day_of
from duly.wire import AttemptRef

DAY = 86_400 << 31
TASK = 318 * DAY + 12345


@pytest.fixture
def logbook(tmp_path):
    return Logbook(str(tmp_path / "store"), limit=100_000)


async def read(stream):
    return b"".join([data async for data in stream])


async def keep(logbook, offset, data, task=TASK, attempt=1):
    await logbook.append(AttemptRef(task, attempt, 7), offset, data)


async def test_chunks_are_read_in_order_of_their_offsets(logbook):
    await keep(logbook, 10, b"b" * 990)
    await keep(logbook, 0, b"a" * 10)
    await keep(logbook, 1000, b"c")
    assert await read(logbook.read(TASK, 1)) == b"a" * 10 + b"b" * 990 + b"c"


async def test_chunks_that_overlap_or_are_sent_again_are_read_once(logbook):
    await keep(logbook, 0, b"abcdef")
    await keep(logbook, 4, b"efgh")
    await keep(logbook, 2, b"cd")
    await keep(logbook, 4, b"efghij")
    assert await read(logbook.read(TASK, 1)) == b"abcdefghij"


async def test_reading_begins_where_it_is_told_and_stops_at_a_gap(logbook):
    await keep(logbook, 0, b"abc")
    await keep(logbook, 3, b"def")
    await keep(logbook, 9, b"late")
    assert await read(logbook.read(TASK, 1, 4)) == b"ef"
    assert await read(logbook.read(TASK, 1, 6)) == b""


async def test_the_log_of_an_unknown_attempt_is_empty(logbook):
    assert await read(logbook.read(TASK, 2)) == b""


async def test_the_tail_alone_is_the_whole_of_a_short_log(logbook):
    assert await read(logbook.read_ended(TASK, 1, size=3, tail=b"abc")) == b"abc"
    assert await read(logbook.read_ended(TASK, 1, size=3, tail=b"abc", start=2)) == b"c"
    assert await read(logbook.read_ended(TASK, 1, size=3, tail=b"abc", start=3)) == b""


@pytest.mark.parametrize("kept", [4, 6, 7, 10])
async def test_chunks_and_tail_are_one_log_wherever_the_chunks_end(logbook, kept):
    await keep(logbook, 0, b"0123456789"[:kept])
    whole = await read(logbook.read_ended(TASK, 1, size=10, tail=b"456789"))
    assert whole == b"0123456789"


async def test_what_was_never_kept_is_told(logbook):
    await keep(logbook, 0, b"01")
    whole = await read(logbook.read_ended(TASK, 1, size=10, tail=b"89"))
    assert whole.decode() == "01\n[… 6 bytes were not kept …]\n89"


async def test_a_log_beyond_its_limit_is_refused(logbook):
    await keep(logbook, 100_000, b"[the rest was dropped]")
    with pytest.raises(TooLarge):
        await keep(logbook, 100_000, b"x" * 5000)
    with pytest.raises(TooLarge):
        await keep(logbook, -1, b"x")


async def test_logs_go_with_their_day_except_those_that_are_to_be_kept(logbook):
    old, kept, fresh = 317 * DAY + 1, 317 * DAY + 2, 318 * DAY
    for task in (old, kept, fresh):
        await keep(logbook, 0, b"x", task=task)
    await logbook.drop_before(day_of(fresh), keep={kept})
    assert await read(logbook.read(old, 1)) == b""
    assert await read(logbook.read(kept, 1)) == b"x"
    assert await read(logbook.read(fresh, 1)) == b"x"


async def test_dropping_days_of_an_empty_store_does_nothing(logbook):
    await logbook.drop_before(1000)


def test_a_store_that_cannot_be_used_is_a_configuration_error():
    with pytest.raises(ConfigError, match="nonsense"):
        Logbook("nonsense://secret@place", limit=1)


@pytest.mark.parametrize("start", [0, 2, 6, 10, 6 + len(REST_LOST), 500])
async def test_of_a_lost_attempt_what_was_received_is_read_and_then_a_notice(logbook, start):
    await keep(logbook, 0, b"abc")
    await keep(logbook, 3, b"def")
    await keep(logbook, 9, b"after a gap")
    assert await read(logbook.read_lost(TASK, 1, start)) == (b"abcdef" + REST_LOST)[start:]


async def test_of_a_lost_attempt_that_sent_nothing_only_the_notice_is_read(logbook):
    assert await read(logbook.read_lost(TASK, 1)) == REST_LOST
