"""The client's types match the API's requests and responses, call by call.

The pairs are derived: every function of the client that describes a call is called, and the route
that its method and path lead to says what it takes and gives.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest

from duly import client
from duly.api.app import create_app
from duly.api.routes import Operation
from duly.client.bundle import Bundle
from duly.client.call import Call
from tests.api.json_shape import alternatives, json_shape, typed_dicts

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(client.__path__, "duly.client.")
    if not found.name.startswith("duly.client.functions")  # it uses calls, and describes none
]
SAMPLES = {str: "7", int: 1, bool: True, float: 1.0, Any: None, Bundle: Bundle(Path("x"), "a", 1)}
FILTER = "filters"
"""The argument that says which things are meant, mostly in the address."""
SAID_OTHERWISE = ".expires_at"
"""Of a reservation: with the client one says how long, so that no clock but the server's counts."""
QUERY_NAMES = {"labels": "label"}
"""Fields of filters that are called otherwise in an address, where each value stands alone."""


class Described(NamedTuple):
    """A function of the client, what it is typed with, and the operation that it leads to."""

    name: str
    answer: Any
    parameters: Mapping[str, Any]
    operation: Operation


def describe_calls() -> Iterator[Described]:
    operations = [(path, route.operation) for path, route in create_app(None).routes]
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith("_"):
                continue
            hints = get_type_hints(function, localns={"Bundle": Bundle})
            answer = hints.pop("return", None)
            if get_origin(answer) is Call:
                call = function(**{name: sample(hint) for name, hint in hints.items()})
                yield Described(name, *get_args(answer), hints, operation_of(call, operations))


def sample(hint: Any) -> Any:
    """Return a value that a call can be made with."""
    first = alternatives(hint)[0]
    whole = get_origin(first) or first
    if is_typeddict(whole) or whole is Mapping:
        return {}
    return [] if whole in (Iterable, Sequence) else SAMPLES[whole]


def operation_of(call: Call[Any], operations: Sequence[tuple[str, Operation]]) -> Operation:
    """Return the operation that a call leads to; the path with the fewest variables wins."""
    fitting = [
        (path.count("{"), place, operation)
        for place, (path, operation) in enumerate(operations)
        if operation.method == call.method
        and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), call.path)
    ]
    return min(fitting, key=lambda one: one[:2])[2]


CALLS = list(describe_calls())


def answer_pairs(one: Described) -> list[tuple[Any, Any]]:
    """Return the client's types of an answer with the server's."""
    gives = one.operation.response_body
    if not typed_dicts(one.answer):
        return []
    if isinstance(gives, tuple):
        return list(zip(get_args(one.answer), gives, strict=True))
    if get_origin(one.answer) is list:
        (items,) = msgspec.structs.fields(gives)
        return [(one.answer, items.type)]
    return [(one.answer, gives)]


@pytest.mark.parametrize("one", CALLS, ids=lambda one: one.name)
def test_an_answer_is_what_the_client_says_it_is(one):
    for ours, theirs in answer_pairs(one):
        assert json_shape(ours) == json_shape(theirs, defaults_are_sent=True)


def said_by(one: Described) -> dict[str, set[str]]:
    """Return what a caller can put into the body, by arguments of the same name and TypedDicts."""
    fields = json_shape(one.operation.request_body)
    said: dict[str, set[str]] = {}
    for name, hint in one.parameters.items():
        if f".{name}" in fields:
            said |= {f".{name}{path}": kinds for path, kinds in json_shape(hint).items()}
        elif is_typeddict(hint) and name != FILTER:
            said |= {path: kinds for path, kinds in json_shape(hint).items() if path}
    return said


SENDING = [one for one in CALLS if one.operation.request_body not in (None, bytes)]


@pytest.mark.parametrize("one", SENDING, ids=lambda one: one.name)
def test_what_the_client_can_say_the_api_takes(one):
    taken, said = json_shape(one.operation.request_body), said_by(one)
    for name in one.parameters.keys() & {path.removeprefix(".") for path in said}:
        # An argument may be narrower than the field: what has no default is always given.
        assert said.pop(f".{name}") <= taken[f".{name}"]
    assert said == {path: taken.get(path) for path in said}


def test_what_the_api_takes_a_client_can_say():
    unsaid: dict[Any, set[str]] = {}
    for one in SENDING:
        if FILTER not in one.parameters:
            fields = unsaid.setdefault(
                one.operation.request_body, set(json_shape(one.operation.request_body))
            )
            fields.difference_update(said_by(one), {"", SAID_OTHERWISE})
    assert {takes: fields for takes, fields in unsaid.items() if fields} == {}


FILTERING = [one for one in CALLS if FILTER in one.parameters]
assert FILTERING, "no call has filters: the argument has another name"


@pytest.mark.parametrize("one", FILTERING, ids=lambda one: one.name)
def test_the_api_knows_every_filter(one):
    takes = one.operation.request_body
    known = set(takes.__struct_fields__) if takes else set(one.operation.parameter_names)
    known.add("tenant")  # every route takes it, from administrators
    assert {QUERY_NAMES.get(name, name) for name in one.parameters[FILTER].__annotations__} <= known


def test_every_type_of_the_client_is_compared():
    compared = set()
    for one in CALLS:
        compared |= typed_dicts(one.answer).union(*map(typed_dicts, one.parameters.values()))
    defined = {
        kind
        for module in MODULES
        for kind in vars(module).values()
        if is_typeddict(kind) and kind.__module__ == module.__name__
    }
    parts_of_others = {
        kind
        for kind in defined
        for other in compared
        if kind.__annotations__.items() <= other.__annotations__.items()
    }
    assert defined - compared - parts_of_others == set()
