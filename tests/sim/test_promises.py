"""The promises of fair scheduling, kept on simulated fleets."""

import pytest

from duly.config import SchedulingSettings
from duly.model.queues.queue import Queue
from duly.model.resources import TIERS, Resources
from duly.sim.report import jain, percentile, shares_over_time
from duly.sim.task import instant
from duly.sim.workloads.distributions import Constant, Exponential, Uniform
from duly.sim.workloads.workload import DAY, NodeGroup
from tests.sim.builders import SLOT, burst, nodes, rate, run, task_class, tenant, workload

VARIED = Uniform(1.0, 3.0)


def shares(simulation):
    return shares_over_time(simulation.workload, simulation.recorder).by_tenant


def waits(simulation, tenants=None, classes=None):
    matching = [
        wait
        for (class_id, tenant_id), values in simulation.recorder.waits.items()
        if (tenants is None or tenant_id in tenants) and (classes is None or class_id in classes)
        for wait in values
    ]
    return sorted(matching)


def shares_of_weights():
    backlog = [tenant(f"weight-{weight}", burst(2000), weight=weight) for weight in (1, 2, 4)]
    simulation = run(
        workload(backlog, [task_class(run_time=VARIED)], [nodes(1, 10)], duration=600.0)
    )
    return [sum(each) for each in shares(simulation).values()]


def test_weights_divide_the_fleet_within_5_percent_over_ten_minutes():
    light, medium, heavy = shares_of_weights()
    assert medium / light == pytest.approx(2, rel=0.05)
    assert heavy / light == pytest.approx(4, rel=0.05)


def test_nine_backlogged_tenants_get_the_same_while_a_tenth_floods():
    tenants = [tenant("flooder", burst(10_000))]
    tenants += [tenant(f"tenant-{number}", burst(400)) for number in range(9)]
    simulation = run(workload(tenants, [task_class(run_time=VARIED)], duration=240.0))
    interval = simulation.recorder.interval
    width = round(60 / interval)
    by_tenant = shares(simulation)
    for first in range(round(240 / interval) - width + 1):
        use = [sum(by_tenant[number][first : first + width]) for number in range(1, 10)]
        assert jain(use) >= 0.95


def test_a_flood_at_most_doubles_the_waits_that_strict_priority_over_it_would_give():
    light = [tenant(f"tenant-{number}", rate(0.6)) for number in range(9)]
    flooder = tenant("flooder", burst(6000))
    normal = [task_class(run_time=VARIED)]
    fair = run(workload([*light, flooder], normal, duration=600.0))
    strict = [*normal, task_class("last", VARIED, priority=-1, tolerance=10**6)]
    last = tenant("flooder", burst(6000, class_id=1))
    best = run(workload([*light, last], strict, duration=600.0), policy="edf")
    nine = range(9)
    least = percentile(waits(best, nine), 0.95)
    assert percentile(waits(fair, nine), 0.95) <= 2 * least


def test_marking_everything_urgent_gains_at_most_5_percent_over_the_fair_share():
    normal = task_class(run_time=VARIED)
    urgent = task_class("urgent", VARIED, queue=Queue.URGENT)
    tenants = [tenant("pushy", burst(3000, class_id=1))]
    tenants += [tenant(f"tenant-{number}", burst(3000)) for number in range(3)]
    simulation = run(workload(tenants, [normal, urgent], duration=300.0))
    use = {tenant_id: sum(values) for tenant_id, values in shares(simulation).items()}
    assert use[0] / (sum(use.values()) / 4) <= 1.05


class OffPeakStarts:
    """Looks at the load under which off-peak tasks start."""

    def __init__(self):
        self.count = 0
        self.early = []

    def after_events(self, simulation):
        free, whole = simulation.cluster.fleet_offer.free, simulation.cluster.capacity
        self.used = whole.cpu_milli - free.cpu_milli

    def after_round(self, simulation, decided):
        workload = simulation.workload
        for task, _ in decided.starts:
            shape = workload.shapes[task.shape_id]
            if shape.queue == Queue.OFF_PEAK:
                self.count += 1
                at_peak = self.used >= 0.8 * simulation.cluster.capacity.cpu_milli
                slack = task.start_by - instant(simulation.world.now)
                if at_peak and slack > workload.scheduling.urgent_slack:
                    self.early.append(task.id)
            self.used += shape.needs.cpu_milli

    def after_rounds(self, simulation):
        pass


BASIC = TIERS["basic"]
PEAK_FACTOR = 2 * 4.3 / 5.3
"""Of the mean, if the load at the peak is 4.3 times that of the trough."""


def diurnal(off_peak):
    """Return a day whose mean load fills the fleet to 65 %; without `off_peak`, a third less."""
    day = {"peak_factor": PEAK_FACTOR, "peak_at": 14 * 3600.0}
    slots, run_time = 96, 600.0
    classes = [
        task_class("normal", Exponential(run_time), BASIC),
        task_class(
            "later", Exponential(run_time), BASIC, queue=Queue.OFF_PEAK, tolerance=12 * 3600
        ),
    ]
    total = 0.65 * slots / run_time
    tenants = [tenant(f"tenant-{number}", rate(total * 2 / 9, **day)) for number in range(3)]
    if off_peak:
        tenants.append(tenant("patient", rate(total / 3, 1, **day)))
    node = NodeGroup(count=6, capacity=Resources().plus(BASIC, 16))
    return workload(tenants, classes, [node], duration=DAY)


def test_off_peak_work_waits_for_quiet_hours_and_delays_nobody():
    observer = OffPeakStarts()
    busy, alone = run(diurnal(True), observer=observer), run(diurnal(False))
    assert observer.count > 3000 and observer.early == []
    assert busy.recorder.missed_tolerances == alone.recorder.missed_tolerances == 0
    with_off_peak = percentile(waits(busy, classes=[0]), 0.99)
    without = percentile(waits(alone, classes=[0]), 0.99)
    assert with_off_peak <= 1.1 * without + busy.workload.round_interval


def test_long_tolerances_wait_for_quiet_hours_until_six_hours_are_left():
    long = task_class(run_time=Constant(3 * 3600.0), cap=4 * 3600)
    tenants = [tenant("busy", burst(18)), tenant("patient", burst(4, class_id=1, at=600.0))]
    simulation = run(workload(tenants, [long, task_class(tolerance=7 * 3600)]))
    # Two at a time, and each runs for two seconds.
    assert [round(wait) for wait in waits(simulation, classes=[1])] == [3600, 3600, 3602, 3602]


def busy_fleet(scheduling):
    """Return a fleet that normal tasks fill, and a few urgent ones."""
    classes = [
        task_class("normal", Exponential(60.0), BASIC, tolerance=3600),
        task_class("urgent", Exponential(10.0), BASIC, queue=Queue.URGENT),
    ]
    tenants = [tenant("busy", rate(1.2)), tenant("other", rate(0.03, class_id=1))]
    node = NodeGroup(count=2, capacity=Resources().plus(BASIC, 32))
    return workload(tenants, classes, [node], 3600.0, scheduling)


def test_at_peak_urgent_tasks_start_at_once_in_the_headroom():
    kept = run(busy_fleet(SchedulingSettings()))
    none = run(busy_fleet(SchedulingSettings(urgent_headroom=0)))
    assert percentile(waits(kept, classes=[1]), 0.95) <= kept.workload.round_interval
    assert percentile(waits(none, classes=[1]), 0.95) > 0.5


def test_a_large_task_is_not_starved_by_small_ones():
    big = task_class("big", VARIED, Resources(cpu_milli=10_000), tolerance=60)
    small = task_class(run_time=VARIED, tolerance=60)
    tenants = [tenant("small", rate(9.0)), tenant("big", burst(3, class_id=1, at=20.0))]
    simulation = run(workload(tenants, [small, big], duration=300.0))
    assert waits(simulation, classes=[1])[-1] <= 60


def test_attempts_lost_with_nodes_run_again():
    fleet = [nodes(4, 5, mean_time_between_failures=60.0, repair_time=20.0)]
    slow = task_class(run_time=Uniform(5.0, 20.0))
    simulation = run(workload([tenant("one", rate(0.5))], [slow], fleet, duration=600.0))
    recorder = simulation.recorder
    assert recorder.attempts_lost > 5 and recorder.failed == 0
    assert recorder.ended == sum(1 for _ in simulation.workload.arrivals.tasks(1))


def test_the_same_seed_gives_the_same_history():
    world = workload([tenant("one", rate(5.0)), tenant("two", rate(5.0))], [task_class(needs=SLOT)])
    first, second, other = run(world), run(world), run(world, seed=2)
    assert first.recorder.waits == second.recorder.waits
    assert first.recorder.arrived != other.recorder.arrived
