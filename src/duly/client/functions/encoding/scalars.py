"""Converters of single values: text, numbers, times, and what is written as text."""

import base64
import binascii
import enum
import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

from duly.client.functions.encoding.converter import Converter, Kind, Mismatch

DURATION_PATTERN = re.compile(r"(-?)PT(\d+)(?:\.(\d{1,6}))?S")

MAX_INTEGER_BITS = 14_000
"""Python itself refuses to write integers of more than 4,300 digits."""


class Text(Converter):
    """A str; a subclass becomes a plain str."""

    kinds = frozenset({Kind.STRING})

    def to_json(self, value: Any) -> Any:
        """Return the text; a lone surrogate is no text that another process could read."""
        if not isinstance(value, str):
            raise self.mismatch(value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Mismatch("it has a character that is not valid in UTF-8") from None
        return value

    def decode(self, json: Any) -> Any:
        """Return the text."""
        if not isinstance(json, str):
            raise self.mismatch(json)
        return json


class Integer(Converter):
    """An int of any size, or a bool, which is one."""

    kinds = frozenset({Kind.NUMBER, Kind.BOOLEAN})

    def to_json(self, value: Any) -> Any:
        """Return the number."""
        if not isinstance(value, int):
            raise self.mismatch(value)
        if value.bit_length() > MAX_INTEGER_BITS:
            raise Mismatch(f"it has more than {MAX_INTEGER_BITS} bits")
        return value

    def decode(self, json: Any) -> Any:
        """Return the value: it is its own JSON."""
        return self.to_json(json)


class Float(Converter):
    """A float, or an int where a float is asked for."""

    kinds = frozenset({Kind.NUMBER, Kind.BOOLEAN})

    def to_json(self, value: Any) -> Any:
        """Return the number; JSON has neither infinity nor NaN."""
        if isinstance(value, float):
            if not math.isfinite(value):
                raise Mismatch(f"{value} is not a number of JSON")
            return value
        if not isinstance(value, int):
            raise self.mismatch(value)
        return value

    def decode(self, json: Any) -> Any:
        """Return the value: it is its own JSON."""
        return self.to_json(json)


class Exact(Converter):
    """A type whose values JSON has itself: bool and None."""

    def __init__(self, name: str, kind: type, json_kind: Kind) -> None:
        super().__init__(name)
        self._kind = kind
        self.kinds = frozenset({json_kind})

    def to_json(self, value: Any) -> Any:
        """Return the value."""
        if not isinstance(value, self._kind):
            raise self.mismatch(value)
        return value

    def decode(self, json: Any) -> Any:
        """Return the value: it is its own JSON."""
        return self.to_json(json)


class Written(Converter):
    """A type whose values are written as text and read back from it."""

    kinds = frozenset({Kind.STRING})

    def __init__(
        self, kind: type, write: Callable[[Any], str], read: Callable[[str], Any], *, exact: bool
    ) -> None:
        super().__init__(kind.__name__)
        self._kind = kind
        self._write = write
        self._read = read
        self._is_exact = exact

    def to_json(self, value: Any) -> Any:
        """Return the text of the value."""
        kind = self._kind
        if type(value) is not kind and (self._is_exact or not isinstance(value, kind)):
            raise self.mismatch(value)
        return self._write(value)

    def decode(self, json: Any) -> Any:
        """Return the value of a text."""
        if not isinstance(json, str):
            raise self.mismatch(json)
        try:
            return self._read(json)
        except (ValueError, ArithmeticError):
            raise Mismatch(f"{json[:60]!r} is not a {self.name}") from None


class Member(Converter):
    """A member of an enum: by its value, or by its name if the values are no text or numbers."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        super().__init__(kind.__qualname__)
        self._kind = kind
        self._by_name = not all(type(member.value) in (str, int) for member in kind)
        is_text = self._by_name or any(isinstance(member.value, str) for member in kind)
        is_number = not self._by_name and any(isinstance(member.value, int) for member in kind)
        self.kinds = frozenset(
            json_kind
            for json_kind, has in ((Kind.STRING, is_text), (Kind.NUMBER, is_number))
            if has
        ) or frozenset({Kind.STRING})

    def to_json(self, value: Any) -> Any:
        """Return the value or the name of the member."""
        if not isinstance(value, self._kind):
            raise self.mismatch(value)
        return value.name if self._by_name else value.value

    def decode(self, json: Any) -> Any:
        """Return the member with that value or name."""
        try:
            if type(json) not in (str, int):
                raise ValueError
            return self._kind[json] if self._by_name else self._kind(json)
        except (ValueError, KeyError):
            raise Mismatch(f"{str(json)[:60]!r} is not a {self.name}") from None


class Choice(Converter):
    """One of the values of a Literal."""

    def __init__(self, choices: Sequence[Any]) -> None:
        super().__init__("one of " + ", ".join(repr(choice) for choice in choices))
        self._choices = {(type(choice), choice): choice for choice in choices}
        self.kinds = frozenset(_kind_of(choice) for choice in choices)

    def to_json(self, value: Any) -> Any:
        """Return the value if it is one of the choices."""
        try:
            return self._choices[type(value), value]
        except (KeyError, TypeError):
            raise Mismatch(f"{value!r:.60} is not {self.name}") from None

    def decode(self, json: Any) -> Any:
        """Return the value: it is its own JSON."""
        return self.to_json(json)


def _kind_of(choice: Any) -> Kind:
    for kind, json_kind in ((bool, Kind.BOOLEAN), (int, Kind.NUMBER), (str, Kind.STRING)):
        if type(choice) is kind:
            return json_kind
    return Kind.NULL


def write_duration(value: timedelta) -> str:
    """Return a duration as ISO 8601, exact to the microsecond."""
    total = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
    seconds, microseconds = divmod(abs(total), 10**6)
    fraction = f".{microseconds:06d}" if microseconds else ""
    return f"{'-' if total < 0 else ''}PT{seconds}{fraction}S"


def read_duration(text: str) -> timedelta:
    """Return the duration of a text that `write_duration` returned."""
    match = DURATION_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, seconds, fraction = match.groups()
    duration = timedelta(seconds=int(seconds), microseconds=int((fraction or "").ljust(6, "0")))
    return -duration if sign else duration


def read_bytes(text: str) -> bytes:
    """Return the bytes of Base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def write_bytes(value: bytes | bytearray) -> str:
    """Return bytes as Base64 text."""
    return base64.b64encode(value).decode()


def write_path(value: PurePath) -> str:
    """Return the text of a path; one that is not valid in UTF-8 is refused."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Mismatch("the path is not valid in UTF-8") from None
    return text


def _iso(kind: type) -> Converter:
    return Written(kind, lambda value: value.isoformat(), kind.fromisoformat, exact=True)  # type: ignore[attr-defined]


SCALARS: dict[Any, Converter] = {
    str: Text("str"),
    int: Integer("int"),
    float: Float("float"),
    bool: Exact("bool", bool, Kind.BOOLEAN),
    type(None): Exact("None", type(None), Kind.NULL),
    None: Exact("None", type(None), Kind.NULL),
    bytes: Written(bytes, write_bytes, read_bytes, exact=True),
    bytearray: Written(
        bytearray, write_bytes, lambda text: bytearray(read_bytes(text)), exact=True
    ),
    datetime: _iso(datetime),
    date: _iso(date),
    time: _iso(time),
    timedelta: Written(timedelta, write_duration, read_duration, exact=True),
    Decimal: Written(Decimal, str, Decimal, exact=True),
    UUID: Written(UUID, str, UUID, exact=True),
}
"""The converters of types without parameters."""
