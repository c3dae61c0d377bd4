import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from duly.agent.leftovers import sweep
from duly.agent.preparation.task_users import SameUser

SCRIPT = Path(__file__).with_name("unreadable.py")


@pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="needs a file system of its own")
def test_no_process_keeps_an_agent_from_starting(tmp_path):
    (tmp_path / "mount").mkdir()
    command = [sys.executable, SCRIPT, tmp_path / "mount"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if not (said := process.stdout.readline()):
            pytest.skip("no file system can be mounted here")
        unreadable = int(said)
        try:
            arguments = (
                f"test-{uuid.uuid4()}",
                tmp_path / "work",
                tmp_path / "spool",
                SameUser(None),
            )
            # Never joined if it waits: not even at the end of this process.
            sweeping = threading.Thread(target=sweep, args=arguments, daemon=True)
            sweeping.start()
            sweeping.join(20)
            assert not sweeping.is_alive()
        finally:
            os.kill(unreadable, signal.SIGKILL)
            process.kill()
