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
    return round(_span(rig, kind) * rig.sizes.drains * SPARE)


def _span(rig: Rig, kind: str) -> int:
    return rig.sizes.drained if kind == BY_STUB else rig.sizes.drained_runs


def _rates(
    rig: Rig, kinds: Sequence[str], waiting: int, *, finished: int = 0, tenants: int = 1
) -> dict[str, float]:
    """Return how fast tasks end in such a store, by the kind of agent."""
    rates = {}
    with rig.store(waiting=waiting, finished=finished, tenants=tenants) as full:
        # What is stopped half-way leaves traces: only the last one uses the store itself.
        for kind in kinds[:-1]:
            with rig.copy(full) as dsn:
                rates[kind] = _rate(rig, kind, dsn, waiting + finished)
        rates[kinds[-1]] = _rate(rig, kinds[-1], full, waiting + finished)
    return rates


def _rate(rig: Rig, kind: str, dsn: str, tasks: int) -> float:
    since, span, spans = endings.now(dsn), _span(rig, kind), rig.sizes.drains
    if kind == BY_STUB:
        _by_stub(rig, dsn, span * spans, tasks)
    else:
        _for_real(rig, dsn, span * spans, tasks)
    return endings.best_rate(dsn, since, span, spans)


def _by_stub(rig: Rig, dsn: str, count: int, tasks: int) -> None:
    with installation.serve(rig.postgres, dsn) as place, stub(place) as counts:
        counts.wait_for(count)
    checks.none_lost(dsn, tasks)
    if counts.stale:
        raise checks.Wrong(f"{counts.stale:,} reports were refused as stale")


def _for_real(rig: Rig, dsn: str, count: int, tasks: int) -> None:
    before: int = cluster.value(dsn, "select last_value from duly.tokens")
    with installation.up(rig.postgres, dsn):
        # Those that run at once have not ended yet.
        endings.await_leases(dsn, before + min(count + 100, round(count * SPARE)))
        checks.none_lost(dsn, tasks)


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
