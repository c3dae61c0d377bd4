"""What tasks can put into their folders, and what a privileged reader makes of it."""

import contextlib
import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from duly.agent.preparation import safe_open
from duly.agent.preparation.safe_open import (
    OPEN_PATH_FLAGS,
    NotRegularFile,
    open_beneath,
    open_by_parts,
    read_file,
)

SECRET = b"#!/secret\n"


@pytest.fixture(params=[open_beneath, open_by_parts])
def opened(request):
    """Open something in both ways that there are."""

    def open_in(folder: Path, path: str) -> int:
        top = os.open(folder, OPEN_PATH_FLAGS)
        try:
            return request.param(top, tuple(path.split("/")))
        finally:
            os.close(top)

    return open_in


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET)
    made = tmp_path / "folder"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "file").write_bytes(b"0123456789")
    return made


def read(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        return file.read()


def error_of(act, *arguments) -> int:
    with pytest.raises(OSError) as caught:
        act(*arguments)
    return caught.value.errno


def test_a_file_is_opened_beneath_its_folder(folder, opened):
    assert read(opened(folder, "inner/file")) == b"0123456789"
    assert error_of(opened, folder, "inner/none") == errno.ENOENT
    assert error_of(opened, folder, "inner/file/none") == errno.ENOTDIR


def test_no_link_is_followed(folder, opened):
    (folder / "file").symlink_to("inner/file")
    (folder / "out").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    assert error_of(opened, folder, "file") == errno.ELOOP
    assert error_of(opened, folder, "loop") == errno.ELOOP
    assert error_of(opened, folder, "out/secret") in (errno.ELOOP, errno.ENOTDIR)


def test_other_file_systems_are_not_entered(opened):
    assert error_of(opened, Path("/"), "proc/version") == errno.EXDEV


def test_no_pipe_is_waited_for(folder, opened):
    os.mkfifo(folder / "pipe")
    os.close(opened(folder, "pipe"))


def test_no_lease_is_waited_for(folder, opened):
    holder = os.open(folder / "inner" / "file", os.O_RDWR)
    broken = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        try:
            fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            pytest.skip("this file system has no leases")
        assert error_of(opened, folder, "inner/file") == errno.EWOULDBLOCK
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, broken)


def test_descriptors_are_closed_whatever_happens(folder, opened):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in ("inner/file", "inner/none", "inner", "none/file"):
        with contextlib.suppress(OSError):
            os.close(opened(folder, path))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_only_the_start_of_a_file_is_read(folder):
    assert read_file(str(folder), "inner/file", 4) == b"0123"
    assert read_file(str(folder), "./inner//file", 4) == b"0123"


@pytest.mark.parametrize(
    "path", ["../secret", "inner/../../secret", "inner/../inner/file", "..", "", ".", "/"]
)
def test_no_path_leads_out_of_the_folder(folder, path):
    with pytest.raises(NotRegularFile):
        read_file(str(folder), path, 10)


def test_an_absolute_path_is_not_beneath(folder, tmp_path):
    with pytest.raises(NotRegularFile):
        read_file(str(folder), str(tmp_path / "secret"), 10)


def test_what_is_no_plain_file_is_not_read(folder, tmp_path):
    os.mkfifo(folder / "pipe")
    (folder / "other").hardlink_to(tmp_path / "secret")
    for path in ("pipe", "other", "inner"):
        with pytest.raises(NotRegularFile):
            read_file(str(folder), path, 10)


def test_a_folder_that_is_a_link_is_none(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError):
        read_file(str(tmp_path / "link"), "inner/file", 10)
    with pytest.raises(OSError):
        safe_open.open_folder(str(tmp_path / "link"))


def test_a_folder_is_made_private_and_what_a_link_leads_to_is_not(folder):
    top = safe_open.open_folder(str(folder))
    (folder / "link").symlink_to("inner")
    (folder / "inner").chmod(0o555)
    with pytest.raises(OSError):
        safe_open.make_private("link", dir_fd=top)
    assert (folder / "inner").stat().st_mode & 0o777 == 0o555
    safe_open.make_private("inner", dir_fd=top)
    assert (folder / "inner").stat().st_mode & 0o777 == 0o700
    os.close(top)
