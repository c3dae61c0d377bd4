"""An HTTP proxy for one server that can drop and delay responses."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class Proxy:
    """Forwards bytes between clients and one server.

    `drop_response(path)` drops the next response to a request whose first line contains `path`, and
    closes that connection: the request arrives, the response does not. Between `partition()` and
    `heal()` all bytes are held back. After `slow(path, rate)` responses to such requests are
    limited to `rate` bytes a second.

    A path as `upstream` is a unix socket; the proxy then listens on the socket `at`.
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
        self._drop_path: bytes | None = None
        self._slow_path: tuple[bytes, float] | None = None
        self.response_dropped = threading.Event()
        self._connected = threading.Event()
        self._connected.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def drop_response(self, path: str) -> None:
        self.response_dropped.clear()
        self._drop_path = path.encode()

    def slow(self, path: str, rate: float) -> None:
        self._slow_path = path.encode(), rate

    def partition(self) -> None:
        self._connected.clear()

    def heal(self) -> None:
        self._connected.set()

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

        def on_request(data: bytes) -> bytes:
            self._connected.wait()
            if data.startswith((b"GET ", b"POST ")):
                request[0] = data.split(b"\r\n", 1)[0]
            return data

        def on_response(data: bytes) -> bytes:
            self._connected.wait()
            if self._slow_path is not None and self._slow_path[0] in request[0]:
                time.sleep(len(data) / self._slow_path[1])
            if self._drop_path is None or self._drop_path not in request[0]:
                return data
            self._drop_path = None
            self.response_dropped.set()
            raise ConnectionAbortedError("dropped on purpose")

        threading.Thread(target=_pump, args=(client, server, on_request), daemon=True).start()
        _pump(server, client, on_response)


def _pump(
    source: socket.socket, target: socket.socket, transform: Callable[[bytes], bytes]
) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(transform(data))
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
