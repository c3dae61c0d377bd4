"""What the process of the pages is told; apart from the pages, which take a second to import."""

import msgspec


class Link(msgspec.Struct, frozen=True):
    """What the one-time link opens the pages with: its file, and the key that they then use."""

    file: str
    key: str


class PagesOptions(msgspec.Struct, frozen=True):
    """Where the server is, where to listen, and the link if there is one."""

    url: str
    host: str
    port: int
    link: Link | None = None
    name: str | None = None
    """What the pages are called in their address, besides addresses and `localhost`."""
    ca_file: str | None = None
    certificate: tuple[str, str] | None = None
    """The files of the chain and of its key; without them the pages speak plain HTTP."""
