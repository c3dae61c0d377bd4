"""Opens object stores by their URLs, and tells what of obstore's errors is for people."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from duly.errors import ConfigError

STORE_ERRORS = (BaseError, OSError)
"""What obstore raises when an operation fails."""


def open_store(url: str) -> Any:
    """Return the object store at `url`: a folder, `file://…`, `s3://…` and the like."""
    try:
        folder = folder_of(url)
        return from_url(url) if folder is None else LocalStore(folder, mkdir=True)
    except (BaseError, ValueError, OSError) as error:
        # Without the rest of the URL, which may carry a secret.
        scheme = url.partition(":")[0]
        raise ConfigError(
            f"Cannot use the object store at {scheme}://…: {first_line(error)}"
        ) from error


def folder_of(url: str) -> Path | None:
    """Return the local folder that `url` names; None if the store is remote."""
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        return None
    return Path(parts.path if parts.scheme else url)


def first_line(error: Exception) -> str:
    """Return the message of an error, without the source that obstore dumps after it."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
