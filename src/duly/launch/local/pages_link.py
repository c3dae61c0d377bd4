"""Creates a new login link to the dashboard of a running `duly up`."""

import errno
import os
from pathlib import Path

from duly.dashboard.login.link import NAME, LinkFile
from duly.errors import ConfigError
from duly.launch.local.data_folder import is_claimed


def new_link(data: Path) -> str:
    """Create a login link to the dashboard on `data`; the previous link becomes invalid."""
    link = LinkFile(data / NAME)
    try:
        if not is_claimed(data):
            raise ConfigError(
                f"No 'duly up' runs on {data}. Start it, or give its folder with --data."
            )
        if link.file.stat().st_uid != os.geteuid():
            # The dashboard could not read a file of ours.
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return link.renew(link.address())
    except FileNotFoundError as error:
        raise ConfigError(
            f"The 'duly up' on {data} has no dashboard; start it without --no-dashboard."
        ) from error
    except OSError as error:
        raise ConfigError(
            f"Cannot create a link in {data}: {error.strerror}. Run this as the user who started "
            "'duly up'."
        ) from error
