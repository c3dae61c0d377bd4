"""The application of the demo: the functions that its worker runs."""

import os

import duly

app = duly.App("shop")


@app.task
def thumbnail(photo: str, height: int) -> str:
    """Pretend to scale a photo."""
    return f"{photo}@{height}"


@app.task(max_attempts=1)
def broken_library() -> None:
    """End the process in the middle of a call, as a crash in a library does."""
    os._exit(70)
