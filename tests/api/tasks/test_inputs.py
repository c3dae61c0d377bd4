"""A task receives the results of its upstream tasks, with a real agent and a real server."""

import asyncio
import threading

from duly.server.delivery import inputs
from duly.server.delivery.inputs import Inputs
from tests.api.tasks.test_progress import running_agent

LARGE = r"""(printf '"'; head -c 250000 /dev/zero | tr '\0' x; printf '"') > $DULY_RESULT"""


def task(ref, script, *upstreams, **fields):
    needs = {"cpu": 0.1, "memory_mb": 32, "disk_mb": 1}
    command = ["sh", "-c", script]
    common = {"ref": ref, "command": command, "resources": needs, "max_attempts": 1}
    return {**common, "depends_on": list(upstreams), **fields}


async def submit(real, *tasks):
    return (await real.call("POST", "/v1/graphs", json={"tasks": list(tasks)})).json()["ids"]


async def end_of(real, task_id):
    return await real.get(f"/v1/tasks/{task_id}?wait=20")


async def until(is_so):
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_who_depends_on_more_than_fits_its_disk_fails_and_says_so(real):
    refs = [f"large-{number}" for number in range(5)]
    async with running_agent(real):
        ids = await submit(
            real,
            *(task(ref, LARGE) for ref in refs),
            task("all", "true", *refs),
            task("one", "wc -c < $DULY_INPUTS/large-0.json", refs[0]),
        )
        failed, done = [await end_of(real, ids[ref]) for ref in ("all", "one")]
        assert (failed["status"], failed["reason"]["code"]) == ("failed", "inputs_too_large")
        assert failed["started_at"] is None
        log = (await real.call("GET", f"/v1/tasks/{done['id']}/logs")).text
        assert (done["status"], log.strip()) == ("done", "250002")


async def test_a_task_that_is_cancelled_while_its_inputs_are_fetched_never_begins(
    real, monkeypatch
):
    # The server has a loop of its own.
    asked, go_on, page = threading.Event(), threading.Event(), Inputs.read_page

    async def late(self, node_id, wanted):
        if wanted.above:
            asked.set()
            await until(go_on.is_set)
        return await page(self, node_id, wanted)

    monkeypatch.setattr(Inputs, "read_page", late)
    monkeypatch.setattr(inputs, "MAX_PAGE_RESULTS", 1)
    async with running_agent(real) as data:
        leave = "echo 1 > $DULY_RESULT"
        ids = await submit(real, task("a", leave), task("b", "true", "a"))
        await until(asked.is_set)
        assert len(list(data.rglob("*/a.json"))) == 1
        # Others are not kept waiting.
        assert (await end_of(real, (await real.submit())["id"]))["status"] == "done"
        await real.call("POST", f"/v1/tasks/{ids['b']}/cancel")
        ended = await end_of(real, ids["b"])
        assert (ended["status"], ended["started_at"]) == ("cancelled", None)
        go_on.set()
        # What comes after is fetched after it.
        later = await submit(real, task("c", "cat $DULY_INPUTS/*", ids["a"]))
        assert (await end_of(real, later["c"]))["status"] == "done"
        await until(lambda: not list(data.rglob("*/a.json")))
