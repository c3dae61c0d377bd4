"""Workloads for tests, with defaults for what a test does not care about."""

from datetime import timedelta

from duly.config import LeaseSettings, SchedulingSettings
from duly.model.resources import Resources
from duly.sim.simulation import Simulation
from duly.sim.workloads.arrivals import StreamArrivals
from duly.sim.workloads.distributions import Constant
from duly.sim.workloads.workload import NodeGroup, Stream, TaskClass, TenantLoad, Workload

SLOT = Resources(cpu_milli=1000)


def task_class(name="small", run_time=None, needs=SLOT, tolerance=300, cap=3600, **more):
    return TaskClass(
        name=name,
        needs=needs,
        run_time=run_time or Constant(2.0),
        delay_tolerance=timedelta(seconds=tolerance),
        execution_cap=timedelta(seconds=cap),
        **more,
    )


def tenant(name, *streams, weight=1):
    return TenantLoad(name=name, weight=weight, streams=streams)


def burst(count, class_id=0, at=0.0):
    return Stream(class_id=class_id, burst=count, starts_at=at)


def rate(per_second, class_id=0, **more):
    return Stream(class_id=class_id, rate=per_second, **more)


def nodes(count, slots, **more):
    return NodeGroup(count=count, capacity=Resources(cpu_milli=1000 * slots), **more)


def workload(tenants, classes=None, fleet=None, duration=60.0, scheduling=None, **more):
    classes = classes or [task_class()]
    shapes, shape_ids = {}, []
    for each in classes:
        id_ = next((id_ for id_, known in shapes.items() if known == each.shape), len(shapes) + 1)
        shapes[id_] = each.shape
        shape_ids.append(id_)
    return Workload(
        name="test",
        duration=duration,
        nodes=tuple(fleet or [nodes(2, 10)]),
        tenants=tuple(each.name for each in tenants),
        weights={id_: each.weight for id_, each in enumerate(tenants)},
        classes=tuple(each.name for each in classes),
        shapes=shapes,
        arrivals=StreamArrivals(tenants, classes, shape_ids, duration),
        max_attempts=tuple(each.max_attempts for each in classes),
        scheduling=scheduling or SchedulingSettings(),
        leases=LeaseSettings(),
        **more,
    )


def run(world, policy="duly", seed=1, observer=None):
    simulation = Simulation(world, policy, seed, observer)
    simulation.run()
    return simulation
