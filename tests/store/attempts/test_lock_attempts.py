"""Reports of attempts, and whatever else changes their tasks meanwhile."""

import asyncio

from duly.store.attempts import leases
from duly.store.tasks import tasks
from tests.store.rows import add_live, add_node, add_task, first_id
from tests.store.tasks.test_locks import is_waiting


async def test_reports_that_waited_for_cancellations_find_the_cancelled_tasks(conn, connect):
    await add_node(conn, 1)
    first = await first_id(conn)
    ids = list(range(first, first + 20))
    for task in ids:
        await add_task(conn, task, live=False)
        await add_live(conn, task, attempt=1, node_id=1, incarnation_id=1, token=task)
    canceller, reporter = await connect(), await connect()
    cancellation = canceller.transaction()
    await cancellation.start()
    await tasks.request_cancel(canceller, 1, ids)
    async with asyncio.TaskGroup() as group:
        report = group.create_task(
            leases.lock_attempts(reporter, 1, [(task, 1, task) for task in ids])
        )
        await is_waiting(conn, reporter)
        await cancellation.commit()
    held, _ = report.result()
    assert [task for task in ids if held[task].cancel_requested_at is not None] == ids
