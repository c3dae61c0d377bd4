"""Artifacts over the API: taken in by their hash, handed out, held by those who need them."""

import asyncio
import hashlib
import os

import pytest

from duly import wire
from duly.model.tenant import Scope
from duly.server import archive

DATA = b"a bundle " * 1000
HASH = hashlib.sha256(DATA).hexdigest()


def path_of(data):
    return f"/v1/artifacts/{hashlib.sha256(data).hexdigest()}"


async def upload(api, data, **options):
    return await api.call("PUT", path_of(data), content=data, **options)


def blobs(parts_store):
    """Return all that lies in the object store of artifacts."""
    folder = parts_store / "artifacts"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


async def test_what_is_uploaded_can_be_read_again_listed_and_removed(api, store):
    answer = await upload(api, DATA)
    assert (answer.status_code, answer.json()["sha256"], answer.json()["bytes"]) == (
        201,
        HASH,
        len(DATA),
    )
    assert (await upload(api, DATA)).status_code == 200
    assert (await api.call("GET", path_of(DATA))).content == DATA
    head = await api.call("HEAD", path_of(DATA))
    assert (head.status_code, head.headers["content-length"], head.content) == (
        200,
        str(len(DATA)),
        b"",
    )
    other = os.urandom(10)
    await upload(api, other)
    listed = await api.get("/v1/artifacts?limit=1")
    assert [one["bytes"] for one in listed["items"]] == [10]
    rest = await api.get(f"/v1/artifacts?limit=1&cursor={listed['next_cursor']}")
    assert ([one["sha256"] for one in rest["items"]], rest["next_cursor"]) == ([HASH], None)
    assert (await api.call("DELETE", path_of(DATA))).status_code == 204
    assert (await api.refused("GET", path_of(DATA)))[0] == 404
    assert (await api.call("HEAD", path_of(DATA))).status_code == 404
    assert len(blobs(store)) == 1
