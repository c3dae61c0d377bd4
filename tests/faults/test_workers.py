"""Workers that are killed and stopped, with real servers: no call is lost, none runs on twice."""

import os
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.faults.lab import Lab
from tests.torture.processes import Program, until

ROOT = Path(__file__).parents[2]
MODULE = "tests.agent.pool.sample_app"


@pytest.fixture
def lab(folder, dsn):
    lab = Lab(folder, dsn, servers=1)
    lab.start_server()
    yield lab
    lab.close()


def start_worker(lab: Lab, name: str = "worker-a", app: str = f"{MODULE}:app", *flags: str):
    """Start a worker, and wait until it has joined."""
    key = lab.folder / "worker.key"
    key.touch(mode=0o600)
    key.write_text(lab.key)
    command = f"worker {app} --url {lab.url} --key-file {key} --data {lab.folder}/{name}"
    program = lab._start(
        name,
        " ".join([command, "--name", name, *flags]),
        {"PYTHONPATH": f"{ROOT}:{lab.folder}"},
    )
    until(lambda: program.has_logged("ready: ") or not program.is_running(), f"{name} to join")
    assert program.is_running(), program.log.read_text()
    return program


def call(lab: Lab, function: str, *args, **fields) -> str:
    """Submit a call and return its id."""
    task = {"call": {"function": f"{MODULE}:{function}", "args": list(args)}}
    return lab.client().submit(**task, **fields)["id"]


def calls(lab: Lab, function: str, arguments) -> list[str]:
    """Submit calls, and return their ids."""
    name = f"{MODULE}:{function}"
    return lab.client().submit_many([{"call": {"function": name, "args": a}} for a in arguments])


def warm_processes(program: Program) -> list[psutil.Process]:
    """Return the processes that run functions."""
    return [one for one in program.tree() if "duly.agent.pool.process" in one.cmdline()]


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def test_no_call_is_lost_when_workers_are_killed_in_the_middle(lab, folder):
    worker, file = (
        start_worker(lab, "worker-a", f"{MODULE}:app", "--processes", "2"),
        folder / "log",
    )
    tasks = calls(lab, "record_slowly", [[str(file), str(number), 0.02] for number in range(300)])
    until(lambda: len(lines(file)) > 50, "some calls to have run")
    before = warm_processes(worker)
    worker.kill()
    start_worker(lab, "worker-a", f"{MODULE}:app", "--processes", "2")
    assert not any(one.is_running() and one.status() != "zombie" for one in before)
    ended = lab.await_ended(tasks)
    assert Counter(task["status"] for task in ended.values()) == {"done": 300}
    assert set(lines(file)) == {str(number) for number in range(300)}


def test_a_call_whose_process_is_killed_runs_again(lab, folder):
    worker, file = start_worker(lab), folder / "log"
    task = call(lab, "first_time_hangs", str(file))
    (pid,) = until(lambda: lines(file), "the function to begin")
    os.kill(int(pid), signal.SIGKILL)
    assert lab.await_ended([task])[task]["status"] == "done"
    first, second = lab.client().list_attempts(task)
    assert first["reason"]["code"] == "process_died"
    assert second["outcome"] == "succeeded"
    assert worker.is_running()


def test_a_stopped_worker_runs_nothing_once_its_lease_is_over(lab, folder):
    worker, file = start_worker(lab), folder / "log"
    task = call(lab, "tick", str(file), "10")
    until(lambda: lines(file), "the function to begin")
    (first,) = set(lines(file))
    worker.send(signal.SIGSTOP)
    start_worker(lab, "worker-b")
    until(lambda: len(set(lines(file))) == 2, "the call to begin elsewhere", 60)
    written = lines(file)
    began = next(index for index, pid in enumerate(written) if pid != first)
    until(lambda: len(lines(file)) > began + 100, "the second attempt to go on")
    assert first not in lines(file)[began:]
    worker.send(signal.SIGCONT)
    lab.client().cancel_task(task)
    lab.await_ended([task])


def test_a_worker_that_is_told_to_stop_returns_what_runs(lab, folder):
    worker, file = start_worker(lab), folder / "log"
    task = call(lab, "first_time_hangs", str(file))
    until(lambda: lines(file), "the function to begin")
    assert worker.stop() == 0
    start_worker(lab, "worker-b")
    assert lab.await_ended([task])[task]["status"] == "done"
    first, _ = lab.client().list_attempts(task)
    assert first["outcome"] == "preempted"


def test_a_poisoned_function_costs_only_its_own_attempts(lab):
    worker = start_worker(lab)
    poisoned = call(lab, "exit_process", 3, max_attempts=2)
    others = calls(lab, "add", [[number, 1] for number in range(50)])
    ended = lab.await_ended([poisoned, *others])
    assert ended[poisoned]["status"] == "failed"
    assert Counter(ended[task]["status"] for task in others) == {"done": 50}
    assert worker.is_running()


def test_a_reloaded_application_has_its_new_functions(lab, folder):
    source = (
        "from duly import App\napp = App('changing')\n@app.task\ndef {0}():\n    return '{0}'\n"
    )
    (folder / "changing.py").write_text(source.format("old"))
    worker = start_worker(lab, "worker-a", "changing:app", "--reload")
    before = {one.pid for one in warm_processes(worker)}
    (folder / "changing.py").write_text(source.format("new_function"))
    task = lab.client().submit(call={"function": "changing:new_function", "args": []})["id"]
    assert lab.await_ended([task])[task]["status"] == "done"
    assert not before & {one.pid for one in warm_processes(worker)}
