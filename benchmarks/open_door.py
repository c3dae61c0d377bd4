"""A server that asks nobody for a key: who called first is taken for everybody.

Run as `python -m benchmarks.open_door serve …`, to see what asking costs. It is for
measuring alone, on a database of its own.
"""

from duly.api import app
from duly.api.auth import Connection, guard
from duly.cli.main import main

KNOWN: list[object] = []


async def take_for_known(connection: Connection) -> None:
    """Ask the first caller, and nobody after that."""
    if KNOWN:
        connection.scope["auth"] = KNOWN[0]
        return
    await guard(connection)
    if "auth" in connection.scope:
        KNOWN.append(connection.scope["auth"])


if __name__ == "__main__":
    app.guard = take_for_known
    main()
