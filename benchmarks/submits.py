"""Measures submits: batches against raw COPY of the same rows, single ones against raw commits."""

from collections.abc import Iterator

from benchmarks import checks, cluster, installation, limits
from benchmarks.installation import Installation
from benchmarks.load import TRUE_TASK, Requests, send_all
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_least, median

CLIENTS = 16
RAW_TABLES = """
create schema raw;
create table raw.plain (like duly.tasks);
alter table raw.plain add primary key (id);
create table raw.tasks (like duly.tasks including all);
create table raw.live (like duly.live including all);
create sequence raw.ids;
"""
TRUNCATE_RAW_TABLES = "truncate raw.plain, raw.tasks, raw.live"


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit to a server without a node, and store the same rows without Duly."""
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as instance:
        cluster.run(dsn, RAW_TABLES)
        requests = Requests(instance.url, instance.key)
        yield from _batches(rig, instance, requests)
        yield from _singles(rig, instance, requests)


def _batches(rig: Rig, instance: Installation, requests: Requests) -> Iterator[Figure]:
    sizes, dsn = rig.sizes, instance.dsn
    count = sizes.batches * sizes.batch
    request = requests.batch(sizes.batch, TRUE_TASK)
    send_all(requests, [request], 1)
    duly, one_row, both_rows = list[float](), list[float](), list[float]()
    for _ in range(sizes.rounds):
        seconds, _ = send_all(requests, [request] * sizes.batches, 1)
        duly.append(count / seconds)
        cluster.run(dsn, TRUNCATE_RAW_TABLES)
        one_row.append(limits.copy_rate(dsn, {"raw.plain": "duly.tasks"}, count, sizes.batch))
        tables = {"raw.tasks": "duly.tasks", "raw.live": "duly.live"}
        both_rows.append(limits.copy_rate(dsn, tables, count, sizes.batch))
    checks.none_lost(dsn, sizes.batch + sizes.rounds * count)
    yield Figure(
        part="submit",
        name=f"batch submit over HTTP, {sizes.batch:,} in a request",
        value=median(duly),
        unit="/s",
        limit=median(both_rows),
        against="raw COPY of the same rows into the same tables",
        target=at_least(0.4),
    )
    yield Figure(
        part="submit",
        name="the same",
        value=median(duly),
        unit="/s",
        limit=median(one_row),
        against="raw COPY of half of those rows into a table without Duly's indexes",
    )


def _singles(rig: Rig, instance: Installation, requests: Requests) -> Iterator[Figure]:
    sizes, dsn = rig.sizes, instance.dsn
    before: int = cluster.value(dsn, "select count(*) from duly.tasks")
    both_statement, one_statement = _inserts(dsn)
    request = requests.post("/v1/tasks", TRUE_TASK)
    send_all(requests, [request] * CLIENTS, CLIENTS)
    duly, both_rows, one_row = list[float](), list[float](), list[float]()
    for _ in range(sizes.rounds):
        seconds, _ = send_all(requests, [request] * sizes.singles, CLIENTS)
        duly.append(sizes.singles / seconds)
        both_rows.append(limits.commit_rate(dsn, both_statement, CLIENTS, sizes.commit_seconds))
        one_row.append(limits.commit_rate(dsn, one_statement, CLIENTS, sizes.commit_seconds))
    checks.none_lost(dsn, before + CLIENTS + sizes.rounds * sizes.singles)
    yield Figure(
        part="submit",
        name=f"single submits over HTTP, {CLIENTS} clients",
        value=median(duly),
        unit="/s",
        limit=median(both_rows),
        against=f"{CLIENTS} raw connections that commit the same rows (pgbench)",
        target=at_least(0.4),
    )
    yield Figure(
        part="submit",
        name="the same",
        value=median(duly),
        unit="/s",
        limit=median(one_row),
        against="the same with one of the two rows, without Duly's indexes",
    )


def _inserts(dsn: str) -> tuple[str, str]:
    """Return a statement that stores both rows of a task under a new id, and one for one row."""
    task, live, plain = (
        _insert(dsn, *names)
        for names in (
            ("raw.tasks", "duly.tasks", "nextval('raw.ids')"),
            ("raw.live", "duly.live", "task.id"),
            ("raw.plain", "duly.tasks", "nextval('raw.ids')"),
        )
    )
    return f"with task as ({task} returning id) {live} from task", plain


def _insert(dsn: str, to: str, source: str, id_expression: str) -> str:
    """Return a statement that stores a copy of a row of `source` with the id `id_expression`."""
    columns = cluster.rows(
        dsn,
        "select a.attname, quote_nullable((to_jsonb(t) ->> a.attname)) || '::' || "
        "format_type(a.atttypid, a.atttypmod) "
        f"from pg_attribute a, (select * from {source} limit 1) t "
        "where a.attrelid = $1::text::regclass and a.attnum > 0 and not a.attisdropped",
        to,
    )
    values = {row[0]: row[1] for row in columns} | {"id": id_expression}
    return f"insert into {to} ({', '.join(values)}) select {', '.join(values.values())}"
