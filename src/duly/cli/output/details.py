"""A task, a node and the whole of Duly as names and values for a person to read."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from duly.cli.exits import signal_of
from duly.cli.text import say_age, say_span, say_time
from duly.client.shapes import Audit, Drift, Node, Status, Task
from duly.duration import format_duration
from duly.model.numerals import plain

Pairs = Iterator[tuple[str, str]]


def task_details(task: Task, now: datetime) -> Pairs:
    """Yield what is known of a task; what means nothing yet is left out."""
    for name, value in _task_pairs(task, now):
        if value:
            yield name, value


def _task_pairs(task: Task, now: datetime) -> Pairs:
    yield "id", task["id"]
    yield "name", task["name"] or ""
    yield "status", task["status"]
    yield "why", say_reason(task)
    yield "progress", _progress(task, now)
    yield "command", _command(task)
    yield "bundle", str(task.get("artifact") or "")
    yield "exit code", _exit_code(task)
    yield "attempts", _attempts(task)
    yield "node", task["node"] or ""
    for name in ("submitted_at", "ready_at", "start_by", "started_at", "finished_at"):
        yield name.removesuffix("_at").replace("_", " "), say_time(_text(task, name), now)
    if task["started_at"]:
        yield "ran", say_span(task["started_at"], task["finished_at"] or now.isoformat())
    if usage := task["usage"]:
        yield (
            "used",
            f"{usage['cpu_seconds']:.1f}s of cpu, {usage['peak_memory_mb']:.0f} MiB at most",
        )
    yield "tier", task["tier"] or ""
    yield "resources", say_resources(task["resources"])
    yield "category", task.get("category") or ""
    yield "queue", task.get("queue") or ""
    yield "delay tolerance", format_duration(timedelta(seconds=task["delay_tolerance"]))
    yield "execution cap", format_duration(timedelta(seconds=task["execution_cap"]))
    yield "labels", "\n".join(f"{name}={value}" for name, value in task["labels"].items())
    yield "requires", "\n".join(f"{name}={value}" for name, value in task["requires"].items())
    if asked := task.get("concurrency"):
        yield "concurrency", f"{asked['limit']} at once with the key {asked['key']}"
    yield "schedule", task["schedule"] or ""
    yield "fire time", say_time(task["fire_at"], now)
    yield "replay of", task["replay_of"] or ""
    yield "tenant", task["tenant"]
    yield "user", task["user"] or ""
    yield "admitted by", task["admitted_by"] or ""


def node_details(node: Node, now: datetime) -> Pairs:
    """Yield what is known of a node."""
    yield "id", str(node["id"])
    yield "name", node["name"]
    yield "status", node["status"]
    yield "tasks", str(node["tasks"])
    yield "capacity", say_resources(node["capacity"])
    yield "free", say_resources(node["free"], node["capacity"])
    if labels := node["labels"]:
        yield "labels", "\n".join(f"{name}={value}" for name, value in labels.items())
    if enforcement := node.get("enforcement"):
        yield "limits", "\n".join(f"{kind}: {how}" for kind, how in enforcement.items())
    if shortage := node.get("shortage"):
        yield "short of", f"{shortage}; it is given no work for now"
    yield "last heartbeat", say_time(node["last_heartbeat_at"], now) or "never"


def status_details(status: Status, url: str) -> Pairs:
    """Yield the whole at a glance."""
    hours = status.get("window_hours", 24)
    yield "server", f"{url}, version {status['version']}"
    yield "leader", status["leader"] or "none at the moment"
    yield "database", f"PostgreSQL {status['database'].get('version', '')}".strip()
    yield "now", _counts(status["tasks"], ("running", "waiting", "scheduled", "blocked", "paused"))
    yield f"last {hours} hours", _counts(status["tasks"], ("done", "failed", "cancelled"))
    yield "nodes", _counts(status["nodes"], ("ready", "draining", "drained", "lost"))
    yield "capacity", say_resources(status["capacity"])
    yield "free", say_resources(status["free"], status["capacity"])
    if audit := status.get("audit"):
        yield "audit", _audit(audit, datetime.fromisoformat(status["time"]))
        if audit["drift"]:
            yield "drift", "\n".join(_drift(one) for one in audit["drift"])


def _audit(audit: Audit, now: datetime) -> str:
    """Say whether all is as it should be, and when that was last found out."""
    if audit["completed_at"] is None:
        return "not yet"
    found = sum(one["count"] for one in audit["drift"])
    many = "thing is not as it" if found == 1 else "things are not as they"
    clean = f"{found} {many} should be" if found else "clean"
    repaired = f", {audit['repaired']} repaired in all" if audit["repaired"] else ""
    age = say_age(audit["completed_at"], now).replace("now", "just now")
    return f"{clean}, {age}{repaired}"


def _drift(drift: Drift) -> str:
    """Say one kind of drift: "2 orphaned: It runs on … (7251039274172416, …)"."""
    examples = ", ".join(drift["examples"])
    more = ", …" if drift["count"] > len(drift["examples"]) else ""
    ids = f" ({examples}{more})" if examples else ""
    return f"{drift['count']} {drift['kind']}: {drift['message']}{ids}"


def say_reason(item: Mapping[str, Any]) -> str:
    """Return the sentence of a reason, if there is one."""
    reason = item.get("reason")
    return str(reason.get("message", "")) if isinstance(reason, dict) else ""


def say_resources(resources: Mapping[str, Any], capacity: Mapping[str, Any] | None = None) -> str:
    """Say an amount of resources: "1.5 cpu, 512 MiB memory, 2 gpu".

    Of a `capacity` also that nothing is left is said: "0 cpu".
    """
    kinds = capacity or resources
    units = {
        "cpu": "cpu",
        "memory_mb": "MiB memory",
        "disk_mb": "MiB disk",
        "iops": "iops",
        "bandwidth_mbps": "Mbit/s",
        "ports": "ports",
    }
    parts = [
        f"{plain(resources.get(kind, 0))} {unit}" for kind, unit in units.items() if kinds.get(kind)
    ]
    parts += [f"{amount} {kind}" for kind, amount in (resources.get("extra") or {}).items()]
    return ", ".join(parts) or "none"


def _counts(counts: Mapping[str, object], names: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in names if name in counts)


def _text(task: Mapping[str, Any], name: str) -> str | None:
    return task.get(name)


def _command(task: Mapping[str, Any]) -> str:
    """Return it the way it is typed, where the server tells it."""
    command = task.get("command")
    if isinstance(command, list):
        return shlex.join(map(str, command))
    return str(task.get("script_path") or "")


def _exit_code(task: Task) -> str:
    if task["exit_code"] is None:
        return ""
    signal = signal_of(task)
    return str(task["exit_code"]) if signal is None else f"signal {signal}"


def _progress(task: Task, now: datetime) -> str:
    """Say how far a task that runs has come by its own account."""
    told = task.get("progress")
    if told is None:
        return ""
    text = f": {told['text']}" if told["text"] else ""
    return f"{told['fraction']:.0%}{text} ({say_age(told['at'], now)})"


def _attempts(task: Task) -> str:
    if not task["attempt"]:
        return f"none of {task['max_attempts']} yet"
    lost = f", {task['losses']} lost with their node" if task["losses"] else ""
    return f"{task['attempt']} ({task['failures']} of {task['max_attempts']} failed{lost})"
