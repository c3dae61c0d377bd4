"""Both clients against a whole Duly."""

import asyncio

import pytest

import duly


async def test_a_task_from_submit_to_result(server):
    async with duly.AsyncClient(server.url, server.key) as client:
        assert await client.healthz()
        task = await client.submit(
            command=["sh", "-c", 'echo hi; echo "{\\"n\\": 1}" > "$DULY_RESULT"'],
            labels={"who": "ü"},
            resources={"cpu": 0.1},
        )
        said = b"".join([chunk async for chunk in client.follow_logs(task["id"])])
        ended = await client.wait(task["id"], timeout=30)
        assert (said, ended["status"]) == (b"hi\n", "done")
        assert await client.get_result(task["id"]) == {"n": 1}
        assert [a["outcome"] for a in await client.list_attempts(task["id"])] == ["succeeded"]
        assert (await client.explain(task["id"]))["message"]


async def test_asking_for_the_result_of_a_failed_task_raises(server):
    async with duly.AsyncClient(server.url, server.key) as client:
        task = await client.submit(command=["false"], max_attempts=1, resources={"cpu": 0.1})
        await client.wait(task["id"], timeout=30)
        with pytest.raises(duly.TaskFailed, match="failed"):
            await client.get_result(task["id"])
    with server.client() as client, pytest.raises(duly.TaskFailed, match="failed"):
        client.get_result(task["id"])
    done = server.duly("result", task["id"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        f"duly: Task {task['id']} has failed and has no result: exited with code 1."
    )


async def test_many_calls_at_once(server):
    async with duly.AsyncClient(server.url, server.key) as client, asyncio.TaskGroup() as group:
        made = [
            group.create_task(client.submit(command=["true"], run_at="2100-01-01T00:00:00Z"))
            for _ in range(50)
        ]
    assert len({task.result()["id"] for task in made}) == 50


def test_a_batch_is_stored_whole_or_not_at_all(server):
    with duly.Client(server.url, server.key) as client:
        later = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z", "name": "batch"}
        ids = client.submit_many([later, later], idempotency_key="b-1")
        assert client.submit_many([later, later], idempotency_key="b-1") == ids
        with pytest.raises(duly.Invalid, match="cpu"):
            client.submit_many([later, {**later, "resources": {"cpu": -1}}])
        assert {task["id"] for task in client.iter_tasks(name="batch")} == set(ids)
        assert client.cancel_tasks(name="batch") == 2


async def test_both_clients_pause_and_resume(server):
    later = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z"}
    with duly.Client(server.url, server.key) as client:
        task = client.submit(**later)["id"]
        found = [client.pause_task(task)["status"], client.resume_task(task)["status"]]
        assert client.pause_tasks(name="none") == {"paused": 0, "running": 0, "more": False}
        assert client.resume_tasks(name="none") == 0
    async with duly.AsyncClient(server.url, server.key) as client:
        found += [(await client.pause_task(task))["status"]]
        found += [(await client.resume_task(task))["status"]]
        assert (await client.pause_tasks(name="none"))["paused"] == 0
        assert await client.resume_tasks(name="none") == 0
        await client.cancel_task(task)
        with pytest.raises(duly.Conflict):
            await client.pause_task(task)
    assert found == ["paused", "scheduled"] * 2


def test_errors_are_those_of_the_package(server):
    with duly.Client(server.url, server.key) as client:
        with pytest.raises(duly.NotFound):
            client.get_task("12345")
        with pytest.raises(duly.Invalid) as caught:
            client.submit(command=[])
        assert caught.value.field == "command"
        client.submit(command=["true"], idempotency_key="e-1")
        with pytest.raises(duly.KeyReused):
            client.submit(command=["false"], idempotency_key="e-1")
    with duly.Client(server.url, "wrong") as stranger, pytest.raises(duly.Unauthenticated):
        stranger.status()
