"""A line to a spawner without a supervisor, for one test."""

import os
import resource
from contextlib import contextmanager

from duly.agent.limits.cgroup import Limits
from duly.agent.supervision.spawner import WORKSPACE_READY
from duly.agent.supervision.spawner_handle import PendingStart, SpawnerHandle


def start_of_true(attempt):
    begin = (["true"], {}, "/", WORKSPACE_READY, None, False)
    return PendingStart(attempt, Limits(), begin, os.open("/dev/null", os.O_WRONLY))


@contextmanager
def closing_at_end():
    lock = os.open("/dev/null", os.O_RDONLY)
    spawner = SpawnerHandle([], resource.getrlimit(resource.RLIMIT_NOFILE), 1, 0, lock)
    try:
        yield spawner
    finally:
        spawner.connection.socket.close()
        if not spawner.is_reaped:
            spawner.kill()
            os.waitpid(spawner.pid, 0)
        os.close(lock)
