"""A server without authentication: every request gets the identity of the first one.

Run as `python -m benchmarks.unauthenticated_server serve …`, to measure the cost of authentication.
Only for benchmarks, on a database of their own.
"""

from starlette.requests import Request

from duly.api import app
from duly.api.auth import guard
from duly.cli.main import main

KNOWN: list[object] = []


async def reuse_first_identity(request: Request) -> None:
    """Authenticate the first request, and reuse its identity for all others."""
    if KNOWN:
        request.scope["auth"] = KNOWN[0]
        return
    await guard(request)
    if "auth" in request.scope:
        KNOWN.append(request.scope["auth"])


def open_up() -> None:
    """Replace the authentication of the API in this process."""
    app.guard = reuse_first_identity


if __name__ == "__main__":
    open_up()
    main()
