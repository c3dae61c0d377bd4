"""The application whose functions the tests of workers call."""

import asyncio
import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from duly.client.functions.app import App
from duly.client.functions.context import context
from duly.client.functions.control import Cancelled, GiveUp, Retry

app = App("sample")
state = {"started": 0}
print("imported")


@app.startup
def _count() -> None:
    state["started"] += 1


@app.task(aliases=["sample:plus"])
def add(a: int, b: int) -> int:
    return a + b


@app.task
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@app.task
def pid() -> int:
    return os.getpid()


@app.task
def started() -> int:
    return state["started"]


@app.task
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(retry_on=OSError)
def fail_for_good() -> None:
    raise ValueError("no use")


@app.task
def ask_again(seconds: float) -> None:
    raise Retry(after=seconds, reason="no stock yet")


@app.task
def give_up() -> None:
    raise GiveUp("sold out")


@app.task
def nothing_json() -> object:
    return object()


@app.task
def large(size: int) -> str:
    return "x" * size


@app.task
def sleep(seconds: float, doorbell: str | None = None) -> str:
    try:
        _ring(doorbell)
        time.sleep(seconds)
    except Cancelled:
        print("cleaned up", flush=True)
        raise
    return "slept"


@app.task
async def sleep_async(seconds: float, doorbell: str | None = None) -> str:
    _ring(doorbell)
    await asyncio.sleep(seconds)
    return "slept"


@app.task
def compute(doorbell: str | None = None) -> None:
    _ring(doorbell)
    while True:
        pass


@app.task
def ignore_interruption(doorbell: str | None = None) -> None:
    _ring(doorbell)
    while True:
        try:
            time.sleep(0.01)
        except Cancelled:
            continue


@app.task
def exit_process(code: int) -> None:
    print("going", flush=True)
    os._exit(code)


@app.task
def raise_exit() -> None:
    sys.exit(3)


@app.task
def crash() -> None:
    ctypes.string_at(0)


@app.task
def use_memory(megabytes: int) -> int:
    kept = [b"x" * 2**20 for _ in range(megabytes)]
    return len(kept)


@app.task
def sleep_with_memory(megabytes: int) -> int:
    kept = [b"x" * 2**20 for _ in range(megabytes)]
    time.sleep(30)
    return len(kept)


@app.task
def write(text: str) -> None:
    print(f"print {text}")
    sys.stderr.write(f"stderr {text}\n")
    logging.getLogger("sample").warning("logged %s", text)


@app.task
def write_below(text: str) -> None:
    os.write(1, f"write {text}\n".encode())
    subprocess.run(["/bin/echo", "child", text], check=True)


@app.task
def write_much(lines: int) -> None:
    for number in range(lines):
        print(f"line {number:08}")


@app.task
async def write_async(text: str) -> None:
    for _ in range(5):
        print(f"async {text}")
        await asyncio.sleep(0.001)


@app.task
def write_in_thread(text: str) -> None:
    for _ in range(5):
        print(f"thread {text}")
        time.sleep(0.001)


@app.task
def write_and_wait(text: str, doorbell: str) -> None:
    print(text)
    _ring(doorbell)
    threading.Event().wait()


@app.task
def progress() -> None:
    context().progress(0.5, "half")


@app.task
def record(file: str, text: str) -> None:
    with Path(file).open("a") as log:
        log.write(f"{text}\n")


@app.task
def told() -> list[object]:
    current = context()
    return [current.task_id, current.attempt, current.name]


def _ring(doorbell: str | None) -> None:
    if doorbell is not None:
        with Path(doorbell).open("w") as bell:
            bell.write(f"{os.getpid()}\n")


@app.task
def record_slowly(file: str, text: str, seconds: float) -> None:
    time.sleep(seconds)
    record(file, text)


@app.task
def first_time_hangs(file: str) -> None:
    record(file, str(os.getpid()))
    if context().attempt == 1:
        threading.Event().wait()


@app.task
def tick(file: str, milliseconds: str) -> None:
    while True:
        record(file, str(os.getpid()))
        time.sleep(int(milliseconds) / 1000)
