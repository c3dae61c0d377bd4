"""Tells on stderr when the output of a task was longer than its limit.

The output itself ends with a notice of the agent, which nobody reads who redirects it to a file.
"""

import sys

from duly.cli.connect import print_notice

LIMIT_NOTICE = b"[duly: the output is longer than its limit"
DISK_NOTICE = b"[duly: the disk of the node is full"
MAX_NOTICE_BYTES = 200
"""More than the notice of the agent at the end of the output."""


def tell_if_truncated(output: bytes) -> None:
    """Print to stderr that the rest of the output was dropped; `output` may be only its end.

    At a terminal, the notice in the output has just been seen.
    """
    end = output[-MAX_NOTICE_BYTES:]
    if sys.stdout.isatty():
        return
    if LIMIT_NOTICE in end:
        print_notice(
            "The output is longer than the limit of the plan or of the servers "
            "(execution.log_limit); the rest was dropped. To keep more, let the task write a file."
        )
    elif DISK_NOTICE in end:
        print_notice("The disk of the node was full; the rest of the output was dropped.")
