"""The keys with which attempts call the API, through the agent.

A key is generated when an attempt first calls, and registered with the node's key: one extra call
for the few attempts that do, and none for the others. It leaves this process only as the bearer
token of those calls; the task does not know it.

Decision: docs/adr/0017-attempt-keys.md.
"""

import asyncio

from duly.agent.gateway import Gateway
from duly.errors import Unauthenticated
from duly.model import attempt_key
from duly.wire import AttemptKeyRegistration, AttemptRef

REQUEST_TIMEOUT_SECONDS = 15.0


class AttemptKeys:
    """The keys that the servers know."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._keys: dict[AttemptRef, str] = {}
        self._lock = asyncio.Lock()

    async def of(self, ref: AttemptRef) -> str:
        """Return the key of an attempt, registered if it is new.

        If the response is lost, the next key replaces it.
        """
        async with self._lock:
            if ref not in self._keys:
                self._keys[ref] = await self._register(ref)
            return self._keys[ref]

    def forget(self, ref: AttemptRef) -> None:
        """Drop the key of an attempt that has ended."""
        self._keys.pop(ref, None)

    async def _register(self, ref: AttemptRef) -> str:
        key = attempt_key.mint(ref.task, ref.attempt, ref.token)
        message = AttemptKeyRegistration(ref=ref, digest=attempt_key.digest(key))
        try:
            await self._gateway.send("attempt-key", message, timeout=REQUEST_TIMEOUT_SECONDS)
        except Unauthenticated as error:
            raise NodeRefused(error.message) from error
        return key


class NodeRefused(Unauthenticated):
    """The node's key is no longer valid, as opposed to the key of an attempt."""
