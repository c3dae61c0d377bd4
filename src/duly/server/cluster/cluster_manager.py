"""Knows which servers and nodes are alive, and which server leads.

Every server keeps its own number and, if it leads, its term. A term is trusted
from before its renewal was sent, so a slow answer never lengthens it; and every
transaction of a duty holds the term's row, so a leader that was stopped and wakes
up writes nothing.
"""

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

import duly
from duly import clock, telemetry, wire
from duly.config import LeaseSettings
from duly.errors import Conflict, Fenced, Invalid, NotFound, Unauthenticated
from duly.model.amounts import amounts_of, told_amounts
from duly.model.node import UNLIMITED
from duly.model.request import check_labels, check_text
from duly.model.resources import NOTHING, Resources
from duly.model.tenant import Credential
from duly.server.herald import Herald
from duly.server.news import News
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.store import audit_log, nodes, servers
from duly.store.database import Connection, Database, now
from duly.store.lanes import Lane
from duly.store.servers import Term
from duly.store.tenants import digest, generate_key

log = logging.getLogger(__name__)
MAX_TEXT = 100
"""Characters in what an agent says about itself."""
SILENCE = timedelta(seconds=10)
"""How long a silent server keeps its number."""
KEY = re.compile(r"[A-Za-z0-9_-]{32,200}")
NOT_INVITED = "The join token is unknown or has expired; create one with `duly node token create`."
USED_UP = (
    "The join token has been used by as many nodes as it was made for; create another one with "
    "`duly node token create`, or one for several nodes with `--uses N`."
)
REMOVED = "This node has been removed; its key is not accepted any more."


class ClusterManager(Service):
    """Keeps this server's number and term, and the nodes' leases."""

    def __init__(
        self, database: Database, settings: LeaseSettings, sequencer: Sequencer, herald: Herald
    ) -> None:
        super().__init__(settings.term_renewal)
        self._database = database
        self._settings = settings
        self._sequencer = sequencer
        self._herald = herald
        self._incarnation = uuid4()
        self._number: int | None = None
        self._term: Term | None = None
        self._trusted_until = 0.0
        self._led_since = 0.0
        self._ticked_at = 0.0

    @property
    def number(self) -> int:
        """Return this server's number."""
        if self._number is None:
            raise Conflict("This server holds no number yet.")
        return self._number

    @property
    def name(self) -> str:
        """Return what this server is called in answers."""
        return f"server-{self.number}"

    @property
    def term(self) -> Term | None:
        """Return the term in which this server leads, if it does and may trust it."""
        return self._term if clock.monotonic() < self._trusted_until else None

    @property
    def led_since(self) -> float:
        """Return since when this server could renew its term without a gap, if it leads."""
        return self._led_since

    def pause(self) -> timedelta:
        """Wait so that renewals are sent at even times, however late their answers come."""
        took = timedelta(seconds=clock.monotonic() - self._ticked_at)
        return max(timedelta(0), self._interval - took)

    async def tick(self) -> bool:
        """Renew the number and the term, or take over a term that has run out."""
        self._ticked_at = clock.monotonic()
        await self._keep_number()
        await self._keep_term()
        telemetry.LEADS.set(self.term is not None)
        return False

    async def stop(self) -> None:
        """Resign and let go of the number, so that others need not wait."""
        async with self._database.connection() as conn:
            if self._term is not None:
                await servers.resign(conn, self._term)
                self._trusted_until = 0.0
            if self._number is not None:
                await servers.leave_number(
                    conn, self._number, self._incarnation, high_water=self._sequencer.second
                )

    async def _keep_number(self) -> None:
        async with self._database.connection() as conn:
            if self._number is not None:
                mark = self._sequencer.next_mark
                at = await servers.renew_number(
                    conn, self._number, self._incarnation, high_water=mark
                )
                if at is not None:
                    self._sequencer.extend(mark, at)
                    return
                log.warning("number %s has passed to another server", self._number)
                self._trusted_until = 0.0
                self._incarnation = uuid4()
            taken = await servers.take_number(
                conn, "duly", self._incarnation, duly.__version__, silence=SILENCE
            )
            at = await now(conn)
            self._sequencer.begin(taken.number, above=taken.high_water, now=at)
            mark = self._sequencer.next_mark
            at = await servers.renew_number(conn, taken.number, self._incarnation, high_water=mark)
            if at is not None:
                self._sequencer.extend(mark, at)
                self._number = taken.number

    async def _keep_term(self) -> None:
        sent = clock.monotonic()
        ttl = self._settings.term_ttl
        margin = ttl / 6
        async with self._database.connection() as conn:
            if self._term is not None and not await servers.renew_term(conn, self._term, ttl=ttl):
                log.warning("term %s is over", self._term.number)
                self._term = None
            if self._term is None:
                async with conn.transaction():
                    self._term = await servers.take_over(conn, self.number, ttl=ttl)
        if self._term is not None:
            if sent >= self._trusted_until:
                self._led_since = sent
            self._trusted_until = sent + (ttl - margin).total_seconds()

    async def create_token(
        self, lasts: timedelta, by: Credential | None = None, *, uses: int | None = 1
    ) -> str:
        """Return a new join token; the audit log has who asked for it, not the token.

        It admits `uses` new nodes, or any number of them if that is None, until `lasts` is over.
        """
        token = generate_key("dulyjoin")
        details = {
            "expires_in": lasts.total_seconds(),
            "uses": UNLIMITED if uses is None else uses,
        }
        async with self._database.transaction(Lane.GUEST) as conn:
            await nodes.add_token(conn, digest(token), lasts=lasts, uses=uses)
            await _record(conn, by, "token", "", details)
        return token

    async def join(self, secret: str, request: wire.Join) -> wire.Joined:
        """Begin a new incarnation of the node whose key or join token is `secret`."""
        capacity = check_join(request)
        async with self._database.transaction(Lane.NODE) as conn:
            node_id = await _node_of(conn, secret, request)
            incarnation = await nodes.join(
                conn,
                node_id,
                capacity,
                request.labels,
                request.isolation,
                request.version,
                request.enforcement,
                ttl=self._settings.ttl,
            )
        if incarnation is None:
            raise Unauthenticated(REMOVED)
        # There is room now, and perhaps something to hand over of the incarnation before.
        self._herald.announce(News(work=True, due=True))
        return wire.Joined(
            node=node_id,
            incarnation=incarnation,
            lease_ttl=self._settings.ttl.total_seconds(),
            heartbeat_interval=self._settings.heartbeat.total_seconds(),
        )

    async def renew(
        self,
        node_id: int,
        incarnation: int,
        *,
        stopping: bool = False,
        shortage: str | None = None,
    ) -> float:
        """Renew the lease of an incarnation and return its length in seconds.

        One that is `stopping` is given no more work, and one that has a `shortage` none meanwhile.

        Raises Fenced when it has been ended: another incarnation owns the node now, or it
        was silent for too long and its attempts have been given away.
        """
        ttl = self._settings.ttl
        async with self._database.connection(Lane.LEASE) as conn:
            beat = nodes.Beat(
                incarnation, node_id, stopping, shortage and _check_shortage(shortage)
            )
            alive = await nodes.renew(conn, [beat], ttl=ttl)
        if incarnation not in alive:
            raise Fenced("This incarnation has been ended; join again.")
        return ttl.total_seconds()

    async def leave(self, node_id: int, incarnation: int) -> None:
        """End an incarnation whose agent stops and holds nothing; what it never began goes back."""
        async with self._database.transaction(Lane.NODE) as conn:
            if await nodes.lock_incarnation(conn, incarnation, node_id):
                await nodes.end_incarnation(conn, incarnation, "left")
        self._herald.announce(News(due=True))

    async def drain(self, node_id: int, *, draining: bool, by: Credential | None = None) -> None:
        """Let a node take no more work, or take work again."""
        async with self._database.transaction(Lane.GUEST) as conn:
            if not await nodes.drain(conn, node_id, draining=draining):
                raise NotFound("There is no such node.")
            verb, name = "drain" if draining else "undrain", await nodes.name_of(conn, node_id)
            await _record(conn, by, verb, name, {"id": str(node_id)})
        self._herald.announce(News(work=not draining))

    async def override_capacity(
        self, node_id: int, kinds: Mapping[str, Any], by: Credential | None = None
    ) -> None:
        """Say what a node has of some kinds, whatever its agent says; no kinds undo that."""
        async with self._database.transaction(Lane.GUEST) as conn:
            if not await nodes.override_capacity(conn, node_id, kinds):
                raise NotFound("There is no such node.")
            details = {"id": str(node_id), "capacity": told_amounts(kinds)}
            await _record(conn, by, "capacity", await nodes.name_of(conn, node_id), details)
        self._herald.announce(News(work=True))

    async def remove(self, node_id: int, by: Credential | None = None) -> None:
        """Take a node away for good: what runs there is handed over, and it may not come back."""
        async with self._database.transaction(Lane.GUEST) as conn:
            name = await nodes.name_of(conn, node_id)
            if not await nodes.remove(conn, node_id):
                raise NotFound("There is no such node.")
            await _record(conn, by, "remove", name, {"id": str(node_id)})
        self._herald.announce(News(due=True, incarnations=None))


async def _node_of(conn: Connection, secret: str, request: wire.Join) -> int:
    """Return the node that asks to join: known by its key, or new with a join token."""
    known = await nodes.by_key(conn, digest(secret))
    if known is None:
        token = await nodes.find_token(conn, digest(secret))
        if token is None:
            raise Unauthenticated(NOT_INVITED)
        key = digest(_key_of(secret, request))
        # A join whose answer was lost is repeated, perhaps with a token that it has used up.
        known = await nodes.by_key(conn, key)
        if known is None:
            made = await _admit(conn, digest(secret), token, key, request)
            if made is not None:
                return made
            known = await nodes.by_key(conn, key)
    if known is None:
        raise Conflict(
            f"There is a node named {request.name!r} already; choose another with "
            "--name, or remove it first."
        )
    if known.is_removed:
        raise Unauthenticated(REMOVED)
    return known.id


async def _admit(
    conn: Connection, secret: bytes, token: nodes.Token, key: bytes, request: wire.Join
) -> int | None:
    """Make a new node with a join token, and return its id; None if its name or key is taken.

    The token is used last: whatever else refuses the join takes no use, and of joins that are
    sent twice at once the second one waits for the node, and finds it.
    """
    if token.uses_left == 0:
        raise Unauthenticated(USED_UP)
    made = await nodes.add(conn, request.name, key, request.labels)
    if made is None:
        return None
    if token.uses_left is not None and not await nodes.use_token(conn, secret):
        raise Unauthenticated(USED_UP)
    await audit_log.note(
        conn,
        actor=f"node:{request.name}",
        action="node.join",
        target=request.name,
        tenant_id=None,
        details={"id": str(made)},
    )
    return made


async def _record(
    conn: Connection, by: Credential | None, verb: str, name: str, details: Mapping[str, Any]
) -> None:
    """Note what an administrator does to a node; what nobody asked for is noted nowhere."""
    if by is not None:
        await audit_log.record(
            conn,
            credential=by,
            action=f"node.{verb}",
            target=name,
            tenant_id=None,
            details=details,
        )


def _key_of(secret: str, request: wire.Join) -> str:
    if request.key is None or request.key == secret or not KEY.fullmatch(request.key):
        raise Invalid("key", "A new node sends a key of its own, of 32 to 200 letters and digits.")
    return request.key


def _check_shortage(shortage: str) -> str:
    if len(check_text(shortage, "shortage")) > MAX_TEXT:
        raise Invalid("shortage", f"shortage may have at most {MAX_TEXT} characters.")
    return shortage


def check_join(request: wire.Join) -> Resources:
    """Return what a node has; raises Invalid for what it cannot be called or have."""
    if not request.name.strip():
        raise Invalid("name", "A node's name must not be empty.")
    texts = {"name": request.name, "isolation": request.isolation, "version": request.version}
    for field, text in texts.items():
        if len(check_text(text, field)) > MAX_TEXT:
            raise Invalid(field, f"{field} may have at most {MAX_TEXT} characters.")
    check_labels(request.labels)
    check_labels(request.enforcement, "enforcement")
    asked = request.capacity
    if asked.cpu is None and asked.cpu_milli:
        asked = msgspec.structs.replace(asked, cpu=asked.cpu_milli / 1000)
    return amounts_of(asked, NOTHING, "capacity")
