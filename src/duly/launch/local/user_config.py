"""Writes the config file by which this user's clients find the server of `duly up`.

The file belongs to the user: one that was written by hand, or for another data folder, is never
overwritten.
"""

import json
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from duly.client.endpoint import config_file
from duly.launch.local.data_folder import default_data
from duly.private_file import write_private


class Written(StrEnum):
    """The result of writing the config file."""

    WRITTEN = "written"
    KEPT = "kept"
    FAILED = "failed"


def write_user_config(
    environment: Mapping[str, str], *, url: str, key: str, data: Path
) -> tuple[Written, str]:
    """Point this user's clients at `url`; return the result with the file or the error."""
    try:
        file = config_file(environment)
        if not _is_ours(file, data):
            return Written.KEPT, str(file)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, _text(url, key, data))
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        return Written.FAILED, str(error)
    return Written.WRITTEN, str(file)


def find_data(environment: Mapping[str, str]) -> Path:
    """Return the data folder that the user's config file names, or the default."""
    try:
        values = tomllib.loads(config_file(environment).read_text(encoding="utf-8"))
    except (OSError, RuntimeError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        values = {}
    data = values.get("data")
    return Path(data) if isinstance(data, str) and data else default_data()


def _is_ours(file: Path, data: Path) -> bool:
    """Return True if there is no file yet, or one written for the same data folder."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return values.get("data") == str(data)


def _text(url: str, key: str, data: Path) -> str:
    values = {"url": url, "key": key, "data": str(data)}
    # A JSON string is also a TOML string unless it is forced into ASCII.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    note = "# Written by `duly up` at every start. Remove the line `data` to keep your changes."
    return "\n".join([note, *lines, ""])
