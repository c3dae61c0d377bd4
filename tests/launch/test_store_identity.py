"""A server whose object store is not that of the database does not start."""

import asyncio
import os
import shutil

import asyncpg
import pytest

from duly.errors import ConfigError
from duly.launch import store_identity
from duly.launch.store_identity import check, name_of, replace
from duly.server.artifacts.store_mark import NAME


async def execute(dsn, statement):
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


async def test_the_first_server_registers_its_store_and_later_ones_use_it(dsn, tmp_path):
    store = tmp_path / "store"
    await check(dsn, str(store))
    await check(dsn, str(store))
    (tmp_path / "mounted").symlink_to(store)
    await check(dsn, f"file://{tmp_path}/mounted")


async def test_another_folder_is_refused_with_what_to_do(dsn, tmp_path):
    await check(dsn, str(tmp_path / "store"))
    with pytest.raises(ConfigError) as refused:
        await check(dsn, str(tmp_path / "private"))
    assert f"registered as {tmp_path}/store on " in refused.value.message
    assert f"{tmp_path}/private has no {NAME}" in refused.value.message
    assert f"'duly db use-store --store {tmp_path}/private'" in refused.value.message
    assert not (tmp_path / "private").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_server_of_another_system_user_is_refused(dsn, tmp_path):
    store = tmp_path / "store"
    await check(dsn, str(store))
    os.chown(store / NAME, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user id 12345, and this server"):
        await check(dsn, str(store))


async def test_an_error_of_a_store_is_told_in_one_line(dsn, tmp_path):
    (tmp_path / "store" / NAME).mkdir(parents=True)
    (tmp_path / "file").touch()
    for store in ("store", "file"):
        with pytest.raises(ConfigError, match="Cannot use the object store") as refused:
            await check(dsn, str(tmp_path / store))
        assert "\n" not in refused.value.message


async def test_of_servers_that_start_at_once_on_two_stores_one_is_refused(dsn, tmp_path):
    starts = [check(dsn, str(tmp_path / name)) for name in ("a", "a", "b", "b")]
    refused = [
        isinstance(end, ConfigError)
        for end in await asyncio.gather(*starts, return_exceptions=True)
    ]
    assert refused in ([False, False, True, True], [True, True, False, False])


async def test_a_server_killed_before_it_registered_its_store_starts_again(dsn, tmp_path):
    await check(dsn, str(tmp_path / "store"))
    await execute(dsn, "update object_store set registered_at = null, registered_by = null")
    await check(dsn, str(tmp_path / "store"))


async def test_a_store_that_is_copied_whole_can_be_used_in_its_new_place(dsn, tmp_path):
    await check(dsn, str(tmp_path / "store"))
    shutil.copytree(tmp_path / "store", tmp_path / "moved")
    (tmp_path / "moved").chmod(0o700)
    await check(dsn, str(tmp_path / "moved"))


async def test_the_store_of_another_database_is_refused_until_it_is_taken_over(dsn, tmp_path):
    store = tmp_path / "store"
    await check(dsn, str(store))
    await execute(dsn, "update object_store set id = gen_random_uuid()")
    with pytest.raises(ConfigError, match="two databases cannot share one"):
        await check(dsn, str(store))
    with pytest.raises(ConfigError, match="add --take-over"):
        await replace(dsn, str(store), take_over=False)
    assert await replace(dsn, str(store), take_over=True)
    await check(dsn, str(store))


async def test_a_lost_store_is_replaced_once_no_server_runs(dsn, tmp_path):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    await check(dsn, old)
    await execute(
        dsn,
        "insert into servers values (9, 'host-a', gen_random_uuid(), '1', now(), now(), 0)",
    )
    with pytest.raises(ConfigError, match=r"Stop all servers first\. host-a still runs"):
        await replace(dsn, new, take_over=False)
    await execute(dsn, "update servers set heartbeat_at = '-infinity'")
    assert await replace(dsn, new, take_over=False)
    assert not await replace(dsn, new, take_over=False)
    await check(dsn, new)
    with pytest.raises(ConfigError, match="another database"):
        await check(dsn, old)


async def test_a_damaged_mark_and_a_silent_store_are_told(dsn, tmp_path, monkeypatch):
    await check(dsn, str(tmp_path / "store"))
    (tmp_path / "store" / NAME).write_text("{}")
    with pytest.raises(ConfigError, match="is damaged"):
        await check(dsn, str(tmp_path / "store"))
    monkeypatch.setattr(store_identity, "STORE_TIMEOUT_SECONDS", 0)
    with pytest.raises(ConfigError, match="no response within 0 s"):
        await check(dsn, str(tmp_path / "store"))


def test_the_name_of_a_store_has_no_secrets():
    assert name_of("s3://id:key@bucket/folder?token=x") == "s3://bucket/folder"
