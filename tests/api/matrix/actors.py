"""The callers of the access matrix, and the response each gets by the route's declared access."""

from dataclasses import dataclass
from typing import Any

from duly.api.auth import REQUIRED_SCOPES, Access
from duly.model.tenant import Scope
from duly.store.accounts.tenants import generate_key
from tests.api.matrix.holdings import ALL, Holding

Refusal = tuple[int, str]
NO_KEY: Refusal = (401, "unauthenticated")
NO_SCOPE: Refusal = (403, "forbidden")
SUSPENDED: Refusal = (403, "tenant_suspended")


@dataclass(frozen=True, slots=True)
class Actor:
    """A caller: the kind of what it shows, and whose things it means."""

    api: Any
    own: Holding
    kind: str = "key"
    """`key`, `node`, `join`, `attempt`, or `nothing` that counts."""
    scopes: frozenset[Scope] = frozenset()
    suspended: bool = False

    def refusal(self, method: str, access: Access) -> Refusal | None:
        """Return what it is told at a route of that access; None if it may pass."""
        if access in (Access.PUBLIC, Access.LOGIN):
            return None
        if self.kind == "attempt" or access is Access.ATTEMPT:
            passes = (self.kind, access) == ("attempt", Access.ATTEMPT)
            return None if passes else NO_SCOPE if self.kind == "attempt" else NO_KEY
        if access is Access.JOIN and self.kind == "key":
            # Who may make workers is told what else it has to send.
            return None if Scope.NODE in self.scopes else NO_SCOPE
        if access in (Access.NODE, Access.JOIN):
            passes = self.kind == "node" or (self.kind, access) == ("join", Access.JOIN)
            return None if passes else NO_KEY
        if self.kind != "key":
            return NO_KEY
        if access is Access.OWN:
            return None
        if not self.scopes & {REQUIRED_SCOPES[access], Scope.ADMIN}:
            return NO_SCOPE
        if self.suspended and method not in ("GET", "HEAD"):
            return SUSPENDED
        return None


NAMES = (
    "nobody",
    "garbage",
    "revoked",
    "expired",
    "user_gone",
    "tenant_gone",
    "attempt",
    "late_attempt",
    "joiner",
    "node",
    "node_scope",
    "reader",
    "submitter",
    "manager",
    "stranger",
    "suspended",
)


async def make(name: str, world: Any) -> Actor:
    """Return the actor of that name in a world that has a victim."""
    victim: Holding = world.victim
    match name:
        case "nobody":
            return Actor(world.api.with_key(None), victim, "nothing")
        case "garbage":
            return Actor(world.api.with_key(generate_key()), victim, "nothing")
        case "revoked" | "expired" | "user_gone" | "tenant_gone":
            return Actor(await _late(world, name), victim, "nothing")
        case "attempt":
            key = await world.attempt_key(victim.attempt)
            return Actor(world.api.with_key(key), victim, "attempt")
        case "late_attempt":
            key = await world.late_attempt_key()
            return Actor(world.api.with_key(key), victim, "nothing")
        case "joiner":
            return Actor(world.api.with_key(await world.join_token()), victim, "join")
        case "node":
            return Actor(world.runner.agent.api, victim, "node")
        case "stranger":
            return Actor(world.stranger.api, world.stranger, scopes=frozenset(ALL))
        case "suspended":
            own = await world.settle("dormant")
            await world.execute("update tenants set suspended_at = now() where name = 'dormant'")
            return Actor(await world.fresh_key(own), own, scopes=frozenset(ALL), suspended=True)
        case _:
            scope = {"reader": Scope.READ, "submitter": Scope.SUBMIT, "manager": Scope.MANAGE}.get(
                name, Scope.NODE
            )
            key = await world.key_for(victim.tenant, f"{victim.tenant}-{name}", scope)
            return Actor(world.api.with_key(key), victim, scopes=frozenset({scope}))


PAST = "now() - interval '1 second'"
ENDINGS = {
    "revoked": f"update keys set revoked_at = {PAST} where prefix = $1",
    "expired": f"update keys set expires_at = {PAST} where prefix = $1",
    "user_gone": f"update users set removed_at = {PAST}"
    " where id = (select user_id from keys where prefix = $1)",
    "tenant_gone": f"update tenants set removed_at = {PAST}"
    " where id = (select tenant_id from keys where prefix = $1)",
}


async def _late(world: Any, ending: str) -> Any:
    """Return the API for a key that has been good for everything, and is no more."""
    tenant = "gone" if ending == "tenant_gone" else world.victim.tenant
    key = await world.key_for(tenant, ending, *ALL, Scope.ADMIN)
    await world.execute(ENDINGS[ending], key[:12])
    return world.api.with_key(key)
