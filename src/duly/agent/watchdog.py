"""Ends this process when its event loop stands still and its lease is lost.

Such an agent neither renews nor polls nor reports, and would not until somebody came to look. What
ran here has been frozen or killed by the supervisor, and is given to other nodes. Whoever
started the agent starts it again, and that one works.

An agent without a network is not ended: its loop goes on. Nor is one that was stopped as a
whole and continues: stillness is counted in turns of the thread that watches, which was stopped
as well. What the thread cannot see is a loop that never lets go of the interpreter.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from duly.clock import monotonic

log = logging.getLogger(__name__)

TURN = 1.0
"""Seconds between two signs of life, and between two looks for one."""
MAX_STILL_TURNS = 10
"""Looks without a sign of life after which the loop is taken to stand still."""
MAX_LAST_WORDS = 5.0
"""Seconds for the log: the loop may stand still because nobody reads what we write there."""
EXIT_CODE = 1


class Watchdog:
    """A thread that watches the event loop in which it is entered, as long as the block lasts."""

    def __init__(
        self,
        lease_ends_at: Callable[[], float],
        *,
        turn: float = TURN,
        max_still_turns: int = MAX_STILL_TURNS,
    ) -> None:
        self.beats = 0
        """How many signs of life the loop has given."""
        self._lease_ends_at = lease_ends_at
        self._turn = turn
        self._max_still_turns = max_still_turns
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watched = threading.get_ident()
        self._next: asyncio.TimerHandle

    def __enter__(self) -> "Watchdog":
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._next.cancel()
        self._thread.join()

    def _beat(self) -> None:
        self.beats += 1
        self._next = asyncio.get_running_loop().call_later(self._turn, self._beat)

    def _watch(self) -> None:
        seen = still = 0
        while not self._closed.wait(self._turn):
            beats = self.beats
            still = still + 1 if beats == seen else 0
            seen = beats
            if still >= self._max_still_turns and monotonic() >= self._lease_ends_at():
                self._end()

    def _end(self) -> None:
        """Say where the loop stands, and end this process without asking it."""
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(MAX_LAST_WORDS, exit=True, file=nowhere)
            frame = sys._current_frames().get(self._watched)
            log.critical(
                "the event loop stands still and the lease is lost; this agent ends itself\n%s",
                "".join(traceback.format_stack(frame)),
            )
            os._exit(EXIT_CODE)
