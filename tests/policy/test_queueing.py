"""In which order waiting tasks are served."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.policy.queueing import rank, window

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Task:
    id: int
    start_by: datetime = NOW
    priority: int = 0
    execution_cap: timedelta = timedelta(hours=1)


tasks = st.lists(
    st.builds(
        Task,
        st.integers(0, 10**6),
        st.integers(0, 5).map(lambda seconds: NOW + timedelta(seconds=seconds)),
        st.integers(-2, 2),
        st.integers(1, 3).map(lambda hours: timedelta(hours=hours)),
    ),
    unique_by=lambda task: task.id,
    max_size=30,
)


def test_the_earliest_start_by_goes_first_then_priority_then_the_short_then_the_old():
    soon = Task(9, NOW - timedelta(seconds=1))
    high = Task(8, priority=5)
    short = Task(7, execution_cap=timedelta(minutes=1))
    old, young = Task(1), Task(2)
    assert window([young, old, short, high, soon], 9) == [soon, high, short, old, young]


@given(tasks, st.integers(0, 40))
def test_the_window_holds_those_that_come_first(line, size):
    chosen = window(line, size)
    rest = [task for task in line if task not in chosen]
    assert len(chosen) == min(size, len(line))
    assert all(rank(one) < rank(other) for one in chosen for other in rest)


@given(tasks)
def test_the_order_does_not_depend_on_who_asked_first(line):
    assert window(line, 40) == window(list(reversed(line)), 40)
