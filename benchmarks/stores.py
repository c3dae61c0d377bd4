"""The same work beside a million waiting tasks, many tenants, or millions that have ended.

In every store the same number of waiting tasks is run off, by a server that has just been
started, once by a stub agent (the control plane alone, where a slow statement shows most) and
once for real. The empty store holds just enough of them.
"""

from collections.abc import Iterator

from benchmarks import checks, cluster, endings, installation
from benchmarks.rig import Rig
from benchmarks.stub import stub
from duly.bench.figure import Figure, at_least

SPARE = 1.2
"""Of what is run off, so that the end of the line is not in sight."""
BY_STUB, FOR_REAL = "control plane", "/bin/true end to end"


def waiting(rig: Rig) -> Iterator[Figure]:
    """Compare stores with many waiting tasks with an empty one."""
    sizes = rig.sizes
    base = {BY_STUB: _by_stub(rig), FOR_REAL: _for_real(rig)}
    for count in (sizes.waiting_some, sizes.waiting_many):
        name = f"{count:,} waiting"
        yield _figure("waiting", BY_STUB, name, _by_stub(rig, waiting=count), base)
    yield _figure("waiting", FOR_REAL, name, _for_real(rig, waiting=count), base)


def tenants(rig: Rig) -> Iterator[Figure]:
    """Compare stores whose tasks are of many tenants with one of a single tenant."""
    sizes = rig.sizes
    base = {BY_STUB: _by_stub(rig), FOR_REAL: _for_real(rig)}
    for count in (1, sizes.tenants_some, sizes.tenants_many):
        name = f"{sizes.waiting_some:,} waiting of {count:,} tenants"
        value = _by_stub(rig, waiting=sizes.waiting_some, tenants=count)
        yield _figure("tenants", BY_STUB, name, value, base)
    value = _for_real(rig, waiting=sizes.waiting_some, tenants=count)
    yield _figure("tenants", FOR_REAL, name, value, base)


def finished(rig: Rig) -> Iterator[Figure]:
    """Compare a store that remembers millions of tasks with an empty one."""
    base = {BY_STUB: _by_stub(rig), FOR_REAL: _for_real(rig)}
    count = rig.sizes.finished
    work = round(max(rig.sizes.drained, rig.sizes.drained_runs) * SPARE)
    with rig.store(waiting=work, finished=count) as full:
        # What is stopped half-way leaves traces: each begins with a store of its own.
        for kind, run in ((BY_STUB, _stub), (FOR_REAL, _run)):
            with rig.copy(full) as dsn:
                value = run(rig, dsn, count + work)
            yield _figure("finished", kind, f"{count:,} finished", value, base)


def _by_stub(rig: Rig, *, waiting: int = 0, tenants: int = 1) -> float:
    waiting = max(waiting, round(rig.sizes.drained * SPARE))
    with rig.store(waiting=waiting, tenants=tenants) as dsn:
        return _stub(rig, dsn, waiting)


def _for_real(rig: Rig, *, waiting: int = 0, tenants: int = 1) -> float:
    waiting = max(waiting, round(rig.sizes.drained_runs * SPARE))
    with rig.store(waiting=waiting, tenants=tenants) as dsn:
        return _run(rig, dsn, waiting)


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


def _figure(part: str, kind: str, name: str, value: float, base: dict[str, float]) -> Figure:
    return Figure(
        part=part,
        name=f"{kind} with {name}",
        value=value,
        unit="/s",
        limit=base[kind],
        against="an empty store",
        target=at_least(0.9),
    )
