"""Where values are in a file, in JSON as in YAML."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.cli.manifests.json_positions import find_positions
from duly.cli.manifests.positions import FileError, Lines, Position, nearest
from duly.cli.manifests.safe_yaml import read_yaml

WORDS = st.text("ab{}[],: \"\\'", max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | WORDS,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(WORDS, values, max_size=4),
)


@given(value=VALUES, indent=st.sampled_from([None, 0, 1, 4]))
def test_json_has_its_values_where_yaml_finds_them(value, indent):
    text = json.dumps(value, indent=indent)
    expected: dict[tuple[str | int, ...], Position] = {}
    assert read_yaml(text, lambda _: False, expected) == value
    assert find_positions(text) == expected


def test_a_value_in_a_mapping_is_where_its_name_is():
    text = '{"a":\n\t{"b": 1,\n\t "c": [2, 3]}}'
    assert find_positions(text) == {
        (): (1, 1),
        ("a",): (1, 2),
        ("a", "b"): (2, 3),
        ("a", "c"): (3, 3),
        ("a", "c", 0): (3, 9),
        ("a", "c", 1): (3, 12),
    }


def test_a_repeated_name_is_told_where_it_is_repeated():
    with pytest.raises(FileError, match="'a' occurs twice") as caught:
        find_positions('[{"a": 1},\n {"b": {"a": 2}, "a": 3,\n  "a": 4}]')
    assert caught.value.position == (3, 3)


def test_what_is_not_in_the_file_is_where_it_would_be():
    positions = find_positions('{"a": {"b": 1}}')
    assert nearest(positions, ("a", "b", "c")) == positions["a", "b"]
    assert nearest(positions, ("a", "x", "y")) == positions["a",]
    assert nearest(positions, ("x",)) == (1, 1)
    assert nearest({}, ("x",)) == (1, 1)


@given(text=st.text("a\nü"), data=st.data())
def test_an_offset_is_in_the_line_that_holds_it(text, data):
    offset = data.draw(st.integers(0, len(text)))
    line, column = Lines(text).position(offset)
    before = text[:offset].split("\n")
    assert (line, column) == (len(before), len(before[-1]) + 1)
