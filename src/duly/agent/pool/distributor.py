"""Gives waiting calls to the processes of a worker."""

import asyncio
from collections import OrderedDict

from duly.agent.pool.function_attempt import FunctionAttempt
from duly.agent.pool.pace import Pace
from duly.agent.pool.process_pool import ProcessPool
from duly.agent.pool.warm_process import WarmProcess
from duly.wire import AttemptRef


class Distributor:
    """The calls that any process may take, oldest first."""

    def __init__(self, pool: ProcessPool, pace: Pace) -> None:
        self._pool = pool
        self._pace = pace
        self._last_number = 0
        self._is_due = False
        self.waiting: OrderedDict[AttemptRef, FunctionAttempt] = OrderedDict()

    def add(self, attempt: FunctionAttempt) -> None:
        """Let a new call wait."""
        self.waiting[attempt.ref] = attempt
        self.soon()

    def add_back(self, attempt: FunctionAttempt) -> None:
        """Let a call wait again that a process has not begun; it comes first."""
        attempt.process, attempt.is_withdrawing = None, False
        self.waiting[attempt.ref] = attempt
        self.waiting.move_to_end(attempt.ref, last=False)
        self.soon()

    def discard(self, attempt: FunctionAttempt) -> bool:
        """Remove a call; False if a process has it."""
        return self.waiting.pop(attempt.ref, None) is not None

    def soon(self) -> None:
        """Give what there is at the end of this event loop iteration."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.give)

    def give(self) -> None:
        """Give calls to the processes that have room, the least loaded first."""
        self._is_due = False
        if not self.waiting:
            return
        given = set()
        depth = self._pace.depth()
        ready = [one for one in self._pool.ready if _room(one, depth) > 0]
        while self.waiting and ready:
            process = min(ready, key=lambda one: len(one.calls))
            _, attempt = self.waiting.popitem(last=False)
            self._last_number += 1
            attempt.number, attempt.process = self._last_number, process
            process.calls[attempt.number] = attempt
            process.send(attempt.run_message(attempt.number))
            given.add(process)
            if _room(process, depth) <= 0:
                ready.remove(process)
        for process in given:
            process.flush()


def _room(process: WarmProcess, depth: int) -> int:
    return process.lanes * (1 if process.is_blocked else depth) - len(process.calls)
