"""A new link to the pages of a `duly up` that runs."""

import errno
import os
from pathlib import Path

from duly.dashboard.link import NAME, LinkFile
from duly.errors import ConfigError
from duly.launch.data_folder import is_claimed


def new_link(data: Path) -> str:
    """Make a link to the pages of the `duly up` on `data`; the one before it is void."""
    link = LinkFile(data / NAME)
    try:
        if not is_claimed(data):
            raise ConfigError(
                f"No `duly up` runs on {data}. Start it, or name its folder with --data."
            )
        if link.file.stat().st_uid != os.geteuid():
            # The pages could not read what we write.
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return link.renew(link.address())
    except FileNotFoundError as error:
        raise ConfigError(
            f"The `duly up` on {data} has no pages; start it without --no-dashboard."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"Cannot make a link in {data}: {error.strerror}. "
            "Run this as the user who started `duly up`."
        ) from error
