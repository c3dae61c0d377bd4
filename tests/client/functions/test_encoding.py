"""What goes into JSON by its type hint comes out as it was; anything else is refused."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.client.functions.arguments import to_text
from duly.client.functions.encoding.converter import Mismatch
from duly.client.functions.encoding.converters import Unsupported, converter_of
from tests.client.functions.records import (
    Box,
    Colour,
    Level,
    Money,
    Options,
    Order,
    OrderId,
    Point,
    Profile,
    Refund,
    Shape,
    Track,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda offset: timezone(timedelta(seconds=int(offset.total_seconds())))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT.filter(lambda key: key != "$result"), inner, max_size=3)
    ),
    max_leaves=6,
)
DECIMALS = st.decimals(allow_nan=False)
MONEY = st.builds(Money, DECIMALS, TEXT)
POINTS = st.builds(Point, st.integers(), FLOATS)

HINTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (int, st.integers() | st.integers(-(2**900), 2**900) | st.booleans()),
    (float, FLOATS | st.integers(-(2**70), 2**70)),
    (bool, st.booleans()),
    (None, st.none()),
    (Any, JSON),
    (bytes, st.binary()),
    (bytearray, st.binary().map(bytearray)),
    (datetime, st.datetimes() | st.datetimes(timezones=st.just(UTC) | OFFSETS)),
    (date, st.dates()),
    (time, st.times() | st.times(timezones=st.just(UTC))),
    (timedelta, st.timedeltas()),
    (Decimal, DECIMALS),
    (UUID, st.uuids()),
    (Path, TEXT.filter(lambda text: "\0" not in text).map(Path)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Shape, st.sampled_from(Shape)),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (OrderId, st.integers()),
    (Annotated[int, []], st.integers()),
    (date | None, st.none() | st.dates()),
    (int | str | None, st.none() | st.integers() | TEXT),
    (str | datetime, TEXT | st.datetimes()),
    (int | float, st.integers() | FLOATS),
    (Money | Refund, MONEY | st.builds(Refund, DECIMALS)),
    (list[int] | list[str], st.lists(st.integers()) | st.lists(TEXT, min_size=1)),
    (list[bytes], st.lists(st.binary())),
    (list, st.lists(JSON)),
    (Sequence[int], st.lists(st.integers())),
    (tuple[int, str], st.tuples(st.integers(), TEXT)),
    (tuple[UUID, ...], st.lists(st.uuids()).map(tuple)),
    (set[int], st.sets(st.integers())),
    (frozenset[Colour], st.frozensets(st.sampled_from(Colour))),
    (dict[str, date], st.dictionaries(TEXT.filter(lambda k: k != "$result"), st.dates())),
    (dict[int, list[str]], st.dictionaries(st.integers(), st.lists(TEXT))),
    (dict[UUID, Level], st.dictionaries(st.uuids(), st.sampled_from(Level))),
    (dict[tuple[int, int], str], st.dictionaries(st.tuples(st.integers(), st.integers()), TEXT)),
    (Mapping[str, int], st.dictionaries(TEXT.filter(lambda k: k != "$result"), st.integers())),
    (Money, MONEY),
    (
        Order,
        st.builds(
            Order,
            st.integers(),
            st.datetimes(),
            st.dictionaries(st.sampled_from("ab"), MONEY),
            st.sets(st.sampled_from(Colour)),
            st.builds(Order, st.integers(), st.datetimes(), st.just({}), st.just(set())),
        ),
    ),
    (Box[date], st.builds(Box, st.dates(), TEXT)),
    (Box[list[Decimal]], st.builds(Box, st.lists(DECIMALS), TEXT)),
    (Point, POINTS),
    (
        Options,
        st.builds(lambda day: {"day": day}, st.dates())
        | st.builds(
            lambda day, mode: {"day": day, "mode": mode},
            st.dates(),
            st.sampled_from(["fast", "slow", 3]),
        ),
    ),
    (Track, st.builds(Track, st.uuids(), st.lists(POINTS).map(tuple))),
    (Profile, st.builds(Profile, name=TEXT, born=st.none() | st.dates())),
]
VALUES = st.sampled_from(HINTS).flatmap(lambda pair: pair[1].map(lambda value: (pair[0], value)))


def same(first: Any, second: Any) -> bool:
    """Return True if two values are equal, and so are their types all the way down."""
    if type(first) is not type(second) or first != second:
        return False
    if isinstance(first, (list, tuple)):
        return all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, dict):
        return all(same(first[key], second[key]) for key in first)
    if dataclasses.is_dataclass(first):
        return all(
            same(getattr(first, field.name), getattr(second, field.name))
            for field in dataclasses.fields(first)
        )
    if isinstance(first, msgspec.Struct):
        return all(same(getattr(first, n), getattr(second, n)) for n in first.__struct_fields__)
    return True


@given(VALUES)
def test_a_value_comes_back_as_it_was(pair):
    hint, value = pair
    converter = converter_of(hint)
    text = to_text(converter.encode(value))
    assert same(converter.decode(json.loads(text)), value), text


@given(VALUES, st.sampled_from(HINTS))
def test_a_value_of_another_type_is_refused_or_comes_back_equal(pair, other):
    """Some hints take values of others, such as Sequence a list; none changes what it takes."""
    _, value = pair
    converter = converter_of(other[0])
    try:
        encoded = converter.encode(value)
    except Mismatch:
        return
    restored = converter.decode(json.loads(to_text(encoded)))
    assert restored == value or list(restored) == list(value)


def test_equal_sets_make_equal_text():
    converter = converter_of(set[int])
    # Hashes that collide keep the order in which they came.
    assert list({0, 8}) != list({8, 0})
    assert converter.encode({0, 8}) == converter.encode({8, 0})


def test_an_integer_that_python_would_not_write_is_refused():
    with pytest.raises(Mismatch, match="more than 14000 bits"):
        converter_of(int).encode(1 << 20_000)


@dataclasses.dataclass(frozen=True)
class Discount(Money):
    """A subclass with a field of its own."""

    percent: int = 0


@pytest.mark.parametrize(
    ("hint", "value", "path", "problem"),
    [
        (str, 3, "", "a value of type int is not str"),
        (int, "3", "", "a value of type str is not int"),
        (int, 2.0, "", "a value of type float is not int"),
        (float, float("nan"), "", "nan is not a number of JSON"),
        (Any, float("inf"), "", "inf is not a number of JSON"),
        (Any, {"a": [object()]}, "['a'][0]", "a value of type object cannot be restored"),
        (Any, (1, 2), "", "a value of type tuple cannot be restored without a type hint"),
        (Any, {1: 2}, "", "the key 1 is not text"),
        (Any, {"$result": "7"}, "", "the key '$result' is reserved"),
        (str, "\ud800", "", "it has a character that is not valid in UTF-8"),
        (list[int], [1, "2"], "[1]", "a value of type str is not int"),
        (list[int], (1, 2), "", "a value of type tuple is not list"),
        (dict[str, date], {"a": 3}, "['a']", "a value of type int is not date"),
        (date, datetime(2026, 1, 1), "", "a value of type datetime is not date"),
        (tuple[int, int], (1,), "", "it has 1 items; tuple has 2"),
        (Money, Discount(Decimal(1)), "", "a value of type Discount is not Money"),
        (Order, Order(1, "now", {}), ".at", "a value of type str is not datetime"),
        (int | None, "x", "", "a value of type str is not int or None"),
        (list[int] | None, ["x"], "[0]", "a value of type str is not int"),
        (Literal["a"], "b", "", "'b' is not one of 'a'"),
        (Options, {"day": date.min, "x": 1}, "", "Options has no key 'x'"),
        (Options, {}, "", "it has no key 'day'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_where_it_is(hint, value, path, problem):
    with pytest.raises(Mismatch) as refused:
        converter_of(hint).encode(value)
    assert refused.value.path == path
    assert refused.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("hint", "written", "path"),
    [
        (date, "yesterday", ""),
        (date, 3, ""),
        (UUID, "x", ""),
        (Decimal, "x", ""),
        (bytes, "?", ""),
        (timedelta, "1 day", ""),
        (Colour, "green", ""),
        (Level, 3, ""),
        (Level, True, ""),
        (Money, {"amount": "1", "rate": 2}, ""),
        (Money, {"currency": "EUR"}, ""),
        (Money, {"amount": "x"}, ".amount"),
        (Profile, {"name": 3}, ""),
        (list[Money], [{"amount": "1"}, 3], "[1]"),
        (dict[int, int], {"a": 1}, ""),
        (str | datetime, {"$type": "UUID", "value": "x"}, ""),
    ],
)
def test_json_that_does_not_fit_is_refused_where_it_is(hint, written, path):
    with pytest.raises(Mismatch) as refused:
        converter_of(hint).decode(written)
    assert refused.value.path == path


def test_people_may_leave_out_the_tag_of_a_union():
    assert converter_of(str | datetime).decode("noon") == "noon"
    assert converter_of(Money | Refund).decode({"amount": "3"}) == Money(Decimal(3))


@pytest.mark.parametrize("hint", [object.__class__, complex, type[int], list[complex]])
def test_types_that_json_cannot_hold_are_not_supported(hint):
    with pytest.raises(Unsupported):
        converter_of(hint)
