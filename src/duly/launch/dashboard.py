"""The pages as a part of `duly up`: a process of their own, and only another client."""

import secrets
from collections.abc import Callable

from duly.dashboard.options import Link, PagesOptions
from duly.launch.part import Part, receive, say_started
from duly.launch.ports import local_name, url_of


class Pages:
    """The process and the link that opens it, which is another one after every start."""

    def __init__(self, url: str, key: str, host: str, port: int) -> None:
        self._url, self._key, self._host, self._port = url, key, host, port
        self._token = ""
        self._told: Callable[[str], None] | None = None
        self.part = Part("dashboard", "duly.launch.dashboard", self._options)

    async def tell_link(self, tell: Callable[[str], None]) -> None:
        """Give the link to `tell` once the pages answer, and whenever it changes after that."""
        await self.part.started.wait()
        self._told = tell
        tell(self._link())

    def _options(self) -> PagesOptions:
        self._token = secrets.token_urlsafe(16)
        if self._told:
            self._told(self._link())
        return PagesOptions(self._url, self._host, self._port, Link(self._token, self._key))

    def _link(self) -> str:
        return f"{url_of(local_name(self._host), self._port)}/open?token={self._token}"


def main() -> None:
    """Serve the pages, inside the process that `duly up` has started for them."""
    options = receive(PagesOptions)
    # Here, because the parent needs only the names above, and this takes a second to import.
    from duly.dashboard.app import run

    run(options, say_started)


if __name__ == "__main__":
    main()
