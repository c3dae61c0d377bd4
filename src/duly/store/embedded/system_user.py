"""The system user that PostgreSQL runs as, and its access to the data folder.

PostgreSQL refuses to run as root. Root therefore starts it as a dedicated system user, which must
be able to traverse the path to the data folder, even below a private folder such as /root. The
user is granted exactly that: an ACL entry for one user with execute permission and no read
permission. Nothing changes for other users.
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

USER_NAME = "duly"
ACL = "system.posix_acl_access"
VERSION = struct.Struct("<I")
ENTRY = struct.Struct("<HHI")
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
EXECUTE = 0o1
NO_ID = 0xFFFFFFFF

Entry = tuple[int, int, int]
"""An ACL entry: its kind, the permission bits, and the id that they apply to."""


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The user that PostgreSQL's processes run as."""

    uid: int
    gid: int

    @property
    def is_us(self) -> bool:
        """Whether this process runs as the user, so that no switch is needed."""
        return self.uid == os.geteuid()

    @property
    def switch_uid(self) -> int | None:
        """The uid that a new process switches to, or None; likewise for the groups."""
        return None if self.is_us else self.uid

    @property
    def switch_gid(self) -> int | None:
        """See `switch_uid`."""
        return None if self.is_us else self.gid

    @property
    def switch_groups(self) -> list[str | int] | None:
        """See `switch_uid`; PostgreSQL does not get root's supplementary groups."""
        return None if self.is_us else []


def current_user() -> SystemUser:
    """Return the user that this process runs as."""
    return SystemUser(os.geteuid(), os.getegid())


def user_for(data: Path) -> SystemUser:
    """Return the user to run PostgreSQL as for the cluster in `data`, which need not exist yet.

    An existing cluster keeps its owner, so that root can continue with an ordinary user's folder.
    A new cluster of root's gets the user `duly`.
    """
    us = current_user()
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
    """Return the user that root runs PostgreSQL as, if it exists."""
    try:
        entry = pwd.getpwnam(USER_NAME)
    except KeyError:
        return None
    return SystemUser(entry.pw_uid, entry.pw_gid)


def _create_user() -> SystemUser:
    way_out = (
        "PostgreSQL does not run as root, so Duly needs a system user for it. "
        f"Create one ('useradd --system --no-create-home {USER_NAME}'), start Duly as an ordinary "
        "user, or give it a PostgreSQL of your own with --database."
    )
    program = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if program is None:
        raise ConfigError(f"There is no useradd on this machine. {way_out}")
    shell = shutil.which("nologin", path="/usr/sbin:/sbin:/usr/bin") or "/bin/false"
    done = subprocess.run(  # noqa: S603 (a fixed program and fixed arguments)
        [program, "--system", "--user-group", "--no-create-home", "--shell", shell, USER_NAME],
        capture_output=True,
        text=True,
        errors="replace",
    )
    made = find_user()
    if made is None:
        why = done.stderr.strip() or f"exit code {done.returncode}"
        raise ConfigError(f"Creating the user {USER_NAME!r} failed: {why}. {way_out}")
    return made


def check_has_name(user: SystemUser) -> None:
    """Raise ConfigError for a user without a name, for which initdb refuses to run."""
    try:
        pwd.getpwuid(user.uid)
    except KeyError as error:
        raise ConfigError(
            f"The user with uid {user.uid} has no entry in /etc/passwd, and PostgreSQL insists on "
            "one. Add it, start Duly as another user, or use --database."
        ) from error


def allow_traversal(user: SystemUser, folder: Path) -> None:
    """Let `user` traverse the path to `folder` and enter it; nothing changes for other users."""
    if user.is_us:
        return
    for ancestor in [*reversed(folder.parents), folder]:
        if not _may_enter(user, ancestor):
            _grant_entry(user, ancestor)


def _may_enter(user: SystemUser, folder: Path) -> bool:
    """Ask the kernel as that user, since modes, ACLs and mounts all matter."""
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
            "Choose a folder that every user can reach with --data, "
            f"for example /var/lib/{USER_NAME}."
        ) from error


def with_entry(entries: list[Entry], uid: int) -> list[Entry]:
    """Add execute permission for `uid` to an ACL, without widening any other entry.

    The mask bounds the effective permissions of named users and groups. Raising it could grant
    others what it used to withhold, so the old mask is first applied to their entries.
    """
    mask = next((bits for kind, bits, _ in entries if kind == MASK), 0o7)
    bounded = [
        (kind, bits & mask if kind in (USER, GROUP_OBJ, GROUP) else bits, whose)
        for kind, bits, whose in entries
        if kind != MASK
    ]
    mine = next((bits for kind, bits, whose in bounded if (kind, whose) == (USER, uid)), 0)
    kept = [entry for entry in bounded if (entry[0], entry[2]) != (USER, uid)]
    kept.append((USER, mine | EXECUTE, uid))
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
