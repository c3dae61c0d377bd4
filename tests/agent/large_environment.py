"""A process whose environment, as /proc shows it, has 64 MiB: it needs no privilege for that.

The kernel lets a process say where its environment is (prctl PR_SET_MM_MAP), and so how large.
"""

import ctypes
import mmap
import time
from pathlib import Path

PR_SET_MM, PR_SET_MM_MAP = 35, 14
NOTHING = 2**32 - 1
ADDRESSES = (
    *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"),
    *("arg_start", "arg_end", "env_start", "env_end", "auxv"),
)
STAT_FIELDS = {
    "start_code": 26,
    "end_code": 27,
    "start_stack": 28,
    "start_data": 45,
    "end_data": 46,
    "start_brk": 47,
    "arg_start": 48,
    "arg_end": 49,
}
SIZE = 64 * 2**20


class Map(ctypes.Structure):
    """struct prctl_mm_map."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ADDRESSES),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    found = Map(exe_fd=NOTHING, brk=libc.sbrk(0), env_start=at, env_end=at + SIZE)
    for name, number in STAT_FIELDS.items():
        setattr(found, name, int(fields[number - 3]))
    size = ctypes.c_ulong(ctypes.sizeof(found))
    failed = libc.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(found), size, 0)
    print("refused" if failed else "large", flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main()
