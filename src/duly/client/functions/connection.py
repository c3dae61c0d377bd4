"""The clients of an application: made at first use, one for each process and event loop."""

import asyncio
import os
import threading
from asyncio import AbstractEventLoop
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakKeyDictionary

from duly.client.functions.backend import AsyncBackend, Backend

if TYPE_CHECKING:
    from duly.client.aio import AsyncClient
    from duly.client.functions.app import App
    from duly.client.functions.shared_waits import Poll, ProcessWaits, SharedWaits
    from duly.client.sync import Client


class Replacement(Protocol):
    """What takes the place of the clients, in tests."""

    def backend(self, app: "App") -> Backend:
        """Return what takes the place of the client of an app."""

    def async_backend(self, app: "App") -> AsyncBackend:
        """Return what takes the place of the client for asyncio."""


replacements: list[Replacement] = []
"""The last one is in use; of the whole process, because a test may use several threads."""


class Connection:
    """Makes the clients of one application; thread-safe, and safe to use after a fork."""

    def __init__(self, url: str | None, key: str | None, ca_file: str | Path | None) -> None:
        self._address = (url, key, ca_file)
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._client: Client | None = None
        self._process_waits: ProcessWaits | None = None
        self._async_clients: WeakKeyDictionary[AbstractEventLoop, AsyncClient] = WeakKeyDictionary()
        self._loop_waits: WeakKeyDictionary[AbstractEventLoop, SharedWaits] = WeakKeyDictionary()

    def client(self, app: "App") -> Backend:
        """Return the client of this process."""
        if replacements:
            return replacements[-1].backend(app)
        self._forget_after_fork()
        if self._client is None:
            with self._lock:
                if self._client is None:
                    from duly.client.sync import Client

                    url, key, ca_file = self._address
                    self._client = Client(url, key, ca_file=ca_file)
        return cast(Backend, self._client)

    def async_client(self, app: "App") -> AsyncBackend:
        """Return the client of the running event loop."""
        if replacements:
            return replacements[-1].async_backend(app)
        self._forget_after_fork()
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            from duly.client.aio import AsyncClient

            url, key, ca_file = self._address
            client = self._async_clients[loop] = AsyncClient(url, key, ca_file=ca_file)
        return cast(AsyncBackend, client)

    def process_waits(self, app: "App") -> "ProcessWaits":
        """Return the shared waits of this process."""
        self._forget_after_fork()
        with self._lock:
            if self._process_waits is None:
                from duly.client.functions.shared_waits import ProcessWaits

                self._process_waits = ProcessWaits(app)
            return self._process_waits

    def loop_waits(self, poll: "Poll") -> "SharedWaits":
        """Return the shared waits of the running event loop."""
        from duly.client.functions.shared_waits import SharedWaits

        self._forget_after_fork()
        loop = asyncio.get_running_loop()
        waits = self._loop_waits.get(loop)
        if waits is None:
            waits = self._loop_waits[loop] = SharedWaits(poll)
        return waits

    def close(self) -> None:
        """Close the idle connections of the blocking client."""
        if self._client is not None:
            self._client.close()

    async def close_async(self) -> None:
        """Close the idle connections of the running event loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _forget_after_fork(self) -> None:
        """Drop what belongs to the parent: a lock may be held by a thread that is not here."""
        if self._pid != os.getpid():
            self._forget()
