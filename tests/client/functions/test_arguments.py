"""Arguments are bound as Python binds them, and every refusal names the argument."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duly
from duly.client.functions.arguments import decode_arguments, encode_arguments
from duly.client.functions.handle import Handle
from duly.client.functions.parameters import Parameters
from duly.errors import ArgumentError, Invalid
from tests.client.functions import shop

if TYPE_CHECKING:
    from collections import OrderedDict


def publish(
    path: str,
    /,
    day: date,
    *tags: str,
    token: Annotated[str, duly.Secret] = "",
    limit: int = None,  # type: ignore[assignment]  # noqa: RUF013 - older code does this
    **extra: list[int],
) -> None:
    pass


PARAMETERS = Parameters(publish)
DAY = date(2026, 1, 2)


@given(
    st.dates(),
    st.lists(st.text(st.characters(codec="utf-8"))),
    st.text(st.characters(codec="utf-8")),
    st.none() | st.integers(),
    st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers())),
)
def test_arguments_come_back_as_they_were_given(day, tags, token, limit, extra):
    kwargs = {"token": token, "limit": limit, **extra}
    encoded = encode_arguments(PARAMETERS, ["x", day, *tags], kwargs)
    assert decode_arguments(PARAMETERS, encoded.text().encode(), {}) == (["x", day, *tags], kwargs)
    assert encoded.secret == ("token",)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "publish() missing a required argument: 'path'"),
        (("x",), {}, "publish() missing a required argument: 'day'"),
        (("x", DAY), {"day": DAY}, "publish() multiple values for argument 'day'"),
        ((1, DAY), {}, "path: a value of type int is not str"),
        (("x", DAY, "a", 2), {}, "*tags[1]: a value of type int is not str"),
        (("x", DAY), {"token": b""}, "token: a value of type bytes is not str"),
        (("x", DAY), {"limit": "3"}, "limit: a value of type str is not int or None"),
        (("x", DAY), {"sizes": [1, None]}, "sizes[1]: None is not int"),
    ],
)
def test_every_refusal_names_the_argument(args, kwargs, words):
    with pytest.raises(ArgumentError) as refused:
        encode_arguments(PARAMETERS, args, kwargs)
    assert str(refused.value).startswith(words)
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, Invalid)


def cannot_travel(connection: OrderedDict[str, Any], stream: object, codec: complex = 0j) -> None:
    pass


def test_a_type_that_cannot_travel_is_refused_only_when_it_is_used():
    parameters = Parameters(cannot_travel)
    with pytest.raises(ArgumentError, match=r"^connection: its type hint cannot be resolved"):
        encode_arguments(parameters, ({}, 1), {})
    with pytest.raises(ArgumentError, match=r"^connection"):
        encode_arguments(parameters, (), {"connection": 3, "stream": 1})
    with pytest.raises(ArgumentError, match=r"^stream: a value of type BytesIO cannot be restored"):
        import io

        encode_arguments(Parameters(lambda stream: stream), (io.BytesIO(),), {})


def test_what_contains_itself_or_is_too_deep_is_refused():
    anything = Parameters(lambda value: value)
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(ArgumentError, match=r"^value: it .*deep"):
            encode_arguments(anything, (value,), {})


def test_the_result_of_another_task_is_an_argument_wherever_it_stands():
    upstream = Handle[str](shop.app, "77", shop.join.parameters)
    encoded = encode_arguments(shop.join.parameters, (["a", upstream],), {"separator": upstream})
    assert encoded.upstreams == ("77",)
    assert json.loads(encoded.text()) == {
        "args": [["a", {"$result": "77"}]],
        "kwargs": {"separator": {"$result": "77"}},
    }
    decoded = shop.join.decode(encoded.text().encode(), {"77": b'"-"'})
    assert decoded == ([["a", "-"]], {"separator": "-"})


def test_a_result_of_another_type_is_refused_with_the_name_of_the_argument():
    with pytest.raises(ArgumentError, match=r"^separator: a value of type int is not str"):
        shop.join.decode(b'{"args":[[],{"$result":"7"}],"kwargs":{}}', {"7": b"3"})


@pytest.mark.parametrize("text", [b"", b"3", b"[]", b'{"args":3}', b'{"args":[],"kwargs":[]}'])
def test_stored_arguments_that_are_none_are_refused(text):
    with pytest.raises(ArgumentError):
        shop.join.decode(text, {})
