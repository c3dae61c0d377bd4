"""The same work beside a million waiting tasks, many tenants, or millions that have ended.

In every store the same number of waiting tasks is run off, by a server that has just been
started, once by a stub agent (the control plane alone, where a slow statement shows most) and
once for real. The empty store holds just enough of them.
"""

from collections.abc import Iterator, Sequence

from benchmarks import checks, cluster, endings, installation
from benchmarks.rig import Rig
from benchmarks.stub import stub
from duly.bench.figure import Figure, at_least

SPARE = 1.2
"""Of what is run off, so that the end of the line is not in sight."""
BY_STUB, FOR_REAL = BOTH = ("control plane", "/bin/true end to end")


def waiting(rig: Rig) -> Iterator[Figure]:
    """Compare stores with many waiting tasks with an empty one."""
    base = _empty(rig)
    some, many = rig.sizes.waiting_some, rig.sizes.waiting_many
    yield from _compared("waiting", f"{some:,} waiting", base, _rates(rig, [BY_STUB], some))
    yield from _compared("waiting", f"{many:,} waiting", base, _rates(rig, BOTH, many))


def tenants(rig: Rig) -> Iterator[Figure]:
    """Compare stores whose tasks are of many tenants with an empty one."""
    base = _empty(rig)
    waiting, many = rig.sizes.waiting_some, rig.sizes.tenants_many
    for count in (1, rig.sizes.tenants_some, many):
        rates = _rates(rig, BOTH if count == many else [BY_STUB], waiting, tenants=count)
        name = f"{waiting:,} waiting of {count:,} tenant{'s' if count > 1 else ''}"
        yield from _compared("tenants", name, base, rates)


def finished(rig: Rig) -> Iterator[Figure]:
    """Compare a store that remembers millions of tasks with an empty one."""
    base = _empty(rig)
    count, enough = rig.sizes.finished, max(_enough(rig, kind) for kind in BOTH)
    rates = _rates(rig, BOTH, enough, finished=count)
    yield from _compared("finished", f"{count:,} finished", base, rates)


def _empty(rig: Rig) -> dict[str, float]:
    """Return the rates with a store that holds just enough."""
    rates: dict[str, float] = {}
    for kind in BOTH:
        rates |= _rates(rig, [kind], _enough(rig, kind))
    return rates


def _enough(rig: Rig, kind: str) -> int:
    run_off = rig.sizes.drained if kind == BY_STUB else rig.sizes.drained_runs
    return round(run_off * SPARE)


def _rates(
    rig: Rig, kinds: Sequence[str], waiting: int, *, finished: int = 0, tenants: int = 1
) -> dict[str, float]:
    """Return how fast tasks end in such a store, by the kind of agent."""
    rates = {}
    with rig.store(waiting=waiting, finished=finished, tenants=tenants) as full:
        for kind in kinds:
            tries = [_rate(rig, kind, full, waiting + finished) for _ in range(rig.sizes.drains)]
            # What else goes on in the machine can only make it slower.
            rates[kind] = max(tries)
    return rates


def _rate(rig: Rig, kind: str, full: str, tasks: int) -> float:
    # What is stopped half-way leaves traces: each begins with a copy of its own.
    with rig.copy(full) as dsn:
        return _stub(rig, dsn, tasks) if kind == BY_STUB else _run(rig, dsn, tasks)


def _stub(rig: Rig, dsn: str, tasks: int) -> float:
    since = endings.now(dsn)
    with installation.serve(rig.postgres, dsn) as place, stub(place) as counts:
        counts.wait_for(rig.sizes.drained)
    checks.none_lost(dsn, tasks)
    if counts.stale:
        raise checks.Wrong(f"{counts.stale:,} reports were refused as stale")
    return endings.rate(dsn, since, rig.sizes.drained)


def _run(rig: Rig, dsn: str, tasks: int) -> float:
    since, count = endings.now(dsn), rig.sizes.drained_runs
    before: int = cluster.value(dsn, "select last_value from duly.tokens")
    with installation.up(rig.postgres, dsn):
        # Those that run at once have not ended yet.
        endings.await_leases(dsn, before + min(count + 100, round(count * SPARE)))
        checks.none_lost(dsn, tasks)
    return endings.rate(dsn, since, count)


def _compared(
    part: str, name: str, base: dict[str, float], rates: dict[str, float]
) -> Iterator[Figure]:
    for kind, value in rates.items():
        yield Figure(
            part=part,
            name=f"{kind} with {name}",
            value=value,
            unit="/s",
            limit=base[kind],
            against="an empty store",
            target=at_least(0.9),
        )
