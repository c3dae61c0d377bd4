"""Learns how long tasks run, by tenant and name, and tells it to those who store tasks.

The leader learns from the attempts that the usage recorder books, far from the path of a finish.
Every server caches the names that are submitted to it. A name is unknown until the next refresh
after its first use, so that no submission waits for a lookup.
"""

from datetime import timedelta

from duly.model.run_time import NO_ESTIMATE, RunTimeEstimate
from duly.policy import run_time
from duly.server.service import Service
from duly.store.attempts import run_times
from duly.store.attempts.run_times import NameKey
from duly.store.database import Connection, Database

REFRESH_INTERVAL = timedelta(seconds=5)
MAX_CACHED_NAMES = 20_000
MAX_NAMES_PER_REFRESH = 5000
MAX_NAMES_PER_TENANT = 1000


class RunTimes(Service):
    """Caches the estimates of the names that are submitted to this server."""

    def __init__(self, database: Database) -> None:
        super().__init__(REFRESH_INTERVAL)
        self._database = database
        self._estimates: dict[NameKey, RunTimeEstimate] = {}
        """Least recently refreshed first."""
        self._used: set[NameKey] = set()
        """The names asked for since the last refresh."""

    def estimate(self, tenant_id: int, name: str | None) -> RunTimeEstimate:
        """Return what is known about tasks of a name, and have it refreshed."""
        if name is None:
            return NO_ESTIMATE
        key = tenant_id, name
        if len(self._used) < MAX_NAMES_PER_REFRESH:
            self._used.add(key)
        return self._estimates.get(key, NO_ESTIMATE)

    async def tick(self) -> bool:
        """Read the names that were used again."""
        if not self._used:
            return False
        used, self._used = self._used, set()
        async with self._database.connection() as conn:
            known = await run_times.read(conn, used)
        for key in used:
            self._estimates.pop(key, None)
        self._estimates.update({key: run_time.estimate(each) for key, each in known.items()})
        excess = len(self._estimates) - MAX_CACHED_NAMES
        for key in list(self._estimates)[: max(excess, 0)]:
            del self._estimates[key]
        return False


async def learn(conn: Connection, above: int, up_to: int) -> None:
    """Learn from the attempts with entries in a range, in the transaction that books them."""
    samples = await run_times.read_samples(conn, above=above, up_to=up_to)
    if not samples:
        return
    learned = await run_times.read(conn, samples)
    tenants_with_new_names = {key[0] for key in samples.keys() - learned.keys()}
    for key, seconds in samples.items():
        for sample in seconds:
            learned[key] = run_time.observe(learned.get(key), sample)
    await run_times.store(conn, learned)
    if tenants_with_new_names:
        await run_times.trim(conn, sorted(tenants_with_new_names), keep=MAX_NAMES_PER_TENANT)
