"""A pool of real warm processes below a real supervisor, without servers, for one test."""

import asyncio
import itertools
import json
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from duly.agent import identity
from duly.agent.executor import Sample
from duly.agent.gateway import Gateway
from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.cgroup import Layout
from duly.agent.local_attempt import LocalAttempt
from duly.agent.pool.argument_fetcher import ArgumentFetcher
from duly.agent.pool.attempt_calls import AttemptCalls
from duly.agent.pool.function_executor import FunctionExecutor
from duly.agent.pool.process_pool import PoolOptions
from duly.agent.reporting.attempt_keys import AttemptKeys
from duly.agent.supervision import supervisor_link
from duly.agent.supervision.outcome import Conclusion, Exit, conclude
from duly.clock import monotonic
from duly.model.progress import Progress
from duly.model.resources import Resources
from duly.model.task import Call, Outcome, Payload
from duly.wire import Assignment, AttemptRef, AttemptReport, Throttled
from tests.agent.node import new_data

TRUSTED = 1000.0
APP = "tests.agent.pool.sample_app:app"


class Lab:
    """Runs calls, and remembers how they ended. It is the listener of its executor."""

    def __init__(self, executor: FunctionExecutor) -> None:
        self.executor = executor
        self.pool = executor.pool
        self.said: list[Progress | Throttled] = []
        self.outputs: asyncio.Queue[tuple[AttemptRef, int]] = asyncio.Queue()
        self.samples: list[Sample] = []
        self.heartbeats = 0
        self._tasks = itertools.count(1)
        self._ends: dict[AttemptRef, asyncio.Future[Exit]] = {}

    def start(
        self,
        function: str,
        *args: Any,
        cap: float = 60.0,
        grace: float = 0.3,
        log_limit: int = 2**20,
        result_limit: int = 1024,
        module: str = "tests.agent.pool.sample_app",
        **kwargs: Any,
    ) -> AttemptRef:
        """Start a call."""
        task = next(self._tasks)
        ref = AttemptRef(task, 1, 7_000_000 + task)
        arguments = json.dumps({"args": args, "kwargs": kwargs})
        name = function if ":" in function else f"{module}:{function}"
        assignment = Assignment(
            ref=ref,
            payload=Payload(call=Call(function=name, arguments=arguments)),
            resources=Resources(extra={"slots": 1}),
            execution_cap=cap,
            grace=grace,
            idempotency_key=f"key-{task}",
            log_limit=log_limit,
            result_limit=result_limit,
            tenant=1,
        )
        self._ends[ref] = asyncio.get_running_loop().create_future()
        failed = self.executor.start(ref, assignment)
        if failed is not None:
            self._ends[ref].set_result(failed)
        return ref

    async def end(
        self, ref: AttemptRef, intent: Outcome | None = None
    ) -> tuple[Exit, AttemptReport]:
        """Wait until a call has ended, and return what would be reported."""
        async with asyncio.timeout(20):
            end = await self._ends[ref]
        return end, self.executor.report(ref, conclude(end, intent))

    async def run(self, function: str, *args: Any, **options: Any) -> AttemptReport:
        """Run a call to its end."""
        _, report = await self.end(self.start(function, *args, **options))
        return report

    async def value(self, function: str, *args: Any, **options: Any) -> Any:
        """Run a call that succeeds, and return its result."""
        report = await self.run(function, *args, **options)
        assert report.outcome is Outcome.SUCCEEDED, report.reason
        return msgspec.json.decode(report.result or b"")

    async def cancel(self, ref: AttemptRef) -> AttemptReport:
        """Cancel a call, and wait for its end."""
        self.executor.terminate(ref)
        _, report = await self.end(ref, Outcome.CANCELLED)
        return report

    def exited(self, ref: AttemptRef, end: Exit) -> None:
        """Remember an end."""
        self._ends[ref].set_result(end)

    def fetched(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        """Be told of nothing: no call has anything to fetch."""

    def written(self, attempt: LocalAttempt, size: int) -> None:
        """Remember the size of an output."""
        attempt.log_size = size
        self.outputs.put_nowait((attempt.ref, size))

    def measured(self, samples: Any) -> None:
        """Remember measurements."""
        self.samples += samples

    def reported(self, attempt: LocalAttempt, report: Progress | Throttled) -> None:
        """Remember what a call said."""
        self.said.append(report)

    def heartbeat_soon(self) -> None:
        """Answer a heartbeat at once."""
        self.heartbeats += 1
        self.executor.offer()
        asyncio.get_running_loop().call_soon(self.executor.renewed)


@asynccontextmanager
async def running(*, cgroups: bool = False, **options: Any):
    """Run a pool until the end of the block."""
    data = new_data()
    layout = Layout()
    if cgroups:
        layout = cgroup_hierarchies.find(identity.instance_name(data), limit_processes=True)
    work, spool = data / "pool", data / "spool"
    work.mkdir(mode=0o700)
    spool.mkdir(mode=0o700)
    chosen = PoolOptions(**{"app": APP, "processes": 1, **options})
    async with Gateway(["http://127.0.0.1:1"]) as gateway:
        calls = AttemptCalls(gateway, AttemptKeys(gateway))
        executor = FunctionExecutor(chosen, work, spool, ArgumentFetcher(gateway), calls)
        lab = Lab(executor)
        executor.connect(lab)
        executor.link = await supervisor_link.start(
            data, layout, own_uids=False, on_event=executor.pool.on_supervisor_event
        )
        executor.trust(monotonic() + TRUSTED)
        try:
            await executor.pool.open()
            async with asyncio.TaskGroup() as group:
                loops = [group.create_task(loop()) for loop in executor.loops()]
                yield lab
                for loop in loops:
                    loop.cancel()
        finally:
            executor.pool.close()
            await executor.link.close()
            shutil.rmtree(data)


def root_folder() -> Path:
    """Return the folder from which the sample application can be imported."""
    return Path(sys.modules[__name__].__file__ or "").parents[3]
