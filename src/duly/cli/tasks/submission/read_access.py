"""Refuses commands that wait for a task before they submit it, if they could not see its end."""

from duly.client.sync import Client
from duly.errors import Forbidden, TenantSuspended


def require_read_access(client: Client) -> None:
    """Raise Forbidden if the key may not read tasks; nothing has been submitted by then."""
    try:
        client.list_tasks(limit=1)
    except TenantSuspended:
        raise
    except Forbidden as error:
        raise Forbidden(
            "Nothing was submitted: your key lacks the scope 'read', so it can see neither the "
            "output nor the exit code. Use a key that has it, or 'duly submit' without --wait.",
            **error.details,
        ) from error
