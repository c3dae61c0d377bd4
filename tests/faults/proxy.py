"""A TCP proxy that can lose answers, for one server and any number of connections."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Proxy:
    """Passes bytes on between clients and one server, until it is told to lose some.

    `lose(path)` makes it swallow the next answer to a request whose first line names `path`,
    and then cut that connection: the request arrived, the answer did not. Between `part()`
    and `heal()` nothing passes, but nothing is lost: it arrives late.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lose: bytes | None = None
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

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._upstream), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        request = [b""]

        def watch(data: bytes) -> bytes:
            self._whole.wait()
            if data.startswith((b"GET ", b"POST ")):
                request[0] = data.split(b"\r\n", 1)[0]
            return data

        def swallow(data: bytes) -> bytes:
            self._whole.wait()
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
