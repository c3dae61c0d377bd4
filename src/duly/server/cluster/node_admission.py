"""Admits nodes: agents with a join token, workers with an API key, and both with their own key.

Whoever holds a key that was accepted once joins with it from then on. A worker belongs to the
tenant of the API key with which it first joined.
"""

import re
from collections.abc import Sequence

import msgspec

from duly import wire
from duly.errors import Conflict, Invalid, Unauthenticated
from duly.model.requests.amounts import apply_amounts
from duly.model.requests.call_request import MAX_FUNCTION_CHARS
from duly.model.requests.task_request import check_labels
from duly.model.requests.texts import check_text
from duly.model.resources import NO_RESOURCES, SLOTS, Resources
from duly.model.tenant import Credential
from duly.store.accounts import audit_log
from duly.store.accounts.tenants import digest
from duly.store.database import Connection
from duly.store.fleet import nodes

MAX_TEXT_LENGTH = 100
"""Characters in each text that an agent reports about itself."""
MAX_FUNCTIONS = 2000
"""Functions that one worker may know."""
MAX_SLOTS = 1_000_000
NODE_KEY = re.compile(r"[A-Za-z0-9_-]{32,200}")
UNKNOWN_INVITE = (
    "Its key or join token is unknown or has expired. Create a token with 'duly node token "
    "create', and give it with --join-token-file."
)
EXHAUSTED_INVITE = (
    "The join token has been used as often as it may be. Create another one with 'duly node token "
    "create', or one for several nodes with 'duly node token create --uses N'."
)
NODE_REMOVED = (
    "This node was removed, so its key is not accepted any more. To let it join as a new node, "
    "remove node.json in the --data folder of its agent, and give it a join token."
)
UNKNOWN_WORKER = (
    "Its key is unknown. A worker first joins with an API key of the scope 'node': create one with "
    "'duly key create --scopes node'."
)


async def authenticate_node(
    conn: Connection, secret: str, request: wire.JoinRequest, owner: Credential | None = None
) -> int:
    """Return the node that asks to join: known by its key, or new.

    A new agent has a join token. A new worker has an API key, of the `owner`; its tenant is the
    worker's for ever.
    """
    if owner is not None:
        return await _authenticate_worker(conn, secret, request, owner)
    node = await nodes.by_key(conn, digest(secret))
    if node is None:
        if request.functions is not None:
            raise Unauthenticated(UNKNOWN_WORKER)
        token = await nodes.find_token(conn, digest(secret))
        if token is None:
            raise Unauthenticated(UNKNOWN_INVITE)
        key = digest(_check_key(secret, request))
        # A join whose response was lost is retried, perhaps with a token that it has used up.
        node = await nodes.by_key(conn, key)
        if node is None:
            created_id = await _create_node(conn, digest(secret), token, key, request)
            if created_id is not None:
                return created_id
            node = await nodes.by_key(conn, key)
    if node is None:
        raise Conflict(
            f"There is a node named {request.name!r} already; choose another with "
            "--name, or remove it first."
        )
    _check_known(node, request)
    return node.id


async def _authenticate_worker(
    conn: Connection, secret: str, request: wire.JoinRequest, owner: Credential
) -> int:
    """Return the worker that joins with an API key: a new one, or after a response was lost."""
    if request.functions is None:
        raise Invalid(
            "functions",
            "an API key makes workers, which know functions. For an agent, use a join token.",
        )
    key = digest(_check_key(secret, request))
    node = await nodes.by_key(conn, key)
    if node is not None:
        if node.tenant_id != owner.tenant_id:
            raise Unauthenticated(UNKNOWN_WORKER)
        _check_known(node, request)
        return node.id
    created_id = await nodes.add(conn, request.name, key, request.labels, tenant_id=owner.tenant_id)
    if created_id is None:
        raise Conflict(
            f"There is a worker named {request.name!r} already; choose another with --name, or "
            "remove it first."
        )
    await audit_log.note(
        conn,
        actor=owner.actor,
        action="node.join",
        target=request.name,
        tenant_id=owner.tenant_id,
        details={"id": str(created_id), "worker": True},
    )
    return created_id


def _check_known(node: nodes.Node, request: wire.JoinRequest) -> None:
    """Refuse a node that was removed, or that comes back as the other kind."""
    if node.is_removed:
        raise Unauthenticated(NODE_REMOVED)
    if (node.tenant_id is None) is not (request.functions is None):
        kinds = ("an agent", "a worker")
        kind, other = kinds if node.tenant_id is None else reversed(kinds)
        raise Conflict(
            f"This node is {kind} and cannot join as {other}. Use another --data folder."
        )


async def _create_node(
    conn: Connection, secret: bytes, token: nodes.JoinToken, key: bytes, request: wire.JoinRequest
) -> int | None:
    """Create a node with a join token and return its id; None if its name or key is taken.

    The token is used last: a join that fails for another reason costs no use, and the second of
    two concurrent copies of a join waits for the first, and finds its node.
    """
    if token.uses_left == 0:
        raise Unauthenticated(EXHAUSTED_INVITE)
    node_id = await nodes.add(conn, request.name, key, request.labels)
    if node_id is None:
        return None
    if token.uses_left is not None and not await nodes.use_token(conn, secret):
        raise Unauthenticated(EXHAUSTED_INVITE)
    await audit_log.note(
        conn,
        actor=f"node:{request.name}",
        action="node.join",
        target=request.name,
        tenant_id=None,
        details={"id": str(node_id)},
    )
    return node_id


def _check_key(secret: str, request: wire.JoinRequest) -> str:
    if request.key is None or request.key == secret or not NODE_KEY.fullmatch(request.key):
        raise Invalid("key", "a new node must send a key of 32 to 200 letters and digits.")
    return request.key


def check_join(request: wire.JoinRequest) -> Resources:
    """Return the capacity of a node that joins; raises Invalid for a bad name, label or amount."""
    if not request.name.strip():
        raise Invalid("name", "it is empty. Give the node a name.")
    texts = {"name": request.name, "isolation": request.isolation, "version": request.version}
    for field, text in texts.items():
        if len(check_text(text, field)) > MAX_TEXT_LENGTH:
            raise Invalid(
                field, f"it has {len(text)} characters; at most {MAX_TEXT_LENGTH} are allowed."
            )
    check_labels(request.labels)
    check_labels(request.enforcement, "enforcement")
    capacity = request.capacity
    if request.functions is not None:
        _check_functions(request.functions)
        return _worker_capacity(capacity)
    if capacity.cpu is None and capacity.cpu_milli:
        capacity = msgspec.structs.replace(capacity, cpu=capacity.cpu_milli / 1000)
    return apply_amounts(capacity, NO_RESOURCES, "capacity")


def check_slots(slots: int, field: str) -> int:
    """Return a number of slots; raises Invalid if no worker could offer so many."""
    if not 0 <= slots <= MAX_SLOTS:
        raise Invalid(field, f"{slots} is not a whole number from 0 to {MAX_SLOTS}.")
    return slots


def _check_functions(functions: Sequence[str]) -> None:
    if len(functions) > MAX_FUNCTIONS:
        message = f"it names {len(functions)}; at most {MAX_FUNCTIONS} are allowed."
        raise Invalid("functions", message)
    for name in functions:
        if not name.strip() or len(check_text(name, "functions")) > MAX_FUNCTION_CHARS:
            raise Invalid(
                "functions",
                f"{name[:60]!r} is not the name of a function. Use 1 to {MAX_FUNCTION_CHARS} "
                "characters.",
            )


def _worker_capacity(asked: wire.Capacity) -> Resources:
    """Return the capacity of a worker, which is slots and nothing else."""
    amounts = {
        name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None
    }
    # Sent by earlier versions besides `cpu`; the capacity of a worker has none.
    if amounts.get("cpu_milli") == 0:
        del amounts["cpu_milli"]
    if amounts.keys() != {"extra"} or (asked.extra or {}).keys() != {SLOTS}:
        raise Invalid("capacity", 'a worker offers slots only. Send {"extra": {"slots": N}}.')
    return Resources(extra={SLOTS: check_slots((asked.extra or {})[SLOTS], "capacity.extra.slots")})
