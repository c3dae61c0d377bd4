"""An HTTP proxy for one server that can drop and delay responses."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Proxy:
    """Passes bytes on between clients and one server, until it is told to lose some.

    `lose(path)` makes it swallow the next answer to a request whose first line names `path`,
    and then cut that connection: the request arrived, the answer did not. Between `part()`
    and `heal()` nothing passes, but nothing is lost: it arrives late. After `slow(path, rate)`
    answers to such requests come with so many bytes a second.

    A path stands for the socket of a server on this machine; the proxy then listens at `at`.
    """

    def __init__(self, upstream: int | Path, at: Path | None = None) -> None:
        self._upstream = upstream
        self.port = 0
        if at is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(at))
            self._listener.listen(128)
        self._lose: bytes | None = None
        self._slow: tuple[bytes, float] | None = None
        self.lost = threading.Event()
        self._whole = threading.Event()
        self._whole.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lose(self, path: str) -> None:
        self.lost.clear()
        self._lose = path.encode()

    def slow(self, path: str, rate: float) -> None:
        self._slow = path.encode(), rate

    def part(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.heal()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self._upstream, Path):
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._upstream))
            return server
        server = socket.create_connection(("127.0.0.1", self._upstream), timeout=5)
        server.settimeout(None)
        return server

    def _serve(self, client: socket.socket) -> None:
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        request = [b""]

        def watch(data: bytes) -> bytes:
            self._whole.wait()
            if data.startswith((b"GET ", b"POST ")):
                request[0] = data.split(b"\r\n", 1)[0]
            return data

        def swallow(data: bytes) -> bytes:
            self._whole.wait()
            if self._slow is not None and self._slow[0] in request[0]:
                time.sleep(len(data) / self._slow[1])
            if self._lose is None or self._lose not in request[0]:
                return data
            self._lose = None
            self.lost.set()
            raise ConnectionAbortedError("lost on purpose")

        threading.Thread(target=_pump, args=(client, server, watch), daemon=True).start()
        _pump(server, client, swallow)


def _pump(source: socket.socket, target: socket.socket, passing: Callable[[bytes], bytes]) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(passing(data))
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
