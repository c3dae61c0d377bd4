"""A line to a spawner without a supervisor, for one test."""

import os
import resource
from contextlib import contextmanager

from duly.agent.cgroup import Limits
from duly.agent.spawner import MADE
from duly.agent.starter import Start, Starter


def start_of_true(attempt):
    begin = (["true"], {}, "/", MADE, None, False)
    return Start(attempt, Limits(), begin, os.open("/dev/null", os.O_WRONLY))


@contextmanager
def closing_at_end():
    lock = os.open("/dev/null", os.O_RDONLY)
    starter = Starter([], resource.getrlimit(resource.RLIMIT_NOFILE), 1, 0, lock)
    try:
        yield starter
    finally:
        starter.frames.socket.close()
        if not starter.is_reaped:
            starter.kill()
            os.waitpid(starter.pid, 0)
        os.close(lock)
