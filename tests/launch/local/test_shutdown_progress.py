"""What a stopping `duly up` says that it waits for."""

import pytest

from duly.launch.local import shutdown_progress
from duly.launch.local.shutdown_progress import AGENT, ShutdownProgress


@pytest.fixture
def clock(monkeypatch):
    """The time, which stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(shutdown_progress, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("tasks", "passed", "description"),
    [
        (2, 2.0, "2 tasks have up to 8 s to end"),
        (1, 9.9, "1 task has up to 1 s to end"),
        (2, 10.5, "2 tasks are being killed"),
        (1, 30.0, "1 task is being killed"),
        (0, 1.0, "waiting for the agent, the server, PostgreSQL"),
    ],
)
def test_it_says_which_tasks_or_parts_are_left(clock, tasks, passed, description):
    progress = ShutdownProgress(10.0)
    with progress.part("PostgreSQL"), progress.part("the server"), progress.part(AGENT):
        assert "have 10 s to end" in progress.begin()
        progress.set_tasks(tasks)
        clock[0] += passed
        said = progress.describe()
    assert said == f"Still stopping: {description}. Press Ctrl-C again to stop at once."


def test_tasks_end_with_their_agent(clock):
    progress = ShutdownProgress(600.0)
    with progress.part("the server"):
        with progress.part(AGENT):
            assert "have 10 min to end" in progress.begin()
            progress.set_tasks(3)
        assert progress.describe().startswith("Still stopping: waiting for the server.")
        assert progress.hurry().endswith("waiting for the server.")
