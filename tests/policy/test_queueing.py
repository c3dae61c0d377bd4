"""In which order waiting tasks are served."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.config import SchedulingSettings
from duly.model.node import Offer
from duly.model.queues.peak import NO_PEAK, PeakState
from duly.model.queues.queue import Queue, QueueDefinition, QueueDefinitions
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy.budget.peak import Load, Postponement, next_peak
from duly.policy.budget.queue_room import QueueRoom
from duly.policy.queueing import Order, queue_of, rank, window

NOW = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ONE = Resources(cpu_milli=1000)
SETTINGS = SchedulingSettings(urgent_slack=MINUTE, postpone_slack=3 * MINUTE)
PEAK = PeakState({"cpu_milli": NOW})
PLAIN, URGENT, PERIODIC, OFF_PEAK = range(4)
"""The shapes of tasks in the queues of the same name."""
QUEUES = {URGENT: Queue.URGENT, PERIODIC: Queue.PERIODIC, OFF_PEAK: Queue.OFF_PEAK}
SERVED = list(Queue)
"""In the order in which they are."""


@dataclass(frozen=True)
class Task:
    id: int
    start_by: datetime = NOW
    priority: int = 0
    remaining_path: int = 0
    expected_run_time: timedelta = timedelta(hours=1)
    shape_id: int = PLAIN
    tenant_id: int = 1
    losses: int = 0
    delay_tolerance: timedelta = timedelta(hours=12)

    @property
    def slack(self):
        return self.start_by - NOW


def order(queues=QUEUES, used=0, cores=10, before=NO_PEAK):
    """Return the order at NOW, when so many of the cores are in use."""
    free = Resources(cpu_milli=1000 * (cores - used))
    node = Offer(
        node_id=1,
        incarnation_id=1,
        name="n",
        capacity=Resources(cpu_milli=1000 * cores),
        free=free,
    )
    shapes = {shape: Shape(ONE) for shape in range(4)}
    postponement = postponement_of(node, before)
    return Order(queues, shapes, now=NOW, urgent_slack=MINUTE, postponement=postponement)


def postponement_of(node, before=NO_PEAK):
    load = Load([node])
    return Postponement(next_peak(before, load, SETTINGS, NOW), load, SETTINGS, NOW)


lines = st.lists(
    st.builds(
        Task,
        st.integers(0, 10**6),
        st.integers(-2, 5).map(lambda minutes: NOW + minutes * MINUTE),
        st.integers(-2, 2),
        st.integers(0, 2),
        st.integers(1, 3).map(lambda hours: timedelta(hours=hours)),
        st.integers(0, 3),
    ),
    unique_by=lambda task: task.id,
    max_size=30,
)
tolerances = st.timedeltas(timedelta(-1), timedelta(days=30))
standing = st.sampled_from([None, *QUEUES.values()])


def test_the_earliest_start_by_goes_first_then_priority_then_the_long_way_then_short_then_old():
    soon = Task(9, NOW - timedelta(seconds=1))
    high = Task(8, priority=5)
    awaited = Task(10, remaining_path=3, expected_run_time=timedelta(hours=2))
    short = Task(7, expected_run_time=timedelta(minutes=1))
    old, young = Task(1), Task(2)
    line = [young, old, short, awaited, high, soon]
    assert window(line, 9, order()) == [soon, high, awaited, short, old, young]


@given(lines, st.integers(0, 40))
def test_the_window_holds_those_that_come_first(line, size):
    serving = order(cores=100)
    chosen = window(line, size, serving)
    rest = [task for task in line if task not in chosen]
    assert len(chosen) == min(size, len(line))
    assert all(serving.key(one) < serving.key(other) for one in chosen for other in rest)


@given(lines)
def test_the_order_does_not_depend_on_who_asked_first(line):
    assert window(line, 40, order(cores=50)) == window(line[::-1], 40, order(cores=50))


@given(lines)
def test_without_queues_the_earliest_start_by_goes_first_whatever_the_time(line):
    assert window(line, 40, order({}, cores=50)) == sorted(line, key=rank)


@given(lines)
def test_an_earlier_queue_goes_before_a_later_one(line):
    def place(task):
        return SERVED.index(queue_of(QUEUES.get(task.shape_id), task.slack, MINUTE))

    places = [place(task) for task in window(line, 40, order(cores=100))]
    assert places == sorted(places)


def test_who_asked_for_urgent_goes_before_those_that_are_late():
    late, asked = Task(1, NOW - MINUTE), Task(2, NOW + 9 * MINUTE, shape_id=URGENT)
    late_too = Task(3, NOW, shape_id=URGENT)
    assert window([late, asked, late_too], 9, order()) == [late_too, asked, late]


def test_urgent_is_what_asked_for_it_and_what_is_out_of_slack():
    assert order().is_urgent(URGENT, NOW + timedelta(days=1))
    assert order().is_urgent(OFF_PEAK, NOW + MINUTE)
    assert not order().is_urgent(PLAIN, NOW + 2 * MINUTE)


def test_a_task_is_where_it_stands_until_its_slack_runs_out():
    assert queue_of(None, 2 * MINUTE, MINUTE) == Queue.DELAYABLE
    assert queue_of(Queue.OFF_PEAK, 2 * MINUTE, MINUTE) == Queue.OFF_PEAK
    assert queue_of(Queue.PERIODIC, MINUTE, MINUTE) == Queue.URGENT
    assert queue_of(Queue.URGENT, timedelta(days=9), MINUTE) == Queue.URGENT


@given(standing, tolerances, tolerances)
def test_a_task_only_ever_moves_up(queue, one, other):
    less, more = sorted([one, other])
    later, sooner = queue_of(queue, more, MINUTE), queue_of(queue, less, MINUTE)
    assert SERVED.index(sooner) <= SERVED.index(later)


def has_to_wait_at_peak(task):
    if task.shape_id == URGENT:
        return False
    return task.slack > (MINUTE if task.shape_id == OFF_PEAK else 3 * MINUTE)


@given(lines, st.integers(0, 10))
def test_tasks_with_slack_start_only_while_less_than_the_threshold_is_in_use(line, used):
    chosen = window(line, 40, order(used=used))
    for place, task in enumerate(chosen):
        if has_to_wait_at_peak(task):
            assert used + place < 8
    left_out = set(line) - set(chosen)
    assert not left_out or used + len(chosen) >= 8
    assert all(map(has_to_wait_at_peak, left_out))


@given(lines, st.integers(0, 10))
def test_once_it_is_peak_time_nothing_with_slack_starts_before_it_has_ended(line, used):
    chosen = window(line, 40, order(used=used, before=PEAK))
    if used > 7:
        assert set(chosen) == {task for task in line if not has_to_wait_at_peak(task)}
    else:
        assert chosen == window(line, 40, order(used=used))


@given(lines, st.integers(0, 10), st.sampled_from([NO_PEAK, PEAK]))
def test_a_subqueue_has_no_precedence_exactly_when_its_head_may_not_start(line, used, before):
    serving = order(used=used, before=before)
    for task in line:
        is_open = serving.precedence(task.shape_id, task.start_by) is not None
        assert window([task], 1, serving) == ([task] if is_open else [])


def test_room_is_kept_for_the_urgent_at_once_and_for_off_peak_work_once_it_must_start():
    far = NOW + timedelta(hours=5)
    assert order().qualifies_for_hold(Task(1, far, shape_id=URGENT))
    assert not order().qualifies_for_hold(Task(1, far, shape_id=OFF_PEAK, losses=1))
    assert order().qualifies_for_hold(Task(1, NOW + MINUTE, shape_id=OFF_PEAK))
    assert order().qualifies_for_hold(Task(1, far))
    assert not order().qualifies_for_hold(Task(1, NOW + timedelta(hours=7)))
    assert order().qualifies_for_hold(Task(1, NOW + timedelta(hours=7), losses=1))


FAST, SLOW, NIGHT = 4, 5, 6
"""The shapes of tasks in queues of administrators."""
OWN = QueueDefinitions(
    [
        QueueDefinition(name="fast", level=10),
        QueueDefinition(name="slow", level=35),
        QueueDefinition(name="night", level=50, off_peak=True),
    ]
)
OWN_QUEUES = {**QUEUES, FAST: "fast", SLOW: "slow", NIGHT: "night"}


def own_order(used=0, definitions=OWN, **others):
    shapes = {shape: Shape(ONE, queue=OWN_QUEUES.get(shape)) for shape in range(7)}
    capacity = Resources(cpu_milli=10_000)
    free = Resources(cpu_milli=1000 * (10 - used))
    node = Offer(node_id=1, incarnation_id=1, name="n", capacity=capacity, free=free)
    room = QueueRoom(definitions, shapes, capacity, {}, NOW)
    return Order(
        OWN_QUEUES,
        shapes,
        now=NOW,
        urgent_slack=MINUTE,
        postponement=postponement_of(node),
        definitions=definitions,
        room=room,
    )


def test_queues_of_administrators_are_served_by_their_level():
    order_of_shapes = [URGENT, FAST, PERIODIC, PLAIN, SLOW, OFF_PEAK, NIGHT]
    line = [Task(shape, NOW + 9 * MINUTE, shape_id=shape) for shape in range(7)]
    assert [task.id for task in window(line, 9, own_order())] == order_of_shapes


def test_a_task_out_of_slack_comes_right_after_urgent_ones_whatever_its_level():
    late = [Task(shape, NOW, shape_id=shape) for shape in (NIGHT, SLOW, FAST)]
    rest = Task(9, NOW + 9 * MINUTE, shape_id=FAST)
    asked = Task(8, NOW + 9 * MINUTE, shape_id=URGENT)
    assert window([rest, *late, asked], 9, own_order())[0] == asked
    assert window([rest, *late, asked], 9, own_order())[-1] == rest


def test_an_off_peak_queue_of_an_administrator_waits_at_peak():
    task = Task(1, NOW + 9 * MINUTE, shape_id=NIGHT)
    assert window([task], 9, own_order(used=8)) == []
    assert window([task], 9, own_order(used=7)) == [task]


def test_a_window_starts_nothing_of_a_paused_queue_even_out_of_slack():
    paused = QueueDefinition(name="fast", level=10, paused_at=NOW, paused_by="x")
    serving = own_order(definitions=QueueDefinitions([paused]))
    late, plain = Task(1, NOW - MINUTE, shape_id=FAST), Task(2, shape_id=PLAIN)
    assert window([late, plain], 9, serving) == [plain]


def test_one_window_does_not_exceed_the_share_of_a_queue():
    bounded = QueueDefinitions([QueueDefinition(name="slow", level=35, max_share=0.3)])
    line = [Task(number, shape_id=SLOW) for number in range(9)]
    line += [Task(20 + number, shape_id=PLAIN) for number in range(9)]
    for _ in range(2):  # each window is charged on its own
        chosen = window(line, 40, own_order(definitions=bounded))
        assert [task.shape_id for task in chosen].count(SLOW) == 3
        assert [task.shape_id for task in chosen].count(PLAIN) == 9
