"""Whatever is killed, no acknowledged task is lost, run by two nodes at once, or left behind."""

import os
import signal

import psutil
import pytest

from duly.server.artifacts.log_store import LOST_NOTICE
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests.faults.lab import Lab, until
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.faults


def submit(lab: Lab, work: str, **fields: object) -> str:
    return lab.client().submit(source=lab.ledger.script(work), **fields)["id"]  # type: ignore[arg-type]


def test_the_processes_of_a_killed_agent_end_and_its_task_is_retried(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    task = submit(lab, 'sleep "$(if [ $DULY_ATTEMPT = 1 ]; then echo 60; else echo 0.1; fi)"')
    until(lambda: lab.ledger.starts(task), "the first attempt to start")

    agent.kill()
    until(lambda: not lab.processes_of(task), "its processes to end", seconds=2)
    lab.start_agent()

    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["failures"], ended["losses"]) == ("done", 0, 1)
    assert [entry.attempt for entry in lab.ledger.starts(task)] == [1, 2]
    assert lab.violations([task]) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="usage of running tasks needs cgroups")
def test_the_output_and_usage_of_a_lost_attempt_are_kept(lab: Lab) -> None:
    lab.start_server()
    agent, client = lab.start_agent(), lab.client()
    work = "if [ $DULY_ATTEMPT = 1 ]; then echo before; sleep 60; else echo again; fi"
    task = submit(lab, work)
    until(lambda: client.read_logs(task) == b"before\n", "its output")
    until(lambda: client.list_attempts(task)[0]["usage"] is not None, "its usage")
    [running] = client.list_attempts(task)

    agent.kill()
    lab.start_agent()

    client.wait(task, timeout=30)
    assert client.read_logs(task, attempt=1) == b"before\n" + LOST_NOTICE
    assert client.read_logs(task, attempt=2) == b"again\n"
    lost = client.list_attempts(task)[0]
    assert (lost["outcome"], lost["started_at"]) == ("lost", running["started_at"])
    assert lost["usage"] is not None and running["usage"] is not None
    assert lost["usage"]["peak_memory_mb"] >= running["usage"]["peak_memory_mb"] > 0
    assert lost["usage"]["wall_seconds"] > running["usage"]["wall_seconds"]
    assert lab.violations([task]) == []


def test_a_task_with_on_lost_fail_fails_when_its_node_is_lost(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    task = submit(lab, "sleep 60", on_lost="fail")
    until(lambda: lab.ledger.starts(task), "the attempt to start")
    agent.kill()
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["reason"]["code"]) == ("failed", "lost")
    assert len(lab.ledger.starts(task)) == 1


def test_a_retry_after_a_server_was_killed_before_its_response_gives_the_same_task(
    lab: Lab,
) -> None:
    server = lab.start_server()
    proxy = Proxy(lab.port)
    fields = {"command": ["true"], "idempotency_key": "only-once"}
    proxy.drop_response("/v1/tasks")
    with pytest.raises(Exception, match=r".+"):
        lab.client(proxy.url, seconds=0).submit(**fields)  # type: ignore[arg-type]
    assert proxy.response_dropped.wait(10)
    server.kill()

    lab.start_server()
    first = lab.client().list_tasks()["items"]
    repeated = lab.client().submit(**fields)  # type: ignore[arg-type]
    assert [task["id"] for task in first] == [repeated["id"]]
    proxy.close()


def test_a_killed_server_does_not_affect_running_tasks(lab: Lab) -> None:
    server = lab.start_server()
    lab.start_agent()
    task = submit(lab, "sleep 1.5")
    until(lambda: lab.ledger.starts(task), "the attempt to start")
    server.kill()
    lab.start_server()
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert lab.violations([task]) == []


def test_a_killed_postgresql_loses_nothing_that_was_acknowledged(
    folder: object, own_postgres: EmbeddedPostgres
) -> None:
    lab = Lab(folder, own_postgres.start())  # type: ignore[arg-type]
    try:
        lab.start_server()
        lab.start_agent()
        client = lab.client()
        acknowledged = [submit(lab, "sleep 0.2") for _ in range(20)]
        until(lambda: len(lab.ledger.entries()) > 4, "some of them to run")
        kill_postgres(own_postgres)
        own_postgres.start()
        acknowledged += [submit(lab, "sleep 0.2") for _ in range(5)]
        for task in acknowledged:
            assert client.wait(task, timeout=60)["status"] == "done"
        assert lab.violations(acknowledged) == []
    finally:
        lab.close()


def test_everything_continues_after_all_processes_were_killed_at_once(
    folder: object, own_postgres: EmbeddedPostgres
) -> None:
    lab = Lab(folder, own_postgres.start())  # type: ignore[arg-type]
    try:
        server, agent = lab.start_server(), lab.start_agent()
        acknowledged = [submit(lab, "sleep 0.3") for _ in range(20)]
        until(lambda: len(lab.ledger.entries()) > 4, "some of them to run")
        for program in (agent, server):
            program.kill()
        kill_postgres(own_postgres)
        until(
            lambda: not any(lab.processes_of(task) for task in acknowledged),
            "the processes of the tasks to end",
        )

        own_postgres.start()
        lab.start_server()
        lab.start_agent()
        for task in acknowledged:
            assert lab.client().wait(task, timeout=60)["status"] == "done"
        assert lab.violations(acknowledged) == []
    finally:
        lab.close()


def kill_postgres(server: EmbeddedPostgres) -> None:
    """Kill all processes of PostgreSQL, like a power failure."""
    pid = server.running_pid()
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=10)
