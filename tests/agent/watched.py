"""A process with a watched event loop, which a test makes stand still or not."""

import asyncio
import os
import sys
from pathlib import Path

from duly.agent.watchdog import Watchdog
from duly.clock import monotonic
from duly.launch.logs import log_to_stderr

TURN = 0.05
QUESTIONS = 20


def open_a_pipe(path: Path) -> None:
    path.open().close()


async def stand_still(path: Path) -> None:
    with watchdog(lambda: 0.0):
        open_a_pipe(path)


async def stand_still_for_a_while(path: Path) -> None:
    asked = 0

    def lease_ends_at() -> float:
        nonlocal asked
        asked += 1
        if asked == QUESTIONS:
            os.close(os.open(path, os.O_WRONLY))
        return monotonic() + 60

    with watchdog(lease_ends_at):
        open_a_pipe(path)


async def go_on(_: Path) -> None:
    with watchdog(lambda: 0.0) as watched:
        while watched.beats < QUESTIONS * 2:
            await asyncio.sleep(TURN)


async def go_on_when_told(path: Path) -> None:
    with watchdog(lambda: 0.0) as watched:
        print("watched", flush=True)
        while not path.exists():
            await asyncio.sleep(TURN)
        after = watched.beats + QUESTIONS
        while watched.beats < after:
            await asyncio.sleep(TURN)


def watchdog(lease_ends_at) -> Watchdog:
    return Watchdog(lease_ends_at, turn=TURN, max_still_turns=QUESTIONS)


if __name__ == "__main__":
    log_to_stderr(verbose=False)
    asyncio.run(globals()[sys.argv[1]](Path(sys.argv[2])))
    print("went on")
