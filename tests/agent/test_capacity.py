"""A node offers what its machine has."""

import os
import shutil
import subprocess

import pytest

from duly.agent.capacity import RESERVED_DISK_FRACTION, detect
from duly.agent.preparation import workspace

MOUNT, UMOUNT = shutil.which("mount") or "mount", shutil.which("umount") or "umount"


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    command = [MOUNT, "-t", "tmpfs", "-o", "size=40m,mode=700", "duly-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run([UMOUNT, "--lazy", str(folder)], check=True)


def test_a_node_whose_data_is_on_a_small_disk_offers_what_that_disk_has(small_disk):
    assert workspace.root(small_disk, "m", shared=True).is_relative_to(workspace.FALLBACK_ROOT)
    assert detect(small_disk).disk_mb == 40 * (1 - RESERVED_DISK_FRACTION)
    assert detect(small_disk / "not" / "yet").disk_mb == 40 * (1 - RESERVED_DISK_FRACTION)


def test_a_node_offers_most_of_the_space_that_is_free(tmp_path):
    free = shutil.disk_usage(tmp_path).free / 2**20
    assert 0 < detect(tmp_path).disk_mb <= free
