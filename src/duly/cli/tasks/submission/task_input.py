"""`--stdin`: sends input along with a task, and hints at input that nobody reads.

Input is never read without the flag: `while read line; do duly submit …; done` would lose its
lines to the first task.
"""

import fcntl
import os
import stat
import sys
import termios

from typer import BadParameter

from duly.cli.connect import print_notice

MAX_INPUT_BYTES = 1024 * 1024
HINT = (
    "Standard input is not sent to the task. Send it with '--stdin -', or silence this hint with "
    "'</dev/null'."
)


def read_input(name: str) -> str:
    """Read the file `name`, or standard input for `-`; UTF-8 text of at most 1 MiB."""
    shown = "standard input" if name == "-" else repr(name)
    try:
        # Not sys.stdin, which may be None, nor closed at the end: it is not ours.
        with open(0 if name == "-" else name, "rb", closefd=name != "-") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a file name"
        raise _refusal(f"{shown} cannot be read: {why}.") from error
    if len(data) > MAX_INPUT_BYTES:
        raise _refusal(f"{shown} is larger than 1 MiB. Send it as a file with --bundle FOLDER.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _refusal(f"{shown} is not UTF-8 text. Send it as a file with --bundle FOLDER.")
    return text


def hint_at_unread_input(stdin: str | None) -> None:
    """Say that input is there which the task will not get, unless --stdin was given."""
    if stdin is None and has_unread_input(0):
        print_notice(HINT)


def has_unread_input(fd: int) -> bool:
    """Return True if a pipe has bytes to read, or a file was redirected; consumes nothing.

    A file that was read from already is the input of a loop in a script.
    """
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > 0 and os.lseek(fd, 0, os.SEEK_CUR) == 0
        if stat.S_ISFIFO(status.st_mode):
            count = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
            return int.from_bytes(count, sys.byteorder) > 0
    except OSError:
        pass
    return False


def _refusal(message: str) -> BadParameter:
    return BadParameter(message, param_hint="--stdin")
