"""Packing folders, and sending them."""

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from duly.agent.preparation import unpack
from duly.client.bundle import packed_bundle
from duly.errors import Invalid, TooLarge

from .scripted import CLOSE, response, scripted
from .test_transports import call as call

LIMITS = json.dumps({"max_artifact_bytes": 10_000}).encode()


def fill(folder, files, at=1_000_000_000):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o750 if text.startswith("#!") else 0o640)
        os.utime(path, (at, at))
    return folder


def sha256(folder):
    with packed_bundle(folder) as bundle:
        return bundle.sha256


FILES = {"run.sh": "#!/bin/sh\n", "b/data": "1", "a": "2", "b/deep/ü": "3"}


def test_equal_folders_make_equal_bundles(tmp_path):
    first = fill(tmp_path / "one", FILES)
    two = fill(tmp_path / "two", dict(reversed(FILES.items())), at=1_700_000_000)
    (two / "a").chmod(0o604)
    fill(two, {".git/config": "x", "b/__pycache__/c.pyc": "x"})
    assert sha256(first) == sha256(two)
    for name, text in (("a", "3"), ("c", "")):
        fill(two, {name: text})
        assert sha256(first) != sha256(two)
    fill(two, {"a": "2"})
    (two / "c").unlink()
    assert sha256(first) == sha256(two)
    (two / "a").chmod(0o700)
    assert sha256(first) != sha256(two)


def test_a_node_unpacks_what_was_packed(tmp_path):
    folder = fill(tmp_path / "job", FILES)
    (folder / "empty").mkdir()
    with packed_bundle(folder) as bundle, bundle.file.open("rb") as file:
        assert bundle.size == bundle.file.stat().st_size
        (tmp_path / "out").mkdir()
        unpack.fill(file, str(tmp_path / "out"), None, most_bytes=1000)
    assert not bundle.file.exists()
    unpacked = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*")}
    assert unpacked == {*FILES, "b", "b/deep", "empty"}
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o777 == 0o755


def test_an_archive_is_sent_as_it_is(tmp_path):
    file = tmp_path / "job.tar"
    with tarfile.open(file, "w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    with packed_bundle(file) as bundle:
        assert bundle.file == file
    assert file.exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: (path / "x").symlink_to("/etc"), "'x' is a symbolic link"),
        (lambda path: os.mkfifo(path / "x"), "'x' is neither a file"),
        (lambda path: (path / "a\nb").touch(), "contains invisible characters"),
        (
            lambda path: Path(os.fsdecode(bytes(path) + b"/\xff")).touch(),
            "contains invisible characters",
        ),
    ],
)
def test_what_no_node_would_take_is_not_sent(tmp_path, make, message):
    make(tmp_path)
    with pytest.raises(Invalid, match=message) as refused, packed_bundle(tmp_path):
        pass
    assert refused.value.problem.startswith(repr(str(tmp_path))[:30])


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "No such file"), (b"", "not a tar"), (b"#!/bin/sh\n" * 99, "not a tar"),
     (gzip.compress(b"x", mtime=0), "too early"), (b"\x1f\x8bxxxx", "damaged gzip")],
)  # fmt: skip
def test_what_is_no_archive_is_not_sent(tmp_path, data, message):
    if data is not None:
        (tmp_path / "x").write_bytes(data)
    with pytest.raises(Invalid, match=message), packed_bundle(tmp_path / "x"):
        pass


async def test_what_the_servers_have_is_not_sent_again(call, tmp_path):
    fill(tmp_path, FILES)
    with scripted(response(200, b"")) as peer:
        assert await call(peer.url, "upload", tmp_path) == sha256(tmp_path)
    assert peer.lines() == [f"HEAD /v1/artifacts/{sha256(tmp_path)} HTTP/1.1"]


async def test_it_is_sent_until_it_is_there(call, tmp_path):
    fill(tmp_path, FILES)
    script = response(404, b""), response(200, LIMITS), CLOSE, response(503), response(201)
    with scripted(*script) as peer:
        name = await call(peer.url, "upload", str(tmp_path))
    assert [line.split()[0] for line in peer.lines()] == ["HEAD", "GET", "PUT", "PUT", "PUT"]
    with packed_bundle(tmp_path) as bundle:
        sent = bundle.file.read_bytes()
    assert name == sha256(tmp_path)
    for request in peer.requests[2:]:
        head, _, body = request.partition(b"\r\n\r\n")
        assert body == sent
        assert f"PUT /v1/artifacts/{name} ".encode() in head
        assert b"content-type: application/octet-stream" in head.lower()


async def test_what_the_plan_does_not_allow_is_not_sent(call, tmp_path):
    (tmp_path / "x").write_bytes(os.urandom(10_000))
    refusal = pytest.raises(TooLarge, match="your plan allows 10000")
    with scripted(response(404, b""), response(200, LIMITS)) as peer, refusal:
        await call(peer.url, "upload", tmp_path)
    assert len(peer.requests) == 2


async def test_a_key_that_may_only_submit_can_send(call, tmp_path):
    fill(tmp_path, FILES)
    with scripted(response(403, b""), response(201)) as peer:
        await call(peer.url, "upload", tmp_path)
    assert [line.split()[0] for line in peer.lines()] == ["HEAD", "PUT"]
