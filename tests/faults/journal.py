"""Every lease as PostgreSQL saw it, in order, with the term in which it was given.

A trigger writes it, so that nothing of Duly has a hand in it.
"""

import asyncio
import itertools

import asyncpg

SCHEMA = """
    create table public.leased (at bigserial primary key, task bigint, term bigint);
    create function public.note_lease() returns trigger language plpgsql as $$
    begin
        insert into public.leased (task, term) values (new.id, new.term);
        return null;
    end $$;
    create trigger note_lease after update of term on duly.live
        for each row execute function public.note_lease();
"""


def begin(dsn: str) -> None:
    """Begin to write down the leases of a database."""
    asyncio.run(_execute(dsn, SCHEMA))


def terms(dsn: str) -> list[int]:
    """Return the term of every lease so far, in order."""
    return [row["term"] for row in asyncio.run(_fetch(dsn))]


def turned_back(terms: list[int]) -> list[str]:
    """Terms rise: no lease of a term comes after the first one of a later term."""
    return [
        f"term {after} gave a lease after term {before}"
        for before, after in itertools.pairwise(terms)
        if after < before
    ]


async def _execute(dsn: str, statement: str) -> None:
    conn = await asyncpg.connect(dsn)
    await conn.execute(statement)
    await conn.close()


async def _fetch(dsn: str) -> list[asyncpg.Record]:
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetch("select term from public.leased order by at")
    finally:
        await conn.close()
