"""Runs the dashboard of `duly up` in a child process; it is a client of the API."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from duly.dashboard.login.link import NAME, LinkFile
from duly.dashboard.options import Link, PagesOptions
from duly.launch.event_loop import run
from duly.launch.local.child_process import ChildProcess, receive, report_started
from duly.launch.local.ports import public_name, url_of
from duly.launch.signals import Signals

log = logging.getLogger(__name__)


class Pages:
    """The dashboard's process and its one-time login link, which is renewed at every start."""

    def __init__(self, url: str, key: str, host: str, port: int, data: Path) -> None:
        self._url, self._key, self._host, self._port = url, key, host, port
        self._link = LinkFile(data / NAME)
        self._publish: Callable[[str], None] | None = None
        self.address = url_of(public_name(host), port)
        self.part = ChildProcess("dashboard", "duly.launch.dashboard", self._options)

    async def tell_link(self, publish: Callable[[str], None]) -> None:
        """Pass a link to `publish` once the dashboard responds, and after every restart."""
        await self.part.started.wait()
        self._publish = publish
        self._renew()

    def _options(self) -> PagesOptions:
        # The link of an earlier start must no longer work.
        self._renew()
        login_link = Link(str(self._link.file), self._key)
        return PagesOptions(self._url, self._host, self._port, login_link)

    def _renew(self) -> None:
        """Create a new link and publish it; a full disk is only logged."""
        try:
            link = self._link.renew(self.address)
        except OSError as error:
            log.warning("cannot write the login link of the dashboard: %s", error)
            with contextlib.suppress(OSError):
                self._link.file.unlink()
        else:
            if self._publish:
                self._publish(link)


def serve_until_interrupted(options: PagesOptions, ready: Callable[[], None]) -> int:
    """Serve the dashboard until a signal, and return the exit code."""
    # Imported late: it takes a second, and the process of `duly up` does not need it.
    from duly.dashboard.app import serve

    async def work() -> int:
        return await Signals().run(serve(options, ready))

    return run(work())


def main() -> None:
    """Serve the dashboard inside the child process of `duly up`."""
    raise SystemExit(serve_until_interrupted(receive(PagesOptions), report_started))


if __name__ == "__main__":
    main()
