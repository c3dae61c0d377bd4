"""Rows are read by name: a column in the wrong place is an error, not a wrong value."""

from typing import NamedTuple

import msgspec
import pytest

from duly.store.records import read_as


class Pair(NamedTuple):
    left: int
    right: int = 0


class Values(msgspec.Struct, frozen=True):
    left: int
    right: int


async def test_columns_are_the_fields_of_the_same_names(conn):
    rows = await conn.fetch("select n as left, n + 1 as right from generate_series(1, 2) n")
    assert read_as(Pair, rows) == [Pair(1, 2), Pair(2, 3)]
    assert read_as(Values, rows) == [Values(1, 2), Values(2, 3)]
    assert read_as(Pair, await conn.fetch("select 1 as left")) == [Pair(1)]
    assert read_as(Pair, []) == []


@pytest.mark.parametrize("columns", ["1 as right, 2 as left", '1 as left, 2 as "Right"'])
async def test_columns_in_another_order_or_of_other_names_are_refused(conn, columns):
    with pytest.raises(TypeError, match="Pair has the fields"):
        read_as(Pair, await conn.fetch(f"select {columns}"))
