"""In which order an agent sends what attempts have written."""

import asyncio

from duly import wire
from duly.agent.gateway import Gateway
from duly.agent.local_attempt import LocalAttempt
from duly.agent.reporting.logs import MAX_CHUNK_BYTES, LogSender
from duly.wire import AttemptRef, LogChunk

ONE, TWO = 1, 2


def chatty(folder, number, tenant):
    spool = folder / str(number)
    spool.write_bytes(bytes(3 * MAX_CHUNK_BYTES))
    ref = AttemptRef(number, 1, number)
    return LocalAttempt(
        ref, number, str(spool), 60.0, 0, tenant=tenant,
        log_size=3 * MAX_CHUNK_BYTES, log=None,
    )  # fmt: skip


async def test_chatty_attempts_of_a_tenant_do_not_hold_up_the_report_of_another(server, tmp_path):
    many = [chatty(tmp_path, number, ONE) for number in range(1, 11)]
    ended = chatty(tmp_path, 20, TWO)
    ended.ended_at = 1.0
    is_sent = asyncio.Event()
    for _ in range(40):
        server.prepare(204)
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        logs = LogSender(line)
        for local in many:
            logs.written(local, local.log_size)
        logs.finish(ended, is_sent.set)
        loop = group.create_task(logs.run(1))
        async with asyncio.timeout(20):
            await is_sent.wait()
        loop.cancel()
    tasks = [wire.decode(body, LogChunk).ref.task for _, _, body in server.seen]
    assert tasks.count(20) == 3
    assert len(tasks) <= 7
    assert tasks[:6] == [1, 20, 2, 20, 3, 20]
