"""Asks servers on behalf of running calls: what stages are stored, store one, submit a child task.

Authenticated with the key of the attempt, so that a server refuses what comes from an attempt whose
lease is over. Retried until there is an answer, or the attempt has ended.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from duly.agent.gateway import Backoff, Gateway
from duly.agent.pool.messages import Answer, Ask
from duly.agent.reporting.attempt_keys import AttemptKeys
from duly.errors import DulyError, Unavailable
from duly.wire import AttemptRef

STAGES_PATH = "/v1/attempt/stages"
TASKS_PATH = "/v1/attempt/tasks"
REQUEST_TIMEOUT_SECONDS = 15.0


class AttemptCalls:
    """The questions that running calls have asked."""

    def __init__(self, gateway: Gateway, keys: AttemptKeys) -> None:
        self._gateway = gateway
        self._keys = keys
        self._open: dict[AttemptRef, set[asyncio.Task[None]]] = {}

    def answer(self, ref: AttemptRef, ask: Ask, send: Callable[[Answer], None]) -> None:
        """Ask a server, and send its answer."""
        task = asyncio.get_running_loop().create_task(self._answer(ref, ask, send))
        self._open.setdefault(ref, set()).add(task)
        task.add_done_callback(lambda done: self._open.get(ref, set()).discard(done))

    def forget(self, ref: AttemptRef) -> None:
        """Drop the questions of an attempt that has ended."""
        for task in self._open.pop(ref, ()):
            task.cancel()

    async def _answer(self, ref: AttemptRef, ask: Ask, send: Callable[[Answer], None]) -> None:
        backoff = Backoff()
        while True:
            try:
                body = await self._request(ref, ask)
            except Unavailable:
                await asyncio.sleep(backoff.next())
            except DulyError as error:
                send(Answer(ask.question, b"", error.code, error.message))
                return
            else:
                send(Answer(ask.question, body, "", ""))
                return

    async def _request(self, ref: AttemptRef, ask: Ask) -> bytes:
        key = await self._keys.of(ref)
        method, path, route = "GET", STAGES_PATH, STAGES_PATH
        if ask.what == "stage":
            method, path = "PUT", f"{STAGES_PATH}/{quote(ask.name, safe='')}"
        elif ask.what == "submit":
            method, path, route = "POST", TASKS_PATH, TASKS_PATH
        return await self._gateway.request(
            method, path, ask.body, key=key, timeout=REQUEST_TIMEOUT_SECONDS, route=route
        )
