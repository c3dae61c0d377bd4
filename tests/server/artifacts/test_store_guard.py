"""A store that disappears while the server runs is noticed, and never created anew."""

from uuid import UUID

import obstore
import pytest

from duly.errors import Unavailable, UnknownArtifact
from duly.server.artifacts.log_store import LogStore
from duly.server.artifacts.object_store import ObjectStore
from duly.server.artifacts.store_access import open_store
from duly.server.artifacts.store_guard import StoreGuard
from duly.server.artifacts.store_mark import write_mark
from duly.store.tasks.artifacts import Blob
from duly.wire import AttemptRef

OURS = UUID(int=1)
THEIRS = UUID(int=2)
REF = AttemptRef(1, 1, 7)
BLOB = Blob(1, 2, 3)


@pytest.fixture
async def guard(tmp_path):
    url = str(tmp_path / "store")
    await write_mark(open_store(url), OURS)
    return StoreGuard(url, OURS)


@pytest.fixture
def log_store(tmp_path, guard):
    return LogStore(str(tmp_path / "store"), guard, limit=1000)


@pytest.fixture
def object_store(tmp_path, guard):
    return ObjectStore(str(tmp_path / "store"), guard)


async def read(stream):
    return b"".join([data async for data in stream])


async def test_a_folder_that_is_gone_is_not_created_by_a_write(tmp_path, log_store, object_store):
    (tmp_path / "store").rename(tmp_path / "unmounted")
    with pytest.raises(Unavailable, match="The object store is gone"):
        await log_store.append(REF, 0, b"x")
    with pytest.raises(Unavailable, match="The object store is gone"):
        await object_store.put(1, 2, 0, b"x")
    assert not (tmp_path / "store").exists()
    (tmp_path / "unmounted").rename(tmp_path / "store")
    await log_store.append(REF, 0, b"x")
    assert await read(log_store.read(1, 1)) == b"x"


async def test_what_is_merely_elsewhere_is_not_reported_as_missing(
    tmp_path, log_store, object_store
):
    (tmp_path / "store").rename(tmp_path / "unmounted")
    with pytest.raises(Unavailable):
        await read(log_store.read_ended(1, 1, size=10, tail=b"x"))
    with pytest.raises(Unavailable):
        await object_store.is_whole(BLOB)
    with pytest.raises(Unavailable):
        await object_store.piece(BLOB, 0)
    (tmp_path / "unmounted").rename(tmp_path / "store")
    assert not await object_store.is_whole(BLOB)
    with pytest.raises(UnknownArtifact):
        await object_store.piece(BLOB, 0)


async def test_nothing_is_deleted_from_the_store_of_another_database(
    tmp_path, log_store, object_store
):
    await log_store.append(REF, 0, b"x")
    await object_store.put(1, 2, 0, b"abc")
    await write_mark(open_store(str(tmp_path / "store")), THEIRS)
    for deletion in (log_store.drop([1]), log_store.drop_before(1000), object_store.drop(BLOB)):
        with pytest.raises(Unavailable, match="another database"):
            await deletion
    await write_mark(open_store(str(tmp_path / "store")), OURS)
    assert await object_store.is_whole(BLOB)
    assert await read(log_store.read(1, 1)) == b"x"


async def test_a_store_that_is_gone_and_back_is_logged_once_each(tmp_path, guard, caplog):
    (tmp_path / "store").rename(tmp_path / "unmounted")
    await guard.tick()
    await guard.tick()
    assert guard.problem is not None
    (tmp_path / "unmounted").rename(tmp_path / "store")
    await guard.tick()
    await guard.tick()
    assert guard.problem is None
    gone, back = caplog.messages
    assert "logs and artifacts are refused: The object store is gone" in gone
    assert back == "the object store is back"


async def test_a_damaged_mark_and_an_error_of_the_store_are_problems(tmp_path, guard):
    store = open_store(str(tmp_path / "store"))
    await obstore.put_async(store, "duly-store.json", b"{}")
    await guard.tick()
    assert "is damaged" in guard.problem
    (tmp_path / "store" / "duly-store.json").unlink()
    (tmp_path / "store" / "duly-store.json").mkdir()
    await guard.tick()
    assert guard.problem is not None and "\n" not in guard.problem
