"""Ends this process if its event loop is stuck and its lease has expired.

Such an agent neither renews nor polls nor reports until an operator notices. The supervisor has
frozen or killed its attempts, other nodes get them, and whatever started the agent restarts it. An
agent without a network is not ended: its loop is alive. Nor is a process that was stopped as a
whole and continues: missed beats are counted in iterations of the watchdog thread, which was
stopped, too. A loop that never releases the interpreter lock is not detected.
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

CHECK_INTERVAL_SECONDS = 1.0
"""Seconds between two beats of the loop, and between two checks."""
MAX_MISSED_BEATS = 10
"""Checks without a beat after which the loop counts as stuck."""
FINAL_LOG_TIMEOUT_SECONDS = 5.0
"""Seconds for the last log record: the loop may be stuck because nothing reads our log output."""
EXIT_CODE = 1


class Watchdog:
    """A context manager with a thread that watches the event loop in which it is entered."""

    def __init__(
        self,
        lease_ends_at: Callable[[], float],
        *,
        turn: float = CHECK_INTERVAL_SECONDS,
        max_still_turns: int = MAX_MISSED_BEATS,
    ) -> None:
        self.beats = 0
        """Beats of the loop so far."""
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
        """Log the stack of the loop, and end this process without its cooperation."""
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(FINAL_LOG_TIMEOUT_SECONDS, exit=True, file=nowhere)
            frame = sys._current_frames().get(self._watched)
            log.critical(
                "the event loop stands still and the lease is lost; this agent ends itself\n%s",
                "".join(traceback.format_stack(frame)),
            )
            os._exit(EXIT_CODE)
