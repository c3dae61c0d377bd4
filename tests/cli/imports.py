"""What a command imports, which is most of the time that it takes."""

import re

HEAVY = {"aiohttp", "asyncio", "asyncpg", "h11", "starlette", "msgspec", "pydantic", "uvicorn"}


def imported_by(told: str) -> set[str]:
    """Return the modules that Python names on standard error when it is asked to time imports.

    The environment asks it: PYTHONPROFILEIMPORTTIME=1.
    """
    return set(re.findall(r"^import time:.*\| +(\S+)$", told, re.MULTILINE))
