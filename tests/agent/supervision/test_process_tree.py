import subprocess
import sys
from pathlib import Path

import pytest

from duly.agent.supervision.process_tree import MAX_ENVIRONMENT_BYTES, read_environment
from duly.model.requests.program_request import MAX_ENV_BYTES

PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
SCRIPT = Path(__file__).parent.with_name("large_environment.py")


def test_a_process_cannot_make_us_read_more_than_any_environment_has():
    with subprocess.Popen([sys.executable, SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() != "large\n":
                pytest.skip("this kernel lets no process say where its environment is")
            assert len(read_environment(process.pid)) <= MAX_ENVIRONMENT_BYTES
        finally:
            process.kill()


def test_all_of_what_a_task_can_be_given_is_read():
    given = {"A": "x" * 100_000, "B": "y" * 100_000, "LAST": "z"}
    script = "echo begun; read -r _"
    with subprocess.Popen(["/bin/sh", "-c", script], env=given, **PIPES) as process:
        try:
            process.stdout.readline()
            assert MAX_ENV_BYTES < MAX_ENVIRONMENT_BYTES
            assert b"\0LAST=z\0" in read_environment(process.pid)
        finally:
            process.kill()
