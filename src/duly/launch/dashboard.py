"""The pages as a part of `duly up`: a process of their own, and only another client."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from duly.dashboard.link import NAME, LinkFile
from duly.dashboard.options import Link, PagesOptions
from duly.launch.part import Part, receive, say_started
from duly.launch.ports import local_name, url_of

log = logging.getLogger(__name__)


class Pages:
    """The process and the link that opens it, which is another one after every start."""

    def __init__(self, url: str, key: str, host: str, port: int, data: Path) -> None:
        self._url, self._key, self._host, self._port = url, key, host, port
        self._link = LinkFile(data / NAME)
        self._told: Callable[[str], None] | None = None
        self.address = url_of(local_name(host), port)
        self.part = Part("dashboard", "duly.launch.dashboard", self._options)

    async def tell_link(self, tell: Callable[[str], None]) -> None:
        """Give a link to `tell` once the pages answer, and whenever they are started again."""
        await self.part.started.wait()
        self._told = tell
        self._renew()

    def _options(self) -> PagesOptions:
        # A link of an earlier start is void from the beginning.
        self._renew()
        opened = Link(str(self._link.file), self._key)
        return PagesOptions(self._url, self._host, self._port, opened)

    def _renew(self) -> None:
        """Make a new link, and tell it; a disk that is full is no reason for anything to end."""
        try:
            link = self._link.renew(self.address)
        except OSError as error:
            log.warning("no link to the pages could be written: %s", error)
            with contextlib.suppress(OSError):
                self._link.file.unlink()
        else:
            if self._told:
                self._told(link)


def main() -> None:
    """Serve the pages, inside the process that `duly up` has started for them."""
    options = receive(PagesOptions)
    # Here, because the parent needs only the names above, and this takes a second to import.
    from duly.dashboard.app import run

    run(options, say_started)


if __name__ == "__main__":
    main()
