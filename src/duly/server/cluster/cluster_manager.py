"""Tracks which servers and nodes are alive, and elects the leader.

Every server renews its number and, if it leads, its term. The trust in a term counts from before
its renewal was sent, so a slow response never lengthens it. Every transaction of the leader locks
the term's row, so a leader that was suspended and resumes after losing its term writes nothing.
"""

import logging
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec

import duly
from duly import clock, telemetry, wire
from duly.config import LeaseSettings
from duly.errors import Conflict, Fenced, Invalid, NotFound, Unauthenticated
from duly.model.node import UNLIMITED_USES
from duly.model.requests.amounts import amounts_to_json
from duly.model.requests.texts import check_text
from duly.model.tenant import Credential
from duly.server.cluster.hints import Hint
from duly.server.cluster.node_admission import (
    MAX_TEXT_LENGTH,
    NODE_REMOVED,
    authenticate_node,
    check_join,
    check_slots,
)
from duly.server.cluster.server_bus import ServerBus
from duly.server.sequencer import Sequencer
from duly.server.service import Service
from duly.store.accounts import audit_log
from duly.store.accounts.tenants import digest, generate_key
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Connection, Database, now
from duly.store.fleet import nodes, servers
from duly.store.fleet.servers import ServerProcess, Term

log = logging.getLogger(__name__)
SERVER_TIMEOUT = timedelta(seconds=10)
"""A server without a heartbeat for this long loses its number to the next one that starts."""


class ClusterManager(Service):
    """Renews this server's number and term, and the leases of nodes."""

    always_reads = True

    def __init__(
        self,
        database: Database,
        settings: LeaseSettings,
        sequencer: Sequencer,
        server_bus: ServerBus,
    ) -> None:
        super().__init__(settings.term_renewal)
        self._database = database
        self._settings = settings
        self._sequencer = sequencer
        self._server_bus = server_bus
        self._incarnation = uuid4()
        self._process = ServerProcess(socket.gethostname(), os.getpid(), None)
        self._number: int | None = None
        self._term: Term | None = None
        self._trusted_until = 0.0
        self._led_since = 0.0
        self._has_followed = False
        self._ticked_at = 0.0

    @property
    def number(self) -> int:
        """Return this server's number; raises Conflict before it has one."""
        if self._number is None:
            raise Conflict("This server holds no number yet.")
        return self._number

    @property
    def name(self) -> str:
        """Return the name of this server in responses."""
        return f"server-{self.number}"

    @property
    def term(self) -> Term | None:
        """Return the term in which this server leads; None if it does not, or cannot trust it."""
        return self._term if clock.monotonic() < self._trusted_until else None

    @property
    def led_since(self) -> float:
        """Return the monotonic time since when the term has been trusted without a gap."""
        return self._led_since

    def advertise(self, address: str) -> None:
        """Set the URL that operators see for this server; call it before the first tick."""
        self._process = msgspec.structs.replace(self._process, address=address)

    def pause(self) -> timedelta:
        """Return the rest of the interval: renewals are sent evenly, however long each takes."""
        elapsed = timedelta(seconds=clock.monotonic() - self._ticked_at)
        return max(timedelta(0), self._interval - elapsed)

    async def tick(self) -> bool:
        """Renew the number and the term, or take over a term that has expired."""
        self._ticked_at = clock.monotonic()
        await self._renew_number()
        await self._renew_term()
        telemetry.IS_LEADER.set(self.term is not None)
        return False

    async def stop(self) -> None:
        """Resign and release the number, so that other servers need not wait for the timeouts."""
        async with self._database.connection() as conn:
            if self._term is not None:
                await servers.resign(conn, self._term)
                self._trusted_until = 0.0
            if self._number is not None:
                await servers.release_number(
                    conn, self._number, self._incarnation, high_water=self._sequencer.second
                )

    async def _renew_number(self) -> None:
        async with self._database.connection() as conn:
            if self._number is not None:
                mark = self._sequencer.next_mark
                at = await servers.renew_number(
                    conn, self._number, self._incarnation, high_water=mark
                )
                if at is not None:
                    self._sequencer.extend(mark, at)
                    return
                log.warning("number %s was taken over by another server", self._number)
                self._trusted_until = 0.0
                self._incarnation = uuid4()
            taken = await servers.take_number(
                conn, self._process, self._incarnation, duly.__version__, silence=SERVER_TIMEOUT
            )
            at = await now(conn)
            self._sequencer.begin(taken.number, above=taken.high_water, now=at)
            mark = self._sequencer.next_mark
            at = await servers.renew_number(conn, taken.number, self._incarnation, high_water=mark)
            if at is not None:
                self._sequencer.extend(mark, at)
                self._number = taken.number

    async def _renew_term(self) -> None:
        sent_at = clock.monotonic()
        ttl = self._settings.term_ttl
        margin = ttl / 6
        async with self._database.connection() as conn:
            if self._term is not None and not await servers.renew_term(conn, self._term, ttl=ttl):
                log.warning("%s no longer leads: term %s has ended", self.name, self._term.number)
                self._term = None
            if self._term is None:
                async with conn.transaction():
                    self._term = await servers.take_over(conn, self.number, ttl=ttl)
                if self._term is None:
                    self._has_followed = True
                elif self._has_followed:
                    log.warning("%s leads now (term %s)", self.name, self._term.number)
        if self._term is not None:
            if sent_at >= self._trusted_until:
                self._led_since = sent_at
            self._trusted_until = sent_at + (ttl - margin).total_seconds()

    async def create_token(
        self, lifetime: timedelta, by: Credential | None = None, *, uses: int | None = 1
    ) -> str:
        """Return a new join token; the audit log records who created it, not the token.

        It admits `uses` new nodes, or any number if `uses` is None, within its `lifetime`.
        """
        token = generate_key("dulyjoin")
        details = {
            "expires_in": lifetime.total_seconds(),
            "uses": UNLIMITED_USES if uses is None else uses,
        }
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            await nodes.add_token(conn, digest(token), lasts=lifetime, uses=uses)
            await _audit(conn, by, "token", "", details)
        return token

    async def join(
        self, secret: str, request: wire.JoinRequest, owner: Credential | None = None
    ) -> wire.JoinResponse:
        """Begin a new incarnation of the node whose key or join token is `secret`.

        With an `owner`, whose API key it is, the node is a worker of the owner's tenant.
        """
        capacity = check_join(request)
        async with self._database.transaction(ConnectionClass.NODE) as conn:
            node_id = await authenticate_node(conn, secret, request, owner)
            incarnation = await nodes.join(
                conn,
                node_id,
                capacity,
                request.labels,
                request.isolation,
                request.version,
                request.enforcement,
                ttl=self._settings.ttl,
                functions=request.functions,
            )
        if incarnation is None:
            raise Unauthenticated(NODE_REMOVED)
        # The node has free resources, and attempts of its last incarnation may need handing over.
        self._server_bus.broadcast(Hint(work=True, due=True))
        return wire.JoinResponse(
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
        slots: int | None = None,
    ) -> float:
        """Renew the lease of an incarnation and return its length in seconds.

        A node that is `stopping` gets no more tasks; one with a `shortage` gets none while it
        lasts. A worker offers another number of `slots` from now on.

        Raises Fenced if the incarnation has ended: a newer one owns the node, or this one sent no
        heartbeat for too long and its attempts were handed over.
        """
        ttl = self._settings.ttl
        async with self._database.connection(ConnectionClass.LEASE) as conn:
            beat = nodes.Heartbeat(
                incarnation,
                node_id,
                stopping,
                shortage and _check_shortage(shortage),
                None if slots is None else check_slots(slots, "slots"),
            )
            alive = await nodes.renew(conn, [beat], ttl=ttl)
        if incarnation not in alive:
            raise Fenced("This incarnation has been ended; join again.")
        if slots is not None:
            self._server_bus.broadcast(Hint(work=True))
        return ttl.total_seconds()

    async def leave(self, node_id: int, incarnation: int) -> None:
        """End an incarnation whose agent stops; attempts that it never started are requeued."""
        async with self._database.transaction(ConnectionClass.NODE) as conn:
            if await nodes.lock_incarnation(conn, incarnation, node_id):
                await nodes.end_incarnation(conn, incarnation, "left")
        self._server_bus.broadcast(Hint(due=True))

    async def drain(self, node_id: int, *, draining: bool, by: Credential | None = None) -> None:
        """Stop placing tasks on a node, or place tasks there again."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            if not await nodes.drain(conn, node_id, draining=draining):
                raise NotFound("There is no such node.")
            verb, name = "drain" if draining else "undrain", await nodes.name_of(conn, node_id)
            await _audit(conn, by, verb, name, {"id": str(node_id)})
        self._server_bus.broadcast(Hint(work=not draining))

    async def override_capacity(
        self, node_id: int, kinds: Mapping[str, Any], by: Credential | None = None
    ) -> None:
        """Override the capacity that the agent reports, by kind; empty `kinds` undo it."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            if not await nodes.override_capacity(conn, node_id, kinds):
                raise NotFound("There is no such node.")
            details = {"id": str(node_id), "capacity": amounts_to_json(kinds)}
            await _audit(conn, by, "capacity", await nodes.name_of(conn, node_id), details)
        self._server_bus.broadcast(Hint(work=True))

    async def remove(self, node_id: int, by: Credential | None = None) -> None:
        """Remove a node for good: its attempts are handed over, and it cannot join again."""
        async with self._database.transaction(ConnectionClass.CLIENT) as conn:
            name = await nodes.name_of(conn, node_id)
            if not await nodes.remove(conn, node_id):
                raise NotFound("There is no such node.")
            await _audit(conn, by, "remove", name, {"id": str(node_id)})
        self._server_bus.broadcast(Hint(due=True, incarnations=None))


async def _audit(
    conn: Connection, by: Credential | None, verb: str, name: str, details: Mapping[str, Any]
) -> None:
    """Record an administrator's action on a node; without `by` nothing is recorded."""
    if by is not None:
        await audit_log.record(
            conn,
            credential=by,
            action=f"node.{verb}",
            target=name,
            tenant_id=None,
            details=details,
        )


def _check_shortage(shortage: str) -> str:
    if len(check_text(shortage, "shortage")) > MAX_TEXT_LENGTH:
        raise Invalid("shortage", f"it has more than {MAX_TEXT_LENGTH} characters.")
    return shortage
