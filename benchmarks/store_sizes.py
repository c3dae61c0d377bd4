"""Compares large stores (waiting tasks, tenants, ended tasks) with an empty one.

A full store and an empty one are measured in turns: once by a stub agent (the control plane
alone, where a slow statement shows most), and at the full size once for real, which takes too
long for every day. The empty one holds just enough for a turn.
"""

from collections.abc import Iterator, Sequence

from benchmarks.paired_comparison import BY_STUB, FOR_REAL, compare, told
from benchmarks.rig import Rig
from duly.bench.figure import Figure


def waiting(rig: Rig) -> Iterator[Figure]:
    """Compare stores with many waiting tasks with an empty one, and that with another like it."""
    with rig.store() as one, rig.store() as other:
        compared = compare(rig, BY_STUB, one, other)
    yield from told("waiting", f"{BY_STUB} with nothing more", compared, "an empty store", None)
    some, many = rig.sizes.waiting_some, rig.sizes.waiting_many
    yield from _compared(rig, "waiting", [BY_STUB], f"{some:,} waiting of 1 tenant", waiting=some)
    yield from _compared(rig, "waiting", _kinds(rig), f"{many:,} waiting of 1 tenant", waiting=many)


def tenants(rig: Rig) -> Iterator[Figure]:
    """Compare stores whose tasks are of many tenants with an empty one."""
    waiting, many = rig.sizes.waiting_some, rig.sizes.tenants_many
    for count in (rig.sizes.tenants_some, many):
        kinds = _kinds(rig) if count == many else [BY_STUB]
        name = f"{waiting:,} waiting of {count:,} tenants"
        yield from _compared(rig, "tenants", kinds, name, waiting=waiting, tenants=count)


def finished(rig: Rig) -> Iterator[Figure]:
    """Compare a store that remembers millions of tasks with an empty one."""
    count = rig.sizes.finished
    yield from _compared(rig, "finished", _kinds(rig), f"{count:,} finished", finished=count)


def _kinds(rig: Rig) -> Sequence[str]:
    return (BY_STUB, FOR_REAL) if rig.sizes.for_real else (BY_STUB,)


def _compared(
    rig: Rig,
    part: str,
    kinds: Sequence[str],
    name: str,
    *,
    waiting: int = 0,
    finished: int = 0,
    tenants: int = 1,
) -> Iterator[Figure]:
    with rig.full(waiting=waiting, finished=finished, tenants=tenants) as full:
        for kind in kinds:
            with rig.store() as empty:
                compared = compare(rig, kind, empty, full)
            yield from told(part, f"{kind} with {name}", compared, "an empty store", 0.9)
