"""One `duly up` on a folder at a time, and a dead one never in the way."""

import os
import signal
import subprocess
import sys

import pytest

from duly.errors import ConfigError
from duly.launch.local.data_folder import claim, default_data

HOLD = (
    "import sys; from pathlib import Path; from duly.launch.local.data_folder import claim\n"
    "with claim(Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def holder(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_claim_is_refused_and_names_the_folder_and_the_process(tmp_path, holder):
    with (
        pytest.raises(ConfigError, match=rf"already up on {tmp_path} \(pid {holder.pid}\)"),
        claim(tmp_path),
    ):
        pass


def test_a_killed_holder_leaves_no_claim(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with claim(tmp_path):
        pass
    with claim(tmp_path):
        pass


def test_a_new_folder_is_private(tmp_path):
    with claim(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--data"), claim(tmp_path / "file" / "data"):
        pass


def test_the_data_is_kept_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data() == tmp_path / ".local/share/duly"
