"""Stops the main thread of another process, and no other thread of it, as a hang would."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WAITS = {"x86_64": ("232", "281"), "aarch64": ("22",)}
"""The numbers of epoll_wait and epoll_pwait: who waits there does not hold the interpreter."""


@contextmanager
def standing_still(pid: int) -> Iterator[Callable[[], bool]]:
    """Let the main thread stand still where it waits for events, until the block is left.

    Gives what says whether the process has ended; its parent hears of it only by that.
    """
    while True:
        _trace(PTRACE_SEIZE, pid)
        _trace(PTRACE_INTERRUPT, pid)
        os.waitpid(pid, os.WUNTRACED)
        if Path(f"/proc/{pid}/syscall").read_text().split()[0] in WAITS[os.uname().machine]:
            break
        _trace(PTRACE_DETACH, pid)
    try:
        yield lambda: os.waitpid(pid, os.WNOHANG)[0] == pid
    finally:
        _libc().ptrace(PTRACE_DETACH, pid, None, None)


def _trace(request: int, pid: int) -> None:
    if _libc().ptrace(request, pid, None, None):
        pytest.skip(f"no process can be traced here: {os.strerror(ctypes.get_errno())}")


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long
    return libc
