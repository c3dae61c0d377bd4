"""Chooses and checks the ports to listen on, before anything is started."""

import socket

from duly.errors import ConfigError

MAX_PORT_TRIES = 100
LOOPBACK_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104
UNUSED_ADDRESS_BY_LOOPBACK = {"127.0.0.1": "192.0.2.1", "::1": "2001:db8::1"}
"""Documentation addresses (RFC 5737, RFC 3849): routed like any other, and never assigned."""
UNENCRYPTED = "Keys and tasks cross the network unencrypted; use only a trusted network."


def choose_port(host: str, port: int, *, count: int) -> int:
    """Return `port` if it and the next `count` - 1 ports are free; for 0, any such port.

    Raises ConfigError otherwise. The check may race with other processes, in which case listening
    fails later; it is here to report the common case early.
    """
    if port == 0:
        for _ in range(MAX_PORT_TRIES):
            candidate = _any_port(host)
            if all(_is_free(host, candidate + step) is None for step in range(count)):
                return candidate
        raise ConfigError(f"There are no {count} consecutive free ports on {host}.")
    _any_port(host)  # If this fails, the address is wrong rather than the port.
    for candidate in range(port, port + count):
        problem = _is_free(host, candidate)
        if problem is not None:
            both = f" (it needs {port} and {port + 1})" if count > 1 else ""
            raise ConfigError(
                f"Duly cannot listen on {host}, port {candidate}: {problem}. "
                f"Choose another with --port{both}."
            )
    return port


def url_of(host: str, port: int, *, scheme: str = "http") -> str:
    """Return the URL of a server on `host`; IPv6 addresses are bracketed."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def local_name(host: str) -> str:
    """Return the address at which this machine reaches `host`: loopback for wildcards."""
    return LOOPBACK_BY_WILDCARD.get(host, host)


def public_name(host: str) -> str:
    """Return the address at which other machines reach `host`.

    For a wildcard that is the address of the interface with the default route; without such an
    interface, loopback.
    """
    if host not in LOOPBACK_BY_WILDCARD:
        return host
    loopback = LOOPBACK_BY_WILDCARD[host]
    family = socket.AF_INET6 if ":" in loopback else socket.AF_INET
    try:
        # Connecting a datagram socket sends nothing; it only makes the kernel choose a route.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((UNUSED_ADDRESS_BY_LOOPBACK[loopback], 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return loopback


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")


def _is_free(host: str, port: int) -> str | None:
    """Return why the port cannot be bound; None if it can."""
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
