"""Small random worlds: fleets, weights, workloads and crashes, all from one seed."""

from datetime import timedelta
from random import Random

from duly.config import SchedulingSettings
from duly.model.queues.queue import Queue
from duly.model.resources import Resources
from duly.sim.workloads.distributions import Constant, Exponential, Uniform
from tests.sim.builders import burst, nodes, rate, run, task_class, tenant, workload
from tests.sim.invariants import Invariants, Violation, check_end

DURATION = 60.0


def random_world(seed):
    rng = Random(seed)
    slots = rng.randint(2, 6)
    crashes = {"mean_time_between_failures": rng.uniform(20, 90), "repair_time": rng.uniform(1, 30)}
    fleet = [nodes(rng.randint(1, 3), slots, **(crashes if rng.random() < 0.4 else {}))]
    if rng.random() < 0.3:
        fleet.append(nodes(rng.randint(1, 2), rng.randint(slots, 8), labels={"disk": "fast"}))
    classes = [_random_class(rng, number, slots) for number in range(rng.randint(1, 4))]
    tenants = [
        tenant(
            f"tenant-{number}",
            *(_random_stream(rng, len(classes)) for _ in range(rng.randint(1, 2))),
            weight=rng.choice([1, 1, 2, 4]),
        )
        for number in range(rng.randint(1, 4))
    ]
    scheduling = SchedulingSettings(
        peak_percent=rng.choice([50, 80]),
        off_peak_percent=rng.choice([30, 50]),
        postpone_slack=timedelta(seconds=rng.choice([80, 21_600])),
    )
    return workload(tenants, classes, fleet, DURATION, scheduling)


def _random_class(rng, number, slots):
    mean = rng.choice([0.3, 1.0, 4.0])
    run_time = rng.choice([Constant(mean), Uniform(mean / 2, 2 * mean), Exponential(mean)])
    return task_class(
        f"class-{number}",
        run_time,
        Resources(cpu_milli=rng.choice([500, 1000, 1000, 2000, 1000 * slots])),
        tolerance=rng.choice([0, 5, 60, 100, 300]),
        cap=rng.choice([10, 60]),
        queue=rng.choice([None, None, Queue.URGENT, Queue.OFF_PEAK]),
        priority=rng.choice([0, 0, 5]),
    )


def _random_stream(rng, classes):
    class_id = rng.randrange(classes)
    if rng.random() < 0.5:
        return burst(rng.randint(1, 25), class_id, at=rng.uniform(0, DURATION / 2))
    return rate(rng.uniform(0.05, 0.8), class_id)


def check_seed(seed):
    """Run a random world and check it; the error names the seed."""
    world = random_world(seed)
    total = sum(1 for _ in world.arrivals.tasks(seed))
    invariants = Invariants()
    try:
        check_end(run(world, seed=seed, observer=invariants), total)
    except Violation as violation:
        raise AssertionError(
            f"seed {seed}: {violation} (python -m tests.sim {seed})"
        ) from violation
    return invariants.rounds
