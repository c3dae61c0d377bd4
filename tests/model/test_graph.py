"""Names of tasks that wait for each other: found, sorted, and refused when they go in circles."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import Invalid, TooLarge
from duly.model import graph
from duly.model.graph import (
    Condition,
    Dependency,
    DependencyRequest,
    check_ref,
    parse_dependencies,
    topological_order,
)
from tests.model.graphs import graphs

DEEP = 100_000


@given(graphs())
def test_upstreams_come_first(upstreams):
    order = topological_order(upstreams, str)
    position = {place: index for index, place in enumerate(order)}
    assert sorted(order) == list(range(len(upstreams)))
    for index, ones in enumerate(upstreams):
        assert all(position[upstream] < position[index] for upstream in ones)


@given(graphs(), st.data())
def test_a_cycle_is_named_by_tasks_that_wait_for_each_other(upstreams, data):
    order = topological_order(upstreams, str)
    last = data.draw(st.sampled_from(order))
    first = last
    while upstreams[first]:
        first = upstreams[first][0]
    upstreams[first] = [last]
    with pytest.raises(Invalid) as error:
        topological_order(upstreams, str)
    said = str(error.value).rpartition(": ")[2].rstrip(".").split(" → ")
    assert said[0] == said[-1]
    if not any("more" in downstream for downstream in said):
        for downstream, upstream in pairwise(said):
            assert int(upstream) in upstreams[int(downstream)]


def test_a_task_that_waits_for_itself_is_named():
    with pytest.raises(Invalid, match="a task depends on itself, so it could never start: 1 → 1"):
        topological_order([[], [1]], str)


def test_a_graph_may_be_as_deep_as_it_is_large():
    chain = [[index + 1] for index in range(DEEP)] + [[]]
    assert topological_order(chain, str) == list(range(DEEP, -1, -1))
    chain[-1] = [0]
    with pytest.raises(Invalid, match=r"0 → 1 → 2 → 3 → 4 → \(99992 more\) → .*100000 → 0"):
        topological_order(chain, str)


def test_an_order_that_will_do_is_kept():
    assert topological_order([[], [], [0], [1, 2], []], str) == [0, 1, 2, 3, 4]


def test_what_a_task_waits_for_is_an_id_or_a_ref_with_a_condition():
    asked = ["0017", "encode.720p", DependencyRequest(task="x", on="always")]
    assert parse_dependencies(asked) == [
        Dependency("17"),
        Dependency("encode.720p"),
        Dependency("x", Condition.ALWAYS),
    ]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ([""], "depends_on[0]"),
        (["a", "b/c"], "depends_on[1]"),
        (["9223372036854775808"], "depends_on[0]"),
        (["7", "07"], "depends_on[1]"),
        ([DependencyRequest(task="a", on="never")], "depends_on[0].on"),
        ([str(number) for number in range(10_001)], "depends_on"),
    ],
)
def test_anything_else_is_refused_by_name(asked, field):
    with pytest.raises(Invalid) as error:
        parse_dependencies(asked)
    assert error.value.field == field


@pytest.mark.parametrize("ref", ["", "12", "a b", "..", ".", "a/b", "x" * 101])
def test_a_ref_can_be_a_file_and_is_no_number(ref):
    with pytest.raises(Invalid):
        check_ref(ref)
    assert check_ref(None) is None
    assert check_ref("720p.small_1-x") == "720p.small_1-x"


def test_tasks_that_come_together_have_a_bounded_number_of_dependencies():
    graph.check_dependency_count([graph.MAX_DEPENDENCIES - 1, 1])
    with pytest.raises(TooLarge):
        graph.check_dependency_count([graph.MAX_DEPENDENCIES, 1])
