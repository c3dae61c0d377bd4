"""Who PostgreSQL runs as, and how that user reaches its folder.

PostgreSQL refuses to run as root. Root therefore starts it as a system user of its
own, and that user must be able to walk down to the data folder, which may lie below
a private one such as /root. It gets exactly that: an access-control entry for one
user, to pass through and not to read, and nothing for anybody else.
"""

import errno
import os
import pwd
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from duly.errors import ConfigError

NAME = "duly"
ACL = "system.posix_acl_access"
VERSION = struct.Struct("<I")
ENTRY = struct.Struct("<HHI")
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
ENTER = 0o1
NO_ID = 0xFFFFFFFF

Entry = tuple[int, int, int]
"""Of an access-control list: its kind, the permission bits, and whose they are."""


@dataclass(frozen=True, slots=True)
class SystemUser:
    """Whom PostgreSQL's processes belong to."""

    uid: int
    gid: int

    @property
    def is_us(self) -> bool:
        """Whether this is who we are, so that nothing needs to be changed."""
        return self.uid == os.geteuid()

    @property
    def switch_uid(self) -> int | None:
        """What a new process changes its user to, if at all; so too for the groups."""
        return None if self.is_us else self.uid

    @property
    def switch_gid(self) -> int | None:
        """See `switch_uid`."""
        return None if self.is_us else self.gid

    @property
    def switch_groups(self) -> list[str | int] | None:
        """See `switch_uid`; root's other groups are not for PostgreSQL."""
        return None if self.is_us else []


def ourselves() -> SystemUser:
    """Return who this process runs as."""
    return SystemUser(os.geteuid(), os.getegid())


def user_for(data: Path) -> SystemUser:
    """Say who PostgreSQL is to run as for the cluster in `data`, which need not exist yet.

    The owner of an existing cluster stays its owner, so that a folder which an ordinary
    user began can be gone on with by root. A new one of root's gets the user `duly`.
    """
    us = ourselves()
    if data.exists():
        status = data.stat()
        if us.uid not in (0, status.st_uid):
            raise ConfigError(
                f"{data} belongs to another user (uid {status.st_uid}). "
                "Start Duly as that user, or choose another folder with --data."
            )
        if status.st_uid != 0:
            return SystemUser(status.st_uid, status.st_gid)
    return (find_user() or _create_user()) if us.uid == 0 else us


def find_user() -> SystemUser | None:
    """Return the user that root runs PostgreSQL as, if there is one already."""
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError:
        return None
    return SystemUser(entry.pw_uid, entry.pw_gid)


def _create_user() -> SystemUser:
    way_out = (
        "PostgreSQL does not run as root, so Duly needs a system user for it. "
        f"Create one ('useradd --system --no-create-home {NAME}'), start Duly as an ordinary "
        "user, or give it a PostgreSQL of your own with --database."
    )
    program = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if program is None:
        raise ConfigError(f"There is no useradd on this machine. {way_out}")
    shell = shutil.which("nologin", path="/usr/sbin:/sbin:/usr/bin") or "/bin/false"
    done = subprocess.run(  # noqa: S603 (a fixed program and fixed arguments)
        [program, "--system", "--user-group", "--no-create-home", "--shell", shell, NAME],
        capture_output=True,
        text=True,
        errors="replace",
    )
    made = find_user()
    if made is None:
        why = done.stderr.strip() or f"exit code {done.returncode}"
        raise ConfigError(f"Creating the user {NAME!r} failed: {why}. {way_out}")
    return made


def check_name(user: SystemUser) -> None:
    """Raise ConfigError for a user without a name: PostgreSQL makes no cluster for one."""
    try:
        pwd.getpwuid(user.uid)
    except KeyError as error:
        raise ConfigError(
            f"The user with uid {user.uid} has no entry in /etc/passwd, and PostgreSQL insists on "
            "one. Add it, start Duly as another user, or use --database."
        ) from error


def let_through(user: SystemUser, folder: Path) -> None:
    """Let `user` walk down to `folder` and enter it, and change nothing for anybody else."""
    if user.is_us:
        return
    for ancestor in [*reversed(folder.parents), folder]:
        if not _may_enter(user, ancestor):
            _grant_entry(user, ancestor)


def _may_enter(user: SystemUser, folder: Path) -> bool:
    """Ask the kernel, as that user: modes, lists and mounts all have their say."""
    asked = subprocess.run(  # noqa: S603 (a fixed program; the folder is an argument, not code)
        ["/bin/sh", "-c", 'test -x "$1"', "sh", str(folder)],
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd="/",
        env={},
    )
    return asked.returncode == 0


def _grant_entry(user: SystemUser, folder: Path) -> None:
    try:
        entries = _entries(folder)
        os.setxattr(folder, ACL, _packed(with_entry(entries, user.uid)))
    except OSError as error:
        raise ConfigError(
            f"PostgreSQL runs as the user with uid {user.uid}, which cannot enter {folder}, and an "
            f"access-control entry for it was refused ({error.strerror}). "
            f"Choose a folder that every user can reach with --data, for example /var/lib/{NAME}."
        ) from error


def with_entry(entries: list[Entry], uid: int) -> list[Entry]:
    """Add the right to enter for `uid` to a list, without widening anybody else's.

    The mask bounds what named users and groups really have. Raising it could hand the
    others what it used to keep from them, so that is taken off their own entries first.
    """
    mask = next((bits for kind, bits, _ in entries if kind == MASK), 0o7)
    bounded = [
        (kind, bits & mask if kind in (USER, GROUP_OBJ, GROUP) else bits, whose)
        for kind, bits, whose in entries
        if kind != MASK
    ]
    mine = next((bits for kind, bits, whose in bounded if (kind, whose) == (USER, uid)), 0)
    kept = [entry for entry in bounded if (entry[0], entry[2]) != (USER, uid)]
    kept.append((USER, mine | ENTER, uid))
    new_mask = 0
    for kind, bits, _ in kept:
        if kind in (USER, GROUP_OBJ, GROUP):
            new_mask |= bits
    return sorted([*kept, (MASK, new_mask, NO_ID)], key=lambda entry: (entry[0], entry[2]))


def _entries(folder: Path) -> list[Entry]:
    try:
        packed = os.getxattr(folder, ACL)
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        mode = folder.stat().st_mode
        return [
            (USER_OBJ, mode >> 6 & 0o7, NO_ID),
            (GROUP_OBJ, mode >> 3 & 0o7, NO_ID),
            (OTHER, mode & 0o7, NO_ID),
        ]
    return list(ENTRY.iter_unpack(packed[VERSION.size :]))


def _packed(entries: list[Entry]) -> bytes:
    return VERSION.pack(2) + b"".join(ENTRY.pack(*entry) for entry in entries)
