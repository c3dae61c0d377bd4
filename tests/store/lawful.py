"""A model of tasks and nodes, and a database for those who compare it with the tables."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg

from duly.config import DatabaseSettings
from duly.model.tenant import Plan
from duly.store.database import _initialize, _server_settings
from duly.store.fleet import servers
from tests.conftest import COPY, with_database

PLAN = Plan(
    name="unlimited",
    delay_tolerance=timedelta(minutes=5),
    execution_cap=timedelta(hours=1),
    max_execution_cap=timedelta(days=1),
    weight=1,
)
CLOCK = """
create table clock (at timestamptz not null);
grant select on clock to public;
create or replace function now() returns timestamptz
    language sql volatile as 'select at from duly.clock';
"""
CLEAN = """
delete from live; delete from tasks; delete from attempts; delete from ends; delete from events;
delete from dead_letters; delete from submissions; delete from incarnations; delete from nodes;
delete from terms; delete from clock
"""
BACKSTOP = timedelta(seconds=15)
TTL = timedelta(seconds=15)
FINAL = ("done", "failed", "cancelled")


@dataclass
class Task:
    """What the model knows of a task."""

    status: str
    ready_at: datetime
    priority: int = 0
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    incarnation: int | None = None
    token: int | None = None
    is_cancelled: bool = False


@dataclass
class Node:
    """What the model knows of a node."""

    incarnation: int
    expires_at: datetime
    is_alive: bool = True
    drains: bool = False


@dataclass
class World:
    """The model."""

    now: datetime
    term: servers.Term
    tasks: dict[int, Task] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)

    def held_by(self, node):
        return [task for task in self.tasks.values() if task.incarnation == node.incarnation]


async def open_lawful(dsn, name):
    admin = await asyncpg.connect(dsn)
    await admin.execute(f"create database {name} {COPY}")
    await admin.close()
    settings = _server_settings(DatabaseSettings()) | {"synchronous_commit": "off"}
    conn = await asyncpg.connect(with_database(dsn, name), server_settings=settings)
    await _initialize(conn)
    await conn.execute(CLOCK)
    return conn
