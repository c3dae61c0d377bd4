"""Measures submits: batches against raw COPY of the same rows, single ones against raw commits."""

from collections.abc import Iterator

from benchmarks import checks, cluster, installation, limits
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Requests, send_all
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_least, median

CLIENTS = 16
RAW = """
create schema raw;
create table raw.plain (like duly.tasks);
alter table raw.plain add primary key (id);
create table raw.tasks (like duly.tasks including all);
create table raw.live (like duly.live including all);
create sequence raw.ids;
"""
EMPTY = "truncate raw.plain, raw.tasks, raw.live"


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit to a server without a node, and do the same without Duly in between."""
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place:
        cluster.run(dsn, RAW)
        requests = Requests(place.url, place.key)
        yield from _batches(rig, place, requests)
        yield from _singles(rig, place, requests)


def _batches(rig: Rig, place: Installation, requests: Requests) -> Iterator[Figure]:
    sizes, dsn = rig.sizes, place.dsn
    count = sizes.batches * sizes.batch
    request = requests.batch(sizes.batch, TRUE)
    send_all(requests, [request], 1)
    through, plain, both = list[float](), list[float](), list[float]()
    for _ in range(sizes.rounds):
        seconds, _ = send_all(requests, [request] * sizes.batches, 1)
        through.append(count / seconds)
        cluster.run(dsn, EMPTY)
        plain.append(limits.copy_rate(dsn, {"raw.plain": "duly.tasks"}, count, sizes.batch))
        same = {"raw.tasks": "duly.tasks", "raw.live": "duly.live"}
        both.append(limits.copy_rate(dsn, same, count, sizes.batch))
    _check_waiting(dsn, sizes.batch + sizes.rounds * count)
    yield Figure(
        part="submit",
        name=f"batch submit over HTTP, {sizes.batch:,} in a request",
        value=median(through),
        unit="/s",
        limit=median(both),
        against="raw COPY of the same rows into the same tables",
        target=at_least(0.4),
    )
    yield Figure(
        part="submit",
        name="the same",
        value=median(through),
        unit="/s",
        limit=median(plain),
        against="raw COPY of half of those rows into a table without Duly's indexes",
    )


def _singles(rig: Rig, place: Installation, requests: Requests) -> Iterator[Figure]:
    sizes, dsn = rig.sizes, place.dsn
    before: int = cluster.value(dsn, "select count(*) from duly.tasks")
    both, plain = _inserts(dsn)
    request = requests.post("/v1/tasks", TRUE)
    send_all(requests, [request] * CLIENTS, CLIENTS)
    through, same, half = list[float](), list[float](), list[float]()
    for _ in range(sizes.rounds):
        seconds, _ = send_all(requests, [request] * sizes.singles, CLIENTS)
        through.append(sizes.singles / seconds)
        same.append(limits.commit_rate(dsn, both, CLIENTS, sizes.commit_seconds))
        half.append(limits.commit_rate(dsn, plain, CLIENTS, sizes.commit_seconds))
    _check_waiting(dsn, before + CLIENTS + sizes.rounds * sizes.singles)
    yield Figure(
        part="submit",
        name=f"single submits over HTTP, {CLIENTS} clients",
        value=median(through),
        unit="/s",
        limit=median(same),
        against=f"{CLIENTS} raw connections that commit the same rows (pgbench)",
        target=at_least(0.4),
    )
    yield Figure(
        part="submit",
        name="the same",
        value=median(through),
        unit="/s",
        limit=median(half),
        against="the same with one of the two rows, without Duly's indexes",
    )


def _inserts(dsn: str) -> tuple[str, str]:
    """Return the statements that store both rows of a task under the next id, and one of them."""
    task, live, plain = (
        _insert(dsn, *names)
        for names in (
            ("raw.tasks", "duly.tasks", "nextval('raw.ids')"),
            ("raw.live", "duly.live", "task.id"),
            ("raw.plain", "duly.tasks", "nextval('raw.ids')"),
        )
    )
    return f"with task as ({task} returning id) {live} from task", plain


def _insert(dsn: str, to: str, of: str, number: str) -> str:
    """Return the statement that stores a copy of a row under another id."""
    parts = cluster.rows(
        dsn,
        "select a.attname, quote_nullable((to_jsonb(t) ->> a.attname)) || '::' || "
        "format_type(a.atttypid, a.atttypmod) "
        f"from pg_attribute a, (select * from {of} limit 1) t "
        "where a.attrelid = $1::text::regclass and a.attnum > 0 and not a.attisdropped",
        to,
    )
    values = {row[0]: row[1] for row in parts} | {"id": number}
    return f"insert into {to} ({', '.join(values)}) select {', '.join(values.values())}"


def _check_waiting(dsn: str, tasks: int) -> None:
    """Make sure that every task that was answered for is stored, and no other."""
    checks.none_lost(dsn, tasks)
