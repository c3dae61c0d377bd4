"""`--stdin`, and what is said about input that nobody reads."""

import os
import tempfile

import pytest
from typer import BadParameter

from duly.cli.tasks.submission.task_input import MAX_INPUT_BYTES, has_unread_input, read_input
from duly.model.requests.program_request import MAX_STDIN_BYTES


def test_a_file_is_read_as_it_is(tmp_path):
    file = tmp_path / "in"
    file.write_bytes("ü\r\n\n".encode())
    assert read_input(str(file)) == "ü\r\n\n"
    assert MAX_INPUT_BYTES == MAX_STDIN_BYTES


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"x" * (MAX_INPUT_BYTES + 1), "larger than 1 MiB"),
        (b"\xff", "not UTF-8"),
        (b"a\0b", "not UTF-8"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_way_to_send_it(tmp_path, data, problem):
    file = tmp_path / "in"
    file.write_bytes(data)
    with pytest.raises(BadParameter, match=f"{problem}.*--bundle"):
        read_input(str(file))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(
        BadParameter, match="'/no/such/file' cannot be read: No such file or directory"
    ):
        read_input("/no/such/file")


def test_bytes_in_a_pipe_are_unread_input_and_stay_there():
    reading, writing = os.pipe()
    assert not has_unread_input(reading)
    os.write(writing, b"a\nb\n")
    assert has_unread_input(reading)
    assert os.read(reading, 10) == b"a\nb\n"
    assert not has_unread_input(reading)
    os.close(reading)
    os.close(writing)


def test_a_file_is_unread_input_until_a_loop_has_begun_to_read_it():
    with tempfile.TemporaryFile() as file:
        assert not has_unread_input(file.fileno())
        os.write(file.fileno(), b"a\nb\n")
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        assert has_unread_input(file.fileno())
        assert os.read(file.fileno(), 2) == b"a\n"
        assert not has_unread_input(file.fileno())


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_devices_have_none(path):
    fd = os.open(path, os.O_RDONLY)
    assert not has_unread_input(fd)
    os.close(fd)
