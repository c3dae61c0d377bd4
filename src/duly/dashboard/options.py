"""Options of the dashboard's process, without the dashboard, which takes a second to import."""

import msgspec


class Link(msgspec.Struct, frozen=True):
    """The file of the one-time link, and the API key of a session that the link opens."""

    file: str
    key: str


class PagesOptions(msgspec.Struct, frozen=True):
    """The server's URL, the address to listen on, and the one-time link if there is one."""

    url: str
    host: str
    port: int
    link: Link | None = None
    name: str | None = None
    """The host name of the dashboard's URL, besides IP addresses and `localhost`."""
    ca_file: str | None = None
    certificate: tuple[str, str] | None = None
    """The files of the certificate chain and its key; without them, plain HTTP is served."""
