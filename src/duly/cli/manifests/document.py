"""Reads the file of a manifest, JSON or YAML, and finds the places of its values."""

import json
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as File
from typing import Any

from duly.cli.manifests.json_positions import find_positions
from duly.cli.manifests.positions import START, FileError, Path, Position, Positions, nearest
from duly.cli.manifests.safe_yaml import IsText, read_yaml
from duly.errors import Invalid

MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""The largest request that servers accept."""


class RepeatedName(ValueError):
    """A name of a JSON object is repeated."""


@dataclass(frozen=True)
class Document:
    """A file that was read, and where its values are."""

    source: str
    """What the file is called in messages."""
    value: Any = field(repr=False)
    text: str = field(repr=False)
    is_json: bool
    is_text: IsText = field(repr=False)

    @cached_property
    def positions(self) -> Positions:
        """The positions of all values; found only when there is an error to report."""
        if self.is_json:
            return find_positions(self.text)
        positions: Positions = {}
        read_yaml(self.text, self.is_text, positions)
        return positions

    def error(self, path: Path, message: str, name: str = "") -> Invalid:
        """Return the error for the value at `path`; its message begins with the place."""
        error = Invalid("", f"{self.source}, {nearest(self.positions, path)}: {message}")
        error.field = error.details["field"] = name
        return error


def read_document(name: str, is_text: IsText) -> Document:
    """Read the file `name`, or standard input for `-`; raises Invalid with the place of a mistake.

    At paths where `is_text` is true, numbers in YAML stay text as written.
    """
    source = "standard input" if name == "-" else name
    try:
        text = _read_text(name, source)
        value, is_json = _parse(text, name, is_text)
    except FileError as error:
        raise Invalid("", f"{source}, {error.position}: {error.message}") from None
    return Document(source, value, text, is_json, is_text)


def _read_text(name: str, source: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_MANIFEST_BYTES + 1)
        else:
            with File(name).open("rb") as opened:
                data = opened.read(MAX_MANIFEST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid("", f"{source} cannot be read: {why}.") from error
    if len(data) > MAX_MANIFEST_BYTES:
        raise Invalid(
            "", f"{source} is larger than {MAX_MANIFEST_BYTES // 2**20} MiB. Submit it in parts."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before, _, line = data[: error.start].rpartition(b"\n")
        number = before.count(b"\n") + (2 if b"\n" in data[: error.start] else 1)
        column = len(line.decode("utf-8-sig")) + 1
        raise FileError(Position(number, column), "this is not UTF-8 text.") from None


def _parse(text: str, name: str, is_text: IsText) -> tuple[Any, bool]:
    """Return the value of JSON, which is read fast, or else of YAML; and whether it is JSON."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_reject_repeated), True
        except RepeatedName:
            find_positions(text)  # says which name, and where
        except json.JSONDecodeError as error:
            if name.endswith(".json"):
                position = Position(error.lineno, error.colno)
                raise FileError(position, f"this is not JSON: {error.msg}.") from None
        except RecursionError:
            pass  # the YAML reader reports the place where it is nested too deeply
        except ValueError as error:  # a number with too many digits
            raise FileError(START, f"this is not JSON: {error}.") from None
    return read_yaml(text, is_text), False


def _reject_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedName
    return found
