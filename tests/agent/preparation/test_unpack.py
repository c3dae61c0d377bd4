"""Unpacking bundles: what honest tools pack comes out as it was, and nothing else comes out."""

import gzip
import io
import os
import stat
import tarfile
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from duly.agent.preparation.task_users import User
from duly.agent.preparation.unpack import Abandoned, fill
from duly.errors import Invalid
from duly.model.archives.bundle import MAX_DEPTH
from duly.model.archives.gunzip import MAX_MEMBERS
from duly.model.archives.tar import BLOCK_BYTES, MAX_HEADER_BYTES, Tar, UnpackedTooLarge
from duly.model.wording import format_bytes

MANY = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PART = st.text(
    st.characters(
        exclude_characters="/\0", exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")
    ),
    min_size=1,
    max_size=60,
).filter(lambda part: part not in (".", ".."))


def entry(name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*entries, form=tarfile.PAX_FORMAT, packed=False):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(file.getvalue()) if packed else file.getvalue()


def take(data, folder, user=None, most_bytes=10**6, **options):
    folder.mkdir(mode=0o700)
    with io.BufferedReader(io.BytesIO(data)) as file:
        fill(file, str(folder), user, most_bytes=most_bytes, **options)
    return folder


def refusal(data, folder, **options):
    """Return why an archive is refused, having seen that nothing came out beside its folder."""
    top = Path(tempfile.mkdtemp(dir=folder))
    with pytest.raises(Invalid) as refused:
        take(data, top / "job", **options)
    assert [path.name for path in top.iterdir()] == ["job"]
    return refused.value.message


def header(name=b"a", kind=b"0", size=0, mode=0o644, field=None):
    """Return a block made by hand, for what no tool would write."""
    block = bytearray(BLOCK_BYTES)
    block[: len(name)] = name
    block[100:107] = b"%07o" % mode
    block[124:136] = (b"%011o " % size) if field is None else field
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("packed", [False, True])
def test_files_and_folders_come_out_as_they_were(tmp_path, form, packed):
    long = "/".join(["folder-with-a-name"] * 8) + "/file"
    data = tar(
        entry(".", type=tarfile.DIRTYPE),
        entry("./run.sh", b"#!/bin/sh\n", mode=0o4711),
        entry("empty", type=tarfile.DIRTYPE, mode=0o7777),
        entry(long, bytes(100_000)),
        entry("ä/ö", b"x" * BLOCK_BYTES, mode=0o000),
        form=form,
        packed=packed,
    )
    job = take(data, tmp_path / "job")
    assert (job / "run.sh").read_bytes() == b"#!/bin/sh\n"
    assert (job / long).read_bytes() == bytes(100_000)
    assert (job / "ä/ö").read_bytes() == b"x" * BLOCK_BYTES
    assert list((job / "empty").iterdir()) == []
    modes = [stat.S_IMODE((job / name).stat().st_mode) for name in ("run.sh", "ä/ö", "empty", "ä")]
    assert modes == [0o755, 0o644, 0o755, 0o755]
    assert stat.S_IMODE(job.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_all_of_it_belongs_to_the_user_of_the_attempt(tmp_path):
    job = take(tar(entry("a/b", b"x")), tmp_path / "job", User(61_000, 61_001))
    for path in (job, job / "a", job / "a/b"):
        assert (path.stat().st_uid, path.stat().st_gid) == (61_000, 61_001)


@MANY
@given(
    files=st.dictionaries(
        st.lists(PART, min_size=1, max_size=4).map(tuple), st.binary(max_size=2000), max_size=6
    ),
    form=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    packed=st.booleans(),
)
def test_whatever_a_tool_has_packed_comes_out(tmp_path_factory, files, form, packed):
    folders = {parts[:n] for parts in files for n in range(1, len(parts))}
    files = {parts: data for parts, data in files.items() if parts not in folders}
    if any(len(part.encode()) > 255 for parts in files for part in parts):
        return
    data = tar(*(entry("/".join(p), d) for p, d in files.items()), form=form, packed=packed)
    job = take(data, tmp_path_factory.mktemp("unpacked") / "job")
    found = {
        path.relative_to(job).parts: path.read_bytes() for path in job.rglob("*") if path.is_file()
    }
    assert found == files


@MANY
@given(noise=st.binary(max_size=3000), at=st.integers(0, 4000), packed=st.booleans())
@example(noise=b"", at=0, packed=True)
def test_whatever_it_is_it_is_unpacked_or_refused(tmp_path_factory, noise, at, packed):
    """An archive with something overwritten, anywhere."""
    data = bytearray(tar(entry("a/b", b"x" * 700), entry("c" * 120, b"y", mode=0o755)))
    data[at : at + len(noise)] = noise
    top = tmp_path_factory.mktemp("unpacked")
    try:
        take(gzip.compress(bytes(data)) if packed else bytes(data), top / "job")
    except Invalid as error:
        assert error.message.endswith(".")
    assert [path.name for path in top.iterdir()] == ["job"]


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "//x", "../x", "a/../../x", "..", "a/..", "a//b", "a/", "\u202etxt.exe",
        "a\nb", "a\x1b[2J", "x" * 256, "/".join(["y" * 200] * 6), "/".join("a" * (MAX_DEPTH + 2)),
        "a\u2028b", "\x7f", "./", ".",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_that_lead_elsewhere_or_deceive_are_refused(tmp_path, name, form):
    told = refusal(tar(entry(name, b"x"), form=form), tmp_path)
    assert "name" in told or "deep" in told
    assert told.isprintable()


def test_a_name_may_not_hold_what_is_no_letter(tmp_path):
    assert "is not UTF-8 text" in refusal(header(b"a\xff") + bytes(1024), tmp_path)
    record = b"17 path=etc/\0pass\n"
    record = b"%d path=etc/\0pass\n" % len(record)
    data = (
        header(b"h", b"x", len(record)) + record.ljust(BLOCK_BYTES, b"\0") + header() + bytes(1024)
    )
    assert "contains invisible characters" in refusal(data, tmp_path)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "a symbolic link"), (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"), (tarfile.BLKTYPE, "a device"), (tarfile.FIFOTYPE, "a FIFO"),
        (tarfile.CONTTYPE, "something unknown"), (tarfile.GNUTYPE_SPARSE, "a sparse file"),
    ],
)  # fmt: skip
def test_what_is_neither_file_nor_folder_is_refused(tmp_path, kind, what):
    told = refusal(tar(entry("x", type=kind, linkname="/etc/shadow")), tmp_path)
    assert what in told and "'x'" in told


def test_a_link_is_never_written_through(tmp_path):
    """Not from the archive, which may hold none; and not from elsewhere, beneath our feet."""
    data = tar(entry("d", type=tarfile.SYMTYPE, linkname="/tmp"), entry("d/x", b"x"))
    assert "symbolic link" in refusal(data, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    swapped = []

    def swap():
        if not swapped and (tmp_path / "new/d").exists():
            (tmp_path / "new/d").rename(tmp_path / "away")
            (tmp_path / "new/d").symlink_to(other)
            swapped.append(True)
        return False

    data = tar(entry("d/x", b"x"), entry("e", b""), entry("d/y", b"y"))
    with pytest.raises(Invalid):
        take(data, tmp_path / "new", is_unwanted=swap)
    assert swapped and list(other.iterdir()) == []


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("./a", "a"), ("d/", "d")]
)
def test_nothing_is_written_twice(tmp_path, names):
    entries = [
        entry(one.rstrip("/"), type=tarfile.DIRTYPE) if one.endswith("/") else entry(one, b"x")
        for one in names
    ]
    assert "twice" in refusal(tar(*entries), tmp_path)


def test_a_folder_may_be_named_after_what_is_in_it(tmp_path):
    data = tar(entry("d/x", b"1"), entry("e", b"2"), entry("d", type=tarfile.DIRTYPE))
    job = take(data, tmp_path / "job")
    assert sorted(path.name for path in job.rglob("*")) == ["d", "e", "x"]


class Endless(io.RawIOBase):
    """A file of which each block is like the last, after what it begins with."""

    def __init__(self, start, block, most):
        self.start, self.block, self.left = io.BytesIO(start), block, most

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self.start.read(len(buffer)) or self.block[: len(buffer)]
        self.left -= len(data)
        assert self.left > 0, "read on and on"
        buffer[: len(data)] = data
        return len(data)


@pytest.mark.parametrize(
    ("start", "block", "told"),
    [
        (header(size=10**9), bytes(BLOCK_BYTES), "more than 1000000 bytes"),
        (header(field=b"\x80" + b"\xff" * 11), bytes(BLOCK_BYTES), "more than 1000000 bytes"),
        (header(field=b"\xff" * 12), bytes(BLOCK_BYTES), "damaged"),
        (header(kind=b"L", size=8 * 10**9), b"a" * BLOCK_BYTES, format_bytes(MAX_HEADER_BYTES)),
        (header(kind=b"x", size=8 * 10**9), b"1" * BLOCK_BYTES, format_bytes(MAX_HEADER_BYTES)),
        (b"", header(kind=b"x"), "more than 1000 files and folders"),
        (b"", header(kind=b"g"), "more than 1000 files and folders"),
        (b"", header(b"d", b"5"), "more than 1000 files and folders"),
        (b"", b"1" * BLOCK_BYTES, "checksum"),
    ],
)
def test_what_would_never_end_is_refused(start, block, told):
    source = io.BufferedReader(Endless(start, block, 10**6), BLOCK_BYTES)
    with source, pytest.raises(Invalid, match=told):
        for _ in Tar(source, most_bytes=10**6, most_entries=1000):
            pass


@pytest.mark.parametrize("kind", [b"0", b"L", b"x"])
def test_a_bomb_takes_neither_memory_nor_disk(tmp_path, kind):
    """A thousand times as long as it was sent, in one file; and in the header of one."""
    size = 20 * 10**6
    bomb = gzip.compress(header(size=size, kind=kind) + bytes(size))
    assert len(bomb) < size / 900
    tracemalloc.start()
    try:
        refusal(bomb, tmp_path, most_bytes=size - 1)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_many_files_are_counted_together(tmp_path):
    files = [entry(str(n), bytes(1000)) for n in range(11)]
    with pytest.raises(UnpackedTooLarge):
        take(tar(*files), tmp_path / "a", most_bytes=10_999)
    take(tar(*files), tmp_path / "b", most_bytes=11_000)


@pytest.mark.parametrize("cut", [0, 100, BLOCK_BYTES, 600, 2 * BLOCK_BYTES])
def test_half_an_archive_is_refused(tmp_path, cut):
    data = tar(entry("a", b"x" * 300))
    assert "too early" in refusal(data[:cut], tmp_path)
    assert "damaged gzip" in refusal(gzip.compress(data)[: 12 + cut // 32], tmp_path)


@pytest.mark.parametrize(
    ("most", "told"),
    [("MAX_RECORDS", "more than 5000 records"), ("MAX_TOTAL_HEADER_BYTES", "in total")],
)
def test_what_headers_say_is_counted_together(tmp_path, monkeypatch, most, told):
    monkeypatch.setattr(f"duly.model.archives.tar.{most}", 5000)
    text = b"5 a=\n" * 600
    one = header(kind=b"x", size=len(text)) + text.ljust(6 * BLOCK_BYTES, b"\0")
    assert told in refusal(gzip.compress(one * 10 + header() + bytes(1024)), tmp_path)


def test_gzip_archives_one_after_the_other_are_one(tmp_path):
    data = tar(entry("a", b"x" * 3000), entry("b", b"y"))
    pieces = b"".join(gzip.compress(data[at : at + 700]) for at in range(0, len(data), 700))
    job = take(pieces, tmp_path / "job")
    assert ((job / "a").read_bytes(), (job / "b").read_bytes()) == (b"x" * 3000, b"y")
    padded = gzip.compress(data[:700]) + bytes(70_000) + gzip.compress(data[700:])
    assert (take(padded, tmp_path / "padded") / "b").read_bytes() == b"y"


def test_empty_gzip_archives_are_counted(tmp_path):
    """Each of them gives nothing to whoever reads, so that it could not be told to stop."""
    nothing = gzip.compress(b"") * (MAX_MEMBERS + 1)
    assert "gzip archives" in refusal(nothing + gzip.compress(tar(entry("a"))), tmp_path)


def test_folders_that_only_names_tell_of_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("duly.agent.preparation.unpack.MAX_ENTRIES", 100)
    deep = "x/" * (MAX_DEPTH - 2) + "f"
    assert "folders" in refusal(tar(*(entry(f"{n}/{deep}") for n in range(2))), tmp_path)


def test_sparse_files_of_pax_are_refused(tmp_path):
    info, data = entry("a", b"x")
    info.pax_headers = {"GNU.sparse.major": "1"}
    assert "sparse" in refusal(tar((info, data)), tmp_path)


@pytest.mark.parametrize(
    "record",
    [
        b"9 path=a",
        b"1 a=b\n",
        b"99 a=b\n",
        b"x a=b\n",
        b"6 a-b\n",
        b"5 =b\n",
        b"\0" * 9,
        b"5 a=\n" + b"y" * 30,
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, record):
    data = (
        header(kind=b"x", size=len(record))
        + record.ljust(BLOCK_BYTES, b"\0")
        + header()
        + bytes(1024)
    )
    refusal(data, tmp_path)


def test_what_git_says_of_all_files_is_passed_over(tmp_path):
    record = b"14 comment=ab\n"
    data = header(kind=b"g", size=len(record)) + record.ljust(BLOCK_BYTES, b"\0")
    take(data + header() + bytes(1024), tmp_path / "job")
    record = b"10 path=x\n"
    data = header(kind=b"g", size=len(record)) + record.ljust(BLOCK_BYTES, b"\0")
    assert "which only one entry can have" in refusal(data + header() + bytes(1024), tmp_path)


def test_it_stops_when_nobody_waits_for_it(tmp_path):
    data = tar(entry("a", bytes(500_000)), entry("b"))
    looks = iter([False, False, True])
    with pytest.raises(Abandoned):
        take(data, tmp_path / "job", is_unwanted=lambda: next(looks))
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["a"]


def test_entries_can_be_looked_at_without_their_bytes():
    data = tar(entry("a", b"x" * 700), entry("d", type=tarfile.DIRTYPE), entry("b", b"y"))
    found = [(one.parts, one.size, one.is_folder) for one in Tar(io.BytesIO(data))]
    assert found == [(("a",), 700, False), (("d",), 0, True), (("b",), 1, False)]
