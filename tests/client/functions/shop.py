"""An application for tests; workers import it, too."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Annotated

import duly

app = duly.App("shop")


@dataclasses.dataclass
class Size:
    """The size of a picture."""

    width: int
    height: int


@app.task(max_attempts=3, backoff="0.1s")
def encode(path: str, size: Size, quality: float = 0.5) -> str:
    print(f"encoding {path}")
    return f"{path}@{size.width}x{size.height}/{quality}"


@app.task
async def pause(rest: timedelta) -> timedelta:
    await asyncio.sleep(rest.total_seconds())
    return rest * 2


@app.task(max_attempts=2, backoff="0.1s")
def fail(message: str) -> None:
    print("about to fail")
    raise ValueError(message)


@app.task
def join(parts: list[str], separator: str = "+") -> str:
    return separator.join(parts)


@app.task
def log_in(user: str, password: Annotated[str, duly.Secret]) -> int:
    return len(user) + len(password)


@app.task(max_attempts=5, backoff="0.1s")
def in_stages(failures: int) -> list[int]:
    context = duly.context()
    first = context.stage("first", lambda: context.attempt)
    if context.attempt <= failures:
        raise duly.Retry(after="0.1s", reason="not yet")
    return [first, context.stage("second", lambda: context.attempt)]


@app.task
def split(paths: list[str]) -> list[str]:
    context = duly.context()
    return [context.submit(encode, path, Size(1, 1)).id for path in paths]
