"""Ports to listen on, looked at before anything else is started."""

import socket

from duly.errors import ConfigError

TRIES = 100


def choose_port(host: str, port: int, *, count: int) -> int:
    """Return `port` if it and the `count` - 1 after it are free; for 0, one that is.

    Raises ConfigError otherwise. Somebody else may still be faster; then the one who
    listens says so. This is for the message, which is better at the beginning.
    """
    if port == 0:
        for _ in range(TRIES):
            candidate = _any_port(host)
            if all(_is_free(host, candidate + step) is None for step in range(count)):
                return candidate
        raise ConfigError(f"No {count} ports in a row are free on {host}.")
    _any_port(host)  # If there is none, the address is wrong and not the port.
    for wanted in range(port, port + count):
        problem = _is_free(host, wanted)
        if problem is not None:
            both = f" (it needs {port} and {port + 1})" if count > 1 else ""
            raise ConfigError(
                f"Duly cannot listen on {host}, port {wanted}: {problem}. "
                f"Choose another with --port{both}."
            )
    return port


def url_of(host: str, port: int, *, scheme: str = "http") -> str:
    """Return the URL under which whoever listens on `host` is reached."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def local_name(host: str) -> str:
    """Return the address by which this machine reaches its own `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def is_loopback(host: str) -> bool:
    """Say whether nobody but this machine can connect to `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _is_free(host: str, port: int) -> str | None:
    """Say why one cannot listen there; None means that one can."""
    try:
        with _listener(host, port):
            return None
    except OverflowError:
        return "there is no such port"
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _any_port(host: str) -> int:
    try:
        with _listener(host, 0) as listener:
            port: int = listener.getsockname()[1]
            return port
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"Duly cannot listen on {host}: {problem}. Choose another address with --host."
        ) from error


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener
