"""Compares large stores (waiting tasks, tenants, ended tasks) with an empty one.

A filled store and an empty one are measured in turns: with a stub agent (the control plane alone,
where a slow statement shows most), and with `--full` also with a real agent. The empty store holds
just enough waiting tasks for a turn.
"""

from collections.abc import Iterator, Sequence

from benchmarks.paired_comparison import CONTROL_PLANE, END_TO_END, compare, figures
from benchmarks.rig import Rig
from duly.bench.figure import Figure


def waiting(rig: Rig) -> Iterator[Figure]:
    """Compare stores with many waiting tasks with an empty one, and two empty ones as a control."""
    with rig.store() as first, rig.store() as second:
        comparison = compare(rig, CONTROL_PLANE, first, second)
    yield from figures(
        "waiting", f"{CONTROL_PLANE} with nothing more", comparison, "an empty store", None
    )
    some, many = rig.sizes.waiting_some, rig.sizes.waiting_many
    yield from _compare_with_empty(
        rig, "waiting", [CONTROL_PLANE], f"{some:,} waiting of 1 tenant", waiting=some
    )
    yield from _compare_with_empty(
        rig, "waiting", _kinds(rig), f"{many:,} waiting of 1 tenant", waiting=many
    )


def tenants(rig: Rig) -> Iterator[Figure]:
    """Compare stores with the tasks of many tenants with an empty one."""
    waiting, many = rig.sizes.waiting_some, rig.sizes.tenants_many
    for count in (rig.sizes.tenants_some, many):
        kinds = _kinds(rig) if count == many else [CONTROL_PLANE]
        name = f"{waiting:,} waiting of {count:,} tenants"
        yield from _compare_with_empty(rig, "tenants", kinds, name, waiting=waiting, tenants=count)


def finished(rig: Rig) -> Iterator[Figure]:
    """Compare a store with many ended tasks with an empty one."""
    count = rig.sizes.finished
    yield from _compare_with_empty(
        rig, "finished", _kinds(rig), f"{count:,} finished", finished=count
    )


def _kinds(rig: Rig) -> Sequence[str]:
    return (CONTROL_PLANE, END_TO_END) if rig.sizes.with_real_agent else (CONTROL_PLANE,)


def _compare_with_empty(
    rig: Rig,
    part: str,
    kinds: Sequence[str],
    name: str,
    *,
    waiting: int = 0,
    finished: int = 0,
    tenants: int = 1,
) -> Iterator[Figure]:
    with rig.filled_store(waiting=waiting, finished=finished, tenants=tenants) as full:
        for kind in kinds:
            with rig.store() as empty:
                comparison = compare(rig, kind, empty, full)
            yield from figures(part, f"{kind} with {name}", comparison, "an empty store", 0.9)
