"""Answers of the API for tests of what is made of them."""

from typing import Any

from duly.client.shapes.task_shapes import Task


def task(**changes: Any) -> Task:
    """Return a task that is done, but for `changes`."""
    whole: dict[str, Any] = {
        "id": "7251039274172416",
        "name": None,
        "status": "done",
        "tenant": "default",
        "user": None,
        "queue": "delayable",
        "scheduling_type": "once",
        "submitted_at": "2027-01-31T06:30:00Z",
        "ready_at": "2027-01-31T06:30:00Z",
        "start_by": "2027-01-31T06:35:00Z",
        "must_start_by": None,
        "started_at": "2027-01-31T06:30:02Z",
        "finished_at": "2027-01-31T06:31:32Z",
        "attempt": 1,
        "failures": 0,
        "losses": 0,
        "max_attempts": 3,
        "retry": None,
        "on_lost": "retry",
        "on_overdue": "wait",
        "overdue": False,
        "tier": "basic",
        "resources": {"cpu": 0.5, "memory_mb": 256, "disk_mb": 512, "extra": {}},
        "execution_cap": 600.0,
        "expected_run_time": None,
        "delay_tolerance": 300.0,
        "run_at": None,
        "priority": 0,
        "node": "here",
        "exit_code": 0,
        "outcome": "succeeded",
        "reason": None,
        "quote": None,
        "depends_on": [],
        "ref": None,
        "graph": None,
        "schedule": None,
        "fire_at": None,
        "labels": {},
        "requires": {},
        "idempotency_key": None,
        "replay_of": None,
        "admitted_by": "server-1",
        "usage": {"cpu_seconds": 1.0, "peak_memory_mb": 12.4, "wall_seconds": 90.0},
        "command": ["sh", "-c", "echo hi"],
        "script_path": None,
        "call": None,
        "source": None,
        "env": {},
    }
    return {**whole, **changes}  # type: ignore[typeddict-item]


def reason(code: str, message: str, **details: Any) -> dict[str, Any]:
    """Return a reason."""
    return {"code": code, "message": message, "details": details}
