"""Whatever is killed: nothing acknowledged is lost, nothing is done by two, nothing is left."""

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


def test_a_killed_agent_takes_its_processes_along_and_its_task_runs_again(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    task = submit(lab, 'sleep "$(if [ $DULY_ATTEMPT = 1 ]; then echo 60; else echo 0.1; fi)"')
    until(lambda: lab.ledger.starts(task), "the first attempt to start")

    agent.kill()
    until(lambda: not lab.processes_of(task), "the processes to be gone", seconds=2)
    lab.start_agent()

    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["failures"], ended["losses"]) == ("done", 0, 1)
    assert [one.attempt for one in lab.ledger.starts(task)] == [1, 2]
    assert lab.violations([task]) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only cgroups tell what is used while it runs")
def test_what_a_lost_attempt_wrote_and_used_is_kept(lab: Lab) -> None:
    lab.start_server()
    agent, client = lab.start_agent(), lab.client()
    work = "if [ $DULY_ATTEMPT = 1 ]; then echo before; sleep 60; else echo again; fi"
    task = submit(lab, work)
    until(lambda: client.read_logs(task) == b"before\n", "its output to be shown")
    until(lambda: client.list_attempts(task)[0]["usage"] is not None, "its usage to be shown")
    [shown] = client.list_attempts(task)

    agent.kill()
    lab.start_agent()

    client.wait(task, timeout=30)
    assert client.read_logs(task, attempt=1) == b"before\n" + LOST_NOTICE
    assert client.read_logs(task, attempt=2) == b"again\n"
    lost = client.list_attempts(task)[0]
    assert (lost["outcome"], lost["started_at"]) == ("lost", shown["started_at"])
    assert lost["usage"] is not None and shown["usage"] is not None
    assert lost["usage"]["peak_memory_mb"] >= shown["usage"]["peak_memory_mb"] > 0
    assert lost["usage"]["wall_seconds"] > shown["usage"]["wall_seconds"]
    assert lab.violations([task]) == []


def test_a_task_that_must_not_be_begun_twice_fails_when_its_node_is_lost(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    task = submit(lab, "sleep 60", on_lost="fail")
    until(lambda: lab.ledger.starts(task), "the attempt to start")
    agent.kill()
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["reason"]["code"]) == ("failed", "lost")
    assert len(lab.ledger.starts(task)) == 1


def test_a_server_killed_between_commit_and_answer_gives_the_same_task_again(lab: Lab) -> None:
    server = lab.start_server()
    proxy = Proxy(lab.port)
    fields = {"command": ["true"], "idempotency_key": "only-once"}
    proxy.lose("/v1/tasks")
    with pytest.raises(Exception, match=r".+"):
        lab.client(proxy.url, seconds=0).submit(**fields)  # type: ignore[arg-type]
    assert proxy.lost.wait(10)
    server.kill()

    lab.start_server()
    first = lab.client().list_tasks()["items"]
    again = lab.client().submit(**fields)  # type: ignore[arg-type]
    assert [task["id"] for task in first] == [again["id"]]
    proxy.close()


def test_a_killed_server_costs_running_tasks_nothing(lab: Lab) -> None:
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
        told = [submit(lab, "sleep 0.2") for _ in range(20)]
        until(lambda: len(lab.ledger.entries()) > 4, "some of them to run")
        kill_postgres(own_postgres)
        own_postgres.start()
        told += [submit(lab, "sleep 0.2") for _ in range(5)]
        for task in told:
            assert client.wait(task, timeout=60)["status"] == "done"
        assert lab.violations(told) == []
    finally:
        lab.close()


def test_everything_killed_at_once_goes_on_where_it_was(
    folder: object, own_postgres: EmbeddedPostgres
) -> None:
    lab = Lab(folder, own_postgres.start())  # type: ignore[arg-type]
    try:
        server, agent = lab.start_server(), lab.start_agent()
        told = [submit(lab, "sleep 0.3") for _ in range(20)]
        until(lambda: len(lab.ledger.entries()) > 4, "some of them to run")
        for program in (agent, server):
            program.kill()
        kill_postgres(own_postgres)
        until(lambda: not any(lab.processes_of(task) for task in told), "the tasks to be gone")

        own_postgres.start()
        lab.start_server()
        lab.start_agent()
        for task in told:
            assert lab.client().wait(task, timeout=60)["status"] == "done"
        assert lab.violations(told) == []
    finally:
        lab.close()


def kill_postgres(server: EmbeddedPostgres) -> None:
    """Kill PostgreSQL, all of it, as a power cut would."""
    pid = server.running_pid()
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=10)
