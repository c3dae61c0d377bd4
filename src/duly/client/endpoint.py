"""Finds the URLs of the servers and the key: in the environment, else in the user's config file.

`duly up` writes that file, so on a single machine nothing needs to be configured.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from duly import __version__
from duly.errors import ConfigError

HOW_TO_START = (
    "Start Duly on this machine with 'duly up', or set DULY_URL and DULY_KEY to those of a server."
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URLs of equivalent servers, and the key to authenticate with."""

    urls: tuple[str, ...]
    key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        headers = {"User-Agent": f"duly/{__version__}"}
        return {**headers, "Authorization": f"Bearer {self.key}"} if self.key else headers

    @property
    def name(self) -> str:
        """The first URL, which identifies the installation."""
        return self.urls[0]


def parse_endpoint(
    url: str, key: str | None = None, ca_file: str | Path | None = None, *, name: str = "url"
) -> Endpoint:
    """Validate the arguments; `url` may be a comma-separated list, and `name` says whence it is.

    Without `ca_file` it is DULY_CA_FILE.
    """
    ca_file = ca_file or os.environ.get("DULY_CA_FILE")
    urls = tuple(_check_url(part.strip(), name) for part in url.split(",") if part.strip())
    if not urls:
        raise ConfigError(f"{name}: it is empty. {HOW_TO_START}")
    if key is not None:
        key = key.strip()
        if not key.isascii() or not key.isprintable():
            raise ConfigError("The key contains characters that no key has. Copy it again.")
    return Endpoint(urls, key or None, Path(ca_file).expanduser() if ca_file else None)


def find_endpoint(
    environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Endpoint:
    """Read DULY_URL, DULY_KEY and DULY_CA_FILE, then the user's config file for missing ones.

    The key in the file belongs to the URL in the file and is never sent to another server.
    """
    env = os.environ if environment is None else environment
    file = config_file(env) if file is None else file
    url, key, ca_file = env.get("DULY_URL"), env.get("DULY_KEY"), env.get("DULY_CA_FILE")
    values = {} if url and key else _read(file)
    if url:
        is_configured_url = values.get("url", "").rstrip("/") == url.strip().rstrip("/")
        own_key = key or (values.get("key") if is_configured_url else None)
        return parse_endpoint(url, own_key, ca_file, name="DULY_URL")
    if not values.get("url"):
        raise ConfigError(f"No server is configured. {HOW_TO_START}", file=str(file))
    return parse_endpoint(
        values["url"],
        key or values.get("key"),
        ca_file or values.get("ca_file"),
        name=f"{file}: url",
    )


def config_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's config file."""
    base = environment.get("XDG_CONFIG_HOME")
    home = environment.get("HOME") or "~"
    return Path(base or f"{home}/.config").expanduser() / "duly" / "config.toml"


def _read(file: Path) -> dict[str, str]:
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from error
    for name in ("url", "key", "ca_file"):
        if not isinstance(values.get(name, ""), str):
            raise ConfigError(f"{file}: {name} must be text in quotes.")
    return values


def _check_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(
            f"{name}: {url!r} is not the URL of a server. Write it like http://host:8470."
        )
    return url.rstrip("/")
