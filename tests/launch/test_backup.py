"""A cluster is restored from a dump of its database and a copy of its store, as the how-to says."""

import asyncio
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from duly.client.sync import Client
from duly.launch import backup
from tests.conftest import _run, drop_database, with_database
from tests.launch.place import Place
from tests.launch.running_up import DULY

LINES = 20_000
"""More output than the tail that is stored in the database, so that some is in the store."""
SCRIPT = f"#!/bin/sh\nseq {LINES}\necho '1' > $DULY_RESULT\n"


@pytest.fixture
def place(open_folder, dsn):
    return Place(open_folder, dsn)


@contextmanager
def new_database(server):
    name = f"restored_{os.getpid()}"
    asyncio.run(_run(server, f"create database {name}"))
    try:
        yield with_database(server, name)
    finally:
        asyncio.run(drop_database(server, name))


@contextmanager
def serving(place, dsn_file, store):
    command = ["serve", "--port", "0", "--database-file", str(dsn_file), "--store", str(store)]
    with place.start(*command) as server:
        yield server.stdout.readline().removeprefix("ready: ").strip()


def db(place, *arguments, dsn_file=None):
    command = [DULY, "db", *arguments, "--database-file", str(dsn_file or place.dsn_file)]
    return subprocess.run(command, env=place.env, capture_output=True, text=True, timeout=120)


def node(place, url, name):
    data = ["--data", str(place.folder / name), "--join-token-file", str(place.token_file)]
    return place.start("agent", "--url", url, "--name", "node", *data)


@pytest.mark.timeout(180)
def test_a_cluster_is_restored_from_a_dump_and_a_copy_of_its_store(place, postgres):
    dump, copy = place.folder / "duly.dump", place.folder / "copy"
    with (
        serving(place, place.dsn_file, place.folder / "store") as url,
        node(place, url, "node") as agent,
        Client(url, place.key) as client,
    ):
        assert agent.stdout.readline() == "joined\n"
        done = client.submit(source=SCRIPT, resources={"cpu": 0.1, "memory_mb": 32})["id"]
        assert client.wait(done)["status"] == "done"
        log = client.read_logs(done)
        waiting = client.submit(command=["true"], requires={"zone": "nowhere"})["id"]
        # While all of it runs: first the database, then the store.
        assert db(place, "dump", str(dump)).returncode == 0
        shutil.copytree(place.folder / "store", copy)
        copy.chmod(0o700)
        client.submit(command=["true"], name="after the dump", requires={"zone": "nowhere"})
    assert dump.stat().st_mode & 0o777 == 0o600
    assert len(log.splitlines()) == LINES

    with new_database(postgres) as dsn:
        new = place.folder / "new.dsn"
        new.write_text(dsn)
        restored = db(place, "restore", str(dump), dsn_file=new)
        assert restored.returncode == 0, restored.stderr
        refused = subprocess.run(
            [DULY, "serve", "--port", "0", "--database-file", new, "--store", place.folder / "x"],
            env=place.env, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (refused.returncode, "not the object store" in refused.stderr) == (1, True)
        with serving(place, new, copy) as url, node(place, url, "node") as agent:
            assert agent.stdout.readline() == "joined\n"  # As the same node, without a token.
            with Client(url, place.key) as client:
                assert client.read_logs(done) == log
                assert client.get_result(done) == 1
                assert [task["id"] for task in client.list_tasks()["items"]] == [waiting, done]
                client.update_task(waiting, requires={})
                assert client.wait(waiting)["status"] == "done"


def test_a_database_that_is_not_empty_is_not_restored_into(place):
    dump = place.folder / "duly.dump"
    assert db(place, "dump", str(dump)).returncode == 0
    refused = db(place, "restore", str(dump))
    assert (refused.returncode, "not empty" in refused.stderr) == (1, True)


def test_a_damaged_dump_restores_nothing(place, postgres):
    dump = place.folder / "duly.dump"
    assert db(place, "dump", str(dump)).returncode == 0
    with new_database(postgres) as dsn:
        new = place.folder / "new.dsn"
        new.write_text(dsn)
        whole = dump.read_bytes()
        for size in (len(whole) // 2, len(whole) - 50):
            dump.write_bytes(whole[:size])
            refused = db(place, "restore", str(dump), dsn_file=new)
            assert (refused.returncode, "Nothing was restored" in refused.stderr) == (1, True)
            assert db(place, "status", dsn_file=new).stdout.count("applied") == 0
        dump.write_text("select 1")
        refused = db(place, "restore", str(dump), dsn_file=new)
        assert (refused.returncode, "not written by" in refused.stderr) == (1, True)


async def test_the_oldest_postgresql_is_dumped_and_restored(postgres_15, tmp_path):
    names = [f"old_{os.getpid()}", f"new_{os.getpid()}"]
    old, new = (with_database(postgres_15, name) for name in names)
    for name in names:
        await _run(postgres_15, f"create database {name}")
    try:
        await backup.bring_up_to_date(old)
        await backup.dump(old, tmp_path / "dump")
        await _run(new, "create schema duly")
        assert await backup.restore(new, tmp_path / "dump", "duly_request") == []
    finally:
        for name in names:
            await drop_database(postgres_15, name)


def test_no_password_is_an_argument():
    address, environment = backup._split("postgresql://duly:p%40ss@/db?host=/run/a&port=1")
    assert address == "postgresql://duly@/db?host=%2Frun%2Fa&port=1"
    assert environment["PGPASSWORD"] == "p@ss"
    address, environment = backup._split("postgresql:///db?user=duly&password=word")
    assert (address, environment["PGPASSWORD"]) == ("postgresql:///db?user=duly", "word")
