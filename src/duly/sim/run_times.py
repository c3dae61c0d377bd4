"""What servers learn about run times: by tenant and class, which stands for the name of tasks."""

from duly.model.run_time import RunTime
from duly.policy import run_time
from duly.sim.task import SimTask


class RunTimes:
    """The run times of the attempts that have ended so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], RunTime] = {}

    def observe(self, task: SimTask, seconds: float) -> None:
        """Learn from an attempt that did its work, or was stopped at its cap."""
        key = task.tenant_id, task.class_id
        self._known[key] = run_time.observe(self._known.get(key), seconds)

    def tell(self, task: SimTask) -> None:
        """Give a task that arrives the estimate that a server would give it."""
        task.expected_run_time = task.run_time_bound = task.execution_cap
        if (known := self._known.get((task.tenant_id, task.class_id))) is not None:
            estimate = run_time.estimate(known)
            task.expected_run_time = estimate.expected or task.execution_cap
            if estimate.bound is not None and estimate.bound < task.execution_cap:
                task.run_time_bound = estimate.bound
