"""Artifacts over REST: upload by hash, download, and use by tasks."""

import asyncio
import hashlib
import os

import httpx
import pytest

from duly import wire
from duly.model.tenant import Scope
from duly.server.artifacts import artifacts as keeping
from duly.server.artifacts import object_store

DATA = b"a bundle " * 1000
HASH = hashlib.sha256(DATA).hexdigest()
PART = 1000
"""Bytes of a part in these tests, so that there are many of them."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(object_store, "PART_BYTES", PART)
    monkeypatch.setattr(keeping, "PART_BYTES", PART)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def path_of(data):
    return f"/v1/artifacts/{hashlib.sha256(data).hexdigest()}"


async def upload(api, data, path=None):
    return await api.call("PUT", path or path_of(data), content=data)


def kept(store):
    """Return the files that the object store has of artifacts, half-written ones too."""
    return sorted(path.name for path in (store / "artifacts").rglob("*") if path.is_file())


async def in_parts(data, size=700):
    """Yield a body whose length nobody announces."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def plan(api, **fields):
    answer = await api.call("PATCH", "/v1/plans/unlimited", json=fields)
    assert answer.status_code == 200, answer.text


async def test_what_is_uploaded_can_be_read_listed_and_removed(api, store):
    answer = await upload(api, DATA)
    told = answer.json()
    assert (answer.status_code, told["sha256"], told["bytes"]) == (201, HASH, len(DATA))
    assert len(kept(store)) == 9
    again = await upload(api, DATA)
    assert again.status_code == 200
    used_at = again.json()["last_used_at"]
    assert (again.json(), used_at > told["last_used_at"]) == (
        told | {"last_used_at": used_at},
        True,
    )
    told = again.json()
    assert (await api.call("GET", path_of(DATA))).content == DATA
    head = await api.call("HEAD", path_of(DATA))
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(DATA)))
    assert (await upload(api, b"")).status_code == 201
    listed = await api.get("/v1/artifacts?limit=1")
    assert [one["bytes"] for one in listed["items"]] == [0]
    rest = await api.get(f"/v1/artifacts?limit=1&cursor={listed['next_cursor']}")
    assert rest == {"items": [told], "next_cursor": None}
    assert (await api.call("DELETE", path_of(DATA))).status_code == 204
    assert (await api.refused("GET", path_of(DATA)))[0] == 404
    assert (await api.refused("DELETE", path_of(DATA)))[0] == 404
    assert (await api.call("HEAD", path_of(DATA))).status_code == 404
    assert kept(store) == []


async def test_bytes_of_another_hash_are_refused_and_not_kept(api, store):
    status, error = await api.refused("PUT", path_of(b"else"), content=DATA)
    assert (status, error["code"], error["details"]["field"]) == (422, "invalid", "sha256")
    assert HASH in error["message"]
    assert kept(store) == []
    assert (await api.get("/v1/artifacts"))["items"] == []
    for name in ("x", HASH.upper(), HASH[:-1], f"{HASH}0"):
        assert (await api.refused("PUT", f"/v1/artifacts/{name}", content=DATA))[0] == 404


async def test_an_artifact_that_is_too_large_is_refused_by_what_it_says_and_by_what_comes(
    api, store
):
    await plan(api, max_artifact_bytes=len(DATA) - 1)
    for body in (DATA, in_parts(DATA)):
        status, error = await api.refused("PUT", path_of(DATA), content=body)
        assert (status, error["code"]) == (413, "too_large")
        assert error["details"]["limit"] == len(DATA) - 1
    assert kept(store) == []
    await plan(api, max_artifact_bytes=len(DATA))
    assert (await upload(api, in_parts(DATA), path_of(DATA))).status_code == 201


async def test_the_total_of_a_tenant_is_bounded_and_told(api, store, stranger):
    await plan(api, artifact_bytes=2 * len(DATA))
    assert (await upload(api, DATA)).status_code == 201
    told = (await api.get("/v1/limits"))["artifact_bytes"]
    assert told == {"limit": 2 * len(DATA), "used": len(DATA), "left": len(DATA)}
    other = os.urandom(len(DATA) + 1)
    for body in (other, in_parts(other)):
        status, error = await api.refused("PUT", path_of(other), content=body)
        assert (status, error["code"]) == (429, "limit_exceeded")
        assert error["message"].startswith("Limit exceeded: ")
        assert error["details"]["limit"] == "artifact_bytes"
    assert len(kept(store)) == 9
    assert (await upload(api, DATA)).status_code == 200
    assert (await upload(stranger, other)).status_code == 201
    await api.call("DELETE", path_of(DATA))
    assert (await upload(api, other)).status_code == 201


async def test_many_tiny_artifacts_count_for_what_they_take_up(api):
    await plan(api, artifact_bytes=3 * 4096)
    answers = [(await upload(api, bytes([number]))).status_code for number in range(4)]
    assert answers == [201, 201, 201, 429]


async def test_tenants_have_each_their_own(api, stranger, store):
    await upload(api, DATA)
    for method in ("GET", "HEAD"):
        assert (await stranger.call(method, path_of(DATA))).status_code == 404
    status, error = await stranger.refused(
        "POST", "/v1/tasks", json={"command": ["true"], "artifact": HASH}
    )
    assert (status, error["code"], error["details"]["field"]) == (
        422,
        "unknown_artifact",
        "artifact",
    )
    assert f"PUT /v1/artifacts/{HASH}" in error["message"]
    assert (await upload(stranger, DATA)).status_code == 201
    assert len(kept(store)) == 18
    await api.call("DELETE", path_of(DATA))
    assert (await stranger.call("GET", path_of(DATA))).content == DATA


async def test_a_store_that_can_take_no_more_is_told_and_nothing_is_kept(api, store):
    class Full:
        def __init__(self, real):
            self.real, self.components = real, 3

        async def put(self, *arguments):
            self.components -= 1
            # As on a full disk: a folder cannot be made where there is a file.
            if self.components == 0:
                (store / "artifacts" / "0000000000").touch()
                return await self.real.put(0, *arguments[1:])
            return await self.real.put(*arguments)

        def __getattr__(self, name):
            return getattr(self.real, name)

    parts_of_it = api.components.artifacts
    parts_of_it._object_store = Full(parts_of_it._object_store)
    status, error = await api.refused("PUT", path_of(DATA), content=DATA)
    assert (status, error["code"]) == (503, "unavailable")
    assert kept(store) == ["0000000000"]
    assert (await api.get("/v1/artifacts"))["items"] == []
    assert parts_of_it.uploads.used == {}


async def test_bytes_that_were_lost_can_be_uploaded_again(api, store, agent):
    await upload(api, DATA)
    task = await api.submit(artifact=HASH)
    ref = await agent.start()
    (store / "artifacts").joinpath(*sorted((store / "artifacts").rglob("*.000004"))).unlink()
    assert (await api.refused("GET", path_of(DATA)))[0] == 503
    assert (await api.call("HEAD", path_of(DATA))).status_code == 404
    asked = wire.ArtifactRequest(ref=ref, offset=4 * PART)
    # Other than a store that cannot be read, this is not worth another try.
    answer = await agent.send("artifact", asked)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unknown_artifact")
    assert (await upload(api, DATA)).status_code == 200
    assert (await api.call("GET", path_of(DATA))).content == DATA
    assert (await agent.send("artifact", asked)).status_code == 200
    assert len(kept(store)) == 9
    assert (await api.get(f"/v1/tasks/{task['id']}"))["artifact"] == HASH


async def test_who_may_submit_and_finds_it_can_count_on_it(api, components, stranger, key_for):
    """It is not sent again then, and its task may come a while later."""
    await upload(stranger, DATA)
    reader = api.with_key(await key_for("acme", "lee", Scope.READ))

    async def is_noted(who, hours):
        async with components.database.connection() as conn:
            age = "update artifacts set last_used_at = now() - make_interval(mins => $1)"
            await conn.execute(age, int(hours * 60))
            assert (await who.call("HEAD", path_of(DATA))).status_code == 200
            used = "select last_used_at > now() - interval '10 minutes' from artifacts"
            return await conn.fetchval(used)

    assert await is_noted(stranger, 2)
    assert not await is_noted(stranger, 0.5)
    assert not await is_noted(reader, 2)


async def test_a_node_reads_it_while_the_task_is_leased_to_it_and_not_a_moment_longer(api, join):
    await upload(api, DATA)
    near, far = await join("near"), await join("far", cpu=0)
    await api.submit(artifact=HASH)
    start = (await near.poll()).start[0]
    assert start.payload.artifact == HASH
    found = b""
    while True:
        answer = await near.send("artifact", wire.ArtifactRequest(ref=start.ref, offset=len(found)))
        piece = wire.decode(answer.content, wire.ArtifactChunk)
        assert piece.size == len(DATA)
        if not piece.data:
            break
        found += piece.data
    assert found == DATA
    past = wire.ArtifactRequest(ref=start.ref, offset=2**63)
    assert wire.decode((await near.send("artifact", past)).content, wire.ArtifactChunk).data == b""
    before = wire.ArtifactRequest(ref=start.ref, offset=-5)
    assert wire.decode((await near.send("artifact", before)).content, wire.ArtifactChunk).data
    ref = start.ref
    for other in (
        wire.AttemptRef(ref.task, ref.attempt, ref.token + 1),
        wire.AttemptRef(ref.task, ref.attempt + 1, ref.token),
        wire.AttemptRef(ref.task + 1, ref.attempt, ref.token),
        wire.AttemptRef(2**63, ref.attempt, ref.token),
    ):
        answer = await near.send("artifact", wire.ArtifactRequest(ref=other))
        assert answer.json()["error"]["code"] == "fenced"
    wanted = wire.ArtifactRequest(ref=ref)
    assert (await far.send("artifact", wanted)).json()["error"]["code"] == "fenced"
    assert await near.finish(ref)
    assert (await near.send("artifact", wanted)).json()["error"]["code"] == "fenced"
    plain = await api.submit()
    ref = await near.start()
    assert str(ref.task) == plain["id"]
    answer = await near.send("artifact", wire.ArtifactRequest(ref=ref))
    assert answer.json()["error"]["code"] == "fenced"


async def test_a_part_comes_in_pieces(api, agent, monkeypatch):
    """Each node that begins holds one of them here, and there may be a thousand."""
    monkeypatch.setattr(object_store, "MAX_PIECE_BYTES", 300)
    await upload(api, DATA)
    await api.submit(artifact=HASH)
    ref = await agent.start()
    sizes = []
    for offset in (0, 300, 900, 1000):
        answer = await agent.send("artifact", wire.ArtifactRequest(ref=ref, offset=offset))
        sizes.append(len(wire.decode(answer.content, wire.ArtifactChunk).data))
    assert sizes == [300, 300, 100, 300]


async def test_an_artifact_goes_with_a_command_and_is_a_hash(api):
    await upload(api, DATA)
    for task, field in (
        ({"source": "#!/bin/sh", "artifact": HASH}, "artifact"),
        ({"artifact": HASH}, "command"),
        ({"command": ["true"], "artifact": HASH.upper()}, "artifact"),
        ({"command": ["true"], "artifact": ""}, "artifact"),
    ):
        status, error = await api.refused("POST", "/v1/tasks", json=task)
        assert (status, error["code"], error["details"]["field"]) == (422, "invalid", field)


async def test_what_a_graph_of_a_schedule_says_for_all_is_a_hash(api):
    await upload(api, DATA)
    task = {"ref": "a", "command": ["true"], "artifact": HASH}
    graph = {"defaults": {"artifact": "zz"}, "tasks": [task]}
    status, error = await api.refused(
        "POST", "/v1/schedules", json={"name": "s", "every": "1h", "graph": graph}
    )
    assert (status, error["code"], error["details"]["field"]) == (422, "invalid", "artifact")


async def test_who_uploads_too_many_at_once_is_told_to_wait(api, store):
    go_on = asyncio.Event()

    async def slow(data):
        yield data[:1]
        await go_on.wait()
        yield data[1:]

    several = [bytes([number]) * 50 for number in range(4)]
    async with asyncio.TaskGroup() as group:
        uploads = [group.create_task(upload(api, slow(one), path_of(one))) for one in several]
        async with asyncio.timeout(10):
            while sum(api.components.artifacts.uploads.used.values()) < 4:
                await asyncio.sleep(0.01)
        assert (await api.refused("PUT", path_of(DATA), content=DATA))[0] == 503
        go_on.set()
    assert [one.result().status_code for one in uploads] == [201] * 4
    assert (await upload(api, DATA)).status_code == 201


# Over HTTP


async def test_two_uploads_of_the_same_at_once_keep_it_once(real, store):
    data = os.urandom(100_000)
    answers = await asyncio.gather(*(upload(real, data) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers)[-1] == 201
    assert [answer.status_code for answer in answers].count(201) == 1
    assert len(kept(store)) == 100
    assert (await real.call("GET", path_of(data))).content == data


async def test_an_upload_that_is_cut_off_leaves_nothing(real, store):
    url, key = httpx.URL(real.client.base_url), real.client.headers["authorization"]
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = f"PUT {path_of(DATA)} HTTP/1.1\r\nhost: x\r\nauthorization: {key}\r\n"
    writer.write(f"{head}content-length: {len(DATA)}\r\n\r\n".encode() + DATA[:5500])
    await writer.drain()
    async with asyncio.timeout(10):
        while len(kept(store)) < 5:
            await asyncio.sleep(0.01)
    writer.close()
    async with asyncio.timeout(10):
        while kept(store):
            await asyncio.sleep(0.01)
    assert (await real.get("/v1/artifacts"))["items"] == []
    assert (await upload(real, DATA)).status_code == 201


async def test_what_is_there_need_not_be_sent_and_the_connection_goes_on(real):
    data = os.urandom(500_000)
    assert (await upload(real, data)).status_code == 201
    assert [(await upload(real, data)).status_code for _ in range(3)] == [200] * 3
    assert (await real.call("HEAD", path_of(data))).headers["content-length"] == "500000"
    assert (await real.call("GET", path_of(data))).content == data
