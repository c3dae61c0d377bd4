"""A server without authentication: every caller is taken for the first one.

Run as `python -m benchmarks.unauthenticated_server serve …`, to see what asking costs. It is for
measuring alone, on a database of its own.
"""

from starlette.requests import Request

from duly.api import app
from duly.api.auth import guard
from duly.cli.main import main

KNOWN: list[object] = []


async def take_for_known(request: Request) -> None:
    """Ask the first caller, and nobody after that."""
    if KNOWN:
        request.scope["auth"] = KNOWN[0]
        return
    await guard(request)
    if "auth" in request.scope:
        KNOWN.append(request.scope["auth"])


def open_up() -> None:
    """Let the API of this process ask nobody else."""
    app.guard = take_for_known


if __name__ == "__main__":
    open_up()
    main()
