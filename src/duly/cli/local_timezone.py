"""Finds the name of the user's timezone, which schedules need: an offset alone has no summer time.

In the order of the C library: the variable TZ, then /etc/localtime, which is a link into the
timezone database on most systems. Debian keeps the name in /etc/timezone as well.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UTC = "UTC"
DATABASE_FOLDER = "zoneinfo"
"""Names are relative to this folder, as in /usr/share/zoneinfo/Europe/Berlin."""


def local_timezone(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str | None:
    """Return the name of the user's timezone, UTC if none is set, None if it has no name."""
    if (variable := environ.get("TZ")) is not None:
        return _checked(_database_name(variable.removeprefix(":")) or UTC)
    link = root / "etc/localtime"
    if link.is_symlink():
        return _checked(_database_name(str(link.readlink())))
    try:
        return _checked((root / "etc/timezone").read_text().strip())
    except (OSError, UnicodeDecodeError):
        return None if link.exists() else UTC


def _database_name(path: str) -> str:
    """Return the name of a timezone that may be given as the path of its file."""
    if not path.startswith((".", "/")):
        return path
    return path.rpartition(f"{DATABASE_FOLDER}/")[2]


def _checked(name: str) -> str | None:
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
