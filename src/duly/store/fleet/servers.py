"""Server numbers and leadership terms.

A number makes ids unique; a term makes decisions exclusive. Both are leased and fenced, so that a
holder that was suspended and wakes up cannot do harm.
"""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.errors import NotLeading, Unavailable
from duly.model.queues.peak import NO_PEAK, PeakState
from duly.store.database import Connection, load_statements

SQL = load_statements("servers.sql")
SCHEDULING = "scheduling"
"""The only duty so far: placing, expiring, retrying and cleaning up."""


class ServerNumber(msgspec.Struct, frozen=True):
    """A server's number, and the second above which it may generate ids."""

    number: int
    high_water: int


class ServerProcess(msgspec.Struct, frozen=True):
    """Where a server runs: its machine, its process there, and the URL that it listens on."""

    host: str
    pid: int
    address: str | None


class Term(msgspec.Struct, frozen=True):
    """A server's leadership of a duty."""

    number: int
    server: int


async def take_number(
    conn: Connection, process: ServerProcess, incarnation: UUID, version: str, *, silence: timedelta
) -> ServerNumber:
    """Lease the number of a server without a heartbeat for `silence`, or a new one."""
    for _ in range(20):
        row = await conn.fetchrow(
            SQL["take_number"],
            process.host,
            incarnation,
            version,
            silence,
            process.address,
            process.pid,
        )
        if row is not None:
            return ServerNumber(row["number"], row["high_water"])
    raise Unavailable("Every server number is taken; 256 servers are the most in one cell.")


async def renew_number(
    conn: Connection, number: int, incarnation: UUID, *, high_water: int
) -> datetime | None:
    """Renew the number and return the time; None if another server has taken it."""
    row = await conn.fetchrow(SQL["renew_number"], number, incarnation, high_water)
    return None if row is None else row["now"]


async def release_number(
    conn: Connection, number: int, incarnation: UUID, *, high_water: int
) -> None:
    """Release the number at a clean shutdown; `high_water` is the last second of its ids."""
    await conn.execute(SQL["release_number"], number, incarnation, high_water)


async def renew_term(conn: Connection, term: Term, *, ttl: timedelta) -> bool:
    """Renew a term; False when it is over."""
    return bool(await conn.fetchval(SQL["renew_term"], SCHEDULING, term.number, term.server, ttl))


async def take_over(conn: Connection, server: int, *, ttl: timedelta) -> Term | None:
    """Begin a new term if the current one has expired; call it in a transaction."""
    await conn.execute(SQL["ensure_term"], SCHEDULING)
    if await conn.fetchval(SQL["lock_term"], SCHEDULING) is None:
        return None
    number = await conn.fetchval(SQL["begin_term"], SCHEDULING, server, ttl)
    return Term(number, server)


async def resign(conn: Connection, term: Term) -> None:
    """End a term early, at a clean shutdown."""
    await conn.execute(SQL["resign_term"], SCHEDULING, term.number, term.server)


async def hold(conn: Connection, term: Term) -> None:
    """Hold `term` until this transaction ends; raises NotLeading when it is over."""
    if not await conn.fetchval(SQL["hold_term"], SCHEDULING, term.number, term.server):
        raise NotLeading("This server's term is over.")


async def read_peak(conn: Connection) -> PeakState:
    """Return the peak state that the leader has stored."""
    since = await conn.fetchval(SQL["read_peak"], SCHEDULING)
    return msgspec.convert({"since": since}, PeakState) if since else NO_PEAK


async def store_peak(conn: Connection, term: Term, peak: PeakState) -> None:
    """Store the leader's peak state, unless its term is over."""
    since = msgspec.to_builtins(peak.since)
    await conn.execute(SQL["store_peak"], SCHEDULING, term.number, term.server, since)
