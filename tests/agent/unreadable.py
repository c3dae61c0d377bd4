"""A process whose environment cannot be read: who tries waits for as long as it lives.

Its memory is mapped from a file system of its own, which answers nothing after a while. With a
user namespace and /dev/fuse it needs no privilege for that.
"""

import ctypes
import errno
import os
import struct
import sys
import threading

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x4000, 0x40000, 2, 4
PROT_READ, MAP_PRIVATE, MAP_ANONYMOUS = 1, 2, 0x20
PAGE = 4096
FILE = 2
"""The number of the only file; the folder that it is in has 1."""
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT = 1, 2, 3, 14, 15, 26
FAILED_READS = 2
"""The kernel reads twice without holding the lock of the memory, and holds it from then on."""
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)


def main(folder: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        or libc.mount(b"test", folder.encode(), b"fuse", MS_NOSUID | MS_NODEV, options)
    ):
        sys.exit("no file system can be mounted here")
    mapping = os.fork()
    if mapping == 0:
        os.close(device)
        touch(f"{folder}/file")
    serve(device, mapping)


def touch(path: str) -> None:
    """Read from a mapped file in one thread, and change what is mapped in another."""
    file = os.open(path, os.O_RDONLY)
    mapped = libc.mmap(None, PAGE, PROT_READ, MAP_PRIVATE, file, 0)
    threading.Thread(target=lambda: libc.memcmp(ctypes.c_void_p(mapped), b"x", 1)).start()
    while True:
        made = libc.mmap(None, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        libc.munmap(made, PAGE)


def serve(device: int, mapping: int) -> None:
    """Answer as a file system with a single file, until it is read for the third time."""
    reads = 0
    while True:
        asked = os.read(device, 2**20)
        _, what, number, node = struct.unpack("<IIQQ", asked[:24])
        reads += what == READ
        if reads > FAILED_READS:
            print(mapping, flush=True)
            reads = -(2**30)
        elif what not in (READ, FORGET) or reads > 0:
            answer(device, number, *answer_to(what, node))


def answer_to(what: int, node: int) -> tuple[bytes, int]:
    if what == INIT:
        return struct.pack("<4I2HII2HI7I", 7, 31, PAGE, 0, 12, 9, PAGE, 1, 1, 0, 0, *[0] * 7), 0
    if what == LOOKUP:
        return struct.pack("<4Q2I", FILE, 1, 1000, 1000, 0, 0) + attributes(FILE), 0
    if what == GETATTR:
        return struct.pack("<Q2I", 1000, 0, 0) + attributes(node), 0
    if what == OPEN:
        return struct.pack("<Q2I", 1, 0, 0), 0
    return b"", errno.EIO if what == READ else errno.ENOSYS


def attributes(node: int) -> bytes:
    mode = 0o100644 if node == FILE else 0o40755
    return struct.pack("<6Q10I", node, PAGE, 8, *[0] * 6, mode, 1, *[0] * 3, PAGE, 0)


def answer(device: int, number: int, data: bytes, error: int) -> None:
    os.write(device, struct.pack("<IiQ", 16 + len(data), -error, number) + data)


if __name__ == "__main__":
    main(sys.argv[1])
