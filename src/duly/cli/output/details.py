"""Formats tasks, nodes and the status as pairs of name and value for people."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from duly.cli.exit_codes import format_memory, lost_clause, signal_of
from duly.cli.output.text import (
    format_age,
    format_moment,
    format_span,
    format_time,
    localise_times,
)
from duly.client.shapes.fleet_shapes import Audit, Drift, Node, Peak, Status
from duly.client.shapes.task_shapes import Dependency, RetryTerms, Task
from duly.duration import format_duration
from duly.model.call_text import format_call
from duly.model.numerals import format_number
from duly.model.wording import count_of, cpu_noun

Pairs = Iterator[tuple[str, str]]
NOT_STARTED = frozenset({"scheduled", "blocked", "waiting", "paused"})


def task_details(task: Task, now: datetime, *, show_env: bool = False) -> Pairs:
    """Yield the fields of a task; empty ones are left out.

    Without `show_env`, only the names of environment variables: the values may be secrets.
    """
    for name, value in _task_pairs(task, now):
        if value:
            yield name, value
    if env := task.get("env"):
        pairs = "\n".join(f"{name}={value}" for name, value in env.items())
        yield "env", pairs if show_env else f"{', '.join(env)} (values: --show-env)"


def _task_pairs(task: Task, now: datetime) -> Pairs:
    yield "id", task["id"]
    yield "name", task["name"] or ""
    yield "status", task["status"]
    yield "why", localise_times(reason_message(task), now)
    yield "progress", _progress(task, now)
    yield "command", _command(task)
    yield "script", _script(task)
    yield "bundle", str(task.get("artifact") or "")
    yield "exit code", _exit_code(task)
    yield "attempts", _attempts(task)
    yield "retry", _retry(task.get("retry"))
    yield "on lost", "fails" if task.get("on_lost") == "fail" else ""
    yield "node", task["node"] or ""
    for name in ("submitted_at", "ready_at", "start_by", "started_at", "finished_at"):
        if name == "start_by" and task["finished_at"]:
            continue  # It no longer has to start.
        yield name.removesuffix("_at").replace("_", " "), format_time(_text(task, name), now)
    if task["started_at"]:
        yield "ran", format_span(task["started_at"], task["finished_at"] or now.isoformat())
    if usage := task["usage"]:
        used = f"{usage['cpu_seconds']:.1f} s of CPU time"
        if (peak := usage["peak_memory_mb"]) is not None:
            used += f", peak memory {format_memory(peak)}"
        yield "used", used
    yield "tier", task["tier"] or ""
    yield "resources", format_resources(task["resources"])
    yield "category", task.get("category") or ""
    yield "queue", task.get("queue") or ""
    yield "priority", str(task.get("priority") or "")
    yield "delay tolerance", _delay_tolerance(task)
    if (expected := task.get("expected_run_time")) is not None:
        yield "expected run time", format_duration(timedelta(seconds=expected))
    yield "execution cap", format_duration(timedelta(seconds=task["execution_cap"]))
    yield "labels", "\n".join(f"{name}={value}" for name, value in task["labels"].items())
    yield "requires", "\n".join(f"{name}={value}" for name, value in task["requires"].items())
    if concurrency := task.get("concurrency"):
        yield "concurrency", f"{concurrency['limit']} at once with the key {concurrency['key']}"
    if unique := task.get("unique"):
        yield "unique key", f"{unique['key']}, while {unique['while']}"
    yield "uses", ", ".join(task.get("uses") or ())
    yield "depends on", ", ".join(map(_dependency, task.get("depends_on") or ()))
    yield "graph", task.get("graph") or ""
    yield "ref", task.get("ref") or ""
    yield "idempotency key", task.get("idempotency_key") or ""
    yield "schedule", task["schedule"] or ""
    yield "fire time", format_time(task["fire_at"], now)
    yield "replay of", task["replay_of"] or ""
    yield "tenant", task["tenant"]
    yield "user", task["user"] or ""
    yield "admitted by", task["admitted_by"] or ""
    yield "parent", task.get("parent") or ""
    yield "stages", "\n".join(task.get("stages") or ())


def node_details(node: Node, now: datetime) -> Pairs:
    """Yield the fields of a node."""
    yield "id", str(node["id"])
    yield "name", node["name"]
    yield "status", node["status"]
    if owner := node.get("tenant"):
        yield "tenant", f"{owner}; it is a worker, which runs that tenant's functions alone"
        yield "functions", "\n".join(node["functions"] or ()) or "none"
    yield "tasks", str(node["tasks"])
    yield "capacity", format_resources(node["capacity"])
    if reported := node.get("reported_capacity"):
        yield (
            "overrides",
            f"{format_resources(reported)}, as its agent reports; "
            f"'duly node update {node['name']} --own' removes the override",
        )
    yield "free", format_resources(node["free"], node["capacity"])
    if labels := node["labels"]:
        yield "labels", "\n".join(f"{name}={value}" for name, value in labels.items())
    if enforcement := node.get("enforcement"):
        yield "limits", "\n".join(f"{kind}: {how}" for kind, how in enforcement.items())
    if shortage := node.get("shortage"):
        yield "short of", f"{shortage}; it takes no new tasks until it has more"
    yield "last heartbeat", format_time(node["last_heartbeat_at"], now) or "never"


def status_details(status: Status, url: str) -> Pairs:
    """Yield the overview of the installation, as far as the caller may see it."""
    hours = status.get("window_hours", 24)
    version = f", version {status['version']}" if status["version"] else ""
    yield "server", f"{status['server']} at {url}{version}"
    if database := status["database"]:
        yield "leader", status["leader"] or "none at the moment"
        yield "database", f"PostgreSQL {database.get('version', '')}".strip()
    yield "tenant", status["tenant"] or "all tenants"
    yield "now", _counts(status["tasks"], ("running", "waiting", "scheduled", "blocked", "paused"))
    if overdue := status.get("overdue"):
        tasks = "1 task is" if overdue == 1 else f"{overdue} tasks are"
        yield "overdue", f"{tasks} overdue; list them with 'duly list --overdue'"
    yield f"last {hours} hours", _counts(status["tasks"], ("done", "failed", "cancelled"))
    if nodes := status["nodes"]:
        yield "nodes", _counts(nodes, ("ready", "draining", "drained", "stopped", "lost"))
    if (capacity := status["capacity"]) and (free := status["free"]):
        yield "capacity", format_resources(capacity)
        yield "free", format_resources(free, capacity)
    yield "peak", _peak(status.get("peak"), datetime.fromisoformat(status["time"]))
    if audit := status.get("audit"):
        yield "audit", _audit(audit, datetime.fromisoformat(status["time"]))
        if audit["drift"]:
            yield "drift", "\n".join(_drift(drift) for drift in audit["drift"])


def _peak(peak: Peak | None, now: datetime) -> str:
    """Say whether it is peak time: "since 14:02:11 (3 min ago): cpu; 12 tasks wait for its end"."""
    if peak is None:
        return "no"
    kinds, tasks = ", ".join(peak["kinds"]), peak["postponed"]
    wait = f"{count_of(tasks, 'task')} {'waits' if tasks == 1 else 'wait'} for its end"
    return f"since {format_moment(peak['since'], now)}: {kinds}; {wait}"


def _audit(audit: Audit, now: datetime) -> str:
    """Summarize the last self-audit: the number of inconsistencies, its age and the repairs."""
    if audit["completed_at"] is None:
        return "not yet"
    found = sum(drift["count"] for drift in audit["drift"])
    noun = "inconsistency" if found == 1 else "inconsistencies"
    clean = f"{found} {noun}" if found else "clean"
    repaired = f", {audit['repaired']} repaired in total" if audit["repaired"] else ""
    age = format_age(audit["completed_at"], now).replace("now", "just now")
    return f"{clean}, {age}{repaired}"


def _drift(drift: Drift) -> str:
    """Format inconsistencies of one kind: "2 orphaned: It runs on … (7251039274172416, …)"."""
    examples = ", ".join(drift["examples"])
    more = ", …" if drift["count"] > len(drift["examples"]) else ""
    ids = f" ({examples}{more})" if examples else ""
    return f"{drift['count']} {drift['kind']}: {drift['message']}{ids}"


def reason_message(item: Mapping[str, Any]) -> str:
    """Return the message of an item's reason; empty if it has none."""
    reason = item.get("reason")
    return str(reason.get("message", "")) if isinstance(reason, dict) else ""


def short_reason(task: Task) -> str:
    """Return the reason for a list: in a word while a task has not started, then as a sentence."""
    reason = task["reason"]
    if reason is not None and task["status"] in NOT_STARTED:
        return reason["code"]
    return reason_message(task)


def format_resources(
    resources: Mapping[str, Any], capacity: Mapping[str, Any] | None = None
) -> str:
    """Format resources: "1.5 CPUs, 512 MiB memory, 2 gpu".

    With `capacity`, kinds that it has are shown even when nothing is left: "0 CPUs".
    """
    kinds = capacity or resources
    units = {
        "cpu": cpu_noun(resources.get("cpu", 0)),
        "memory_mb": "MiB memory",
        "disk_mb": "MiB disk",
        "iops": "IOPS",
        "bandwidth_mbps": "Mbit/s",
        "ports": "port" if resources.get("ports") == 1 else "ports",
    }
    parts = [
        f"{format_number(resources.get(kind, 0))} {unit}"
        for kind, unit in units.items()
        if kinds.get(kind)
    ]
    parts += [f"{amount} {kind}" for kind, amount in (resources.get("extra") or {}).items()]
    return ", ".join(parts) or "none"


def _counts(counts: Mapping[str, object], names: tuple[str, ...]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in names if name in counts)


def _text(task: Mapping[str, Any], name: str) -> str | None:
    return task.get(name)


def _delay_tolerance(task: Task) -> str:
    tolerance = format_duration(timedelta(seconds=task["delay_tolerance"]))
    if task.get("overdue"):
        tolerance += ", exceeded"
    return tolerance + ("; then cancelled" if task.get("on_overdue") == "cancel" else "")


def _command(task: Mapping[str, Any]) -> str:
    """Return the command as typed in a shell, the path of the script, or the call."""
    if task.get("call"):
        return format_call(task["call"])
    command = task.get("command")
    if isinstance(command, list):
        return shlex.join(map(str, command))
    return str(task.get("script_path") or "")


def _script(task: Mapping[str, Any]) -> str:
    """Describe a script that was sent along: its first line and its length."""
    source = task.get("source")
    if not source:
        return ""
    lines = str(source).splitlines()
    return f"{lines[0]} ({count_of(len(lines), 'line')})"


def _dependency(upstream: str | Dependency) -> str:
    if isinstance(upstream, str):
        return upstream
    on = upstream["on"]
    return upstream["task"] if on == "success" else f"{upstream['task']} ({on})"


def _exit_code(task: Task) -> str:
    if task["exit_code"] is None:
        return ""
    signal = signal_of(task)
    return str(task["exit_code"]) if signal is None else f"signal {signal}"


def _progress(task: Task, now: datetime) -> str:
    """Format the progress that a running task reported."""
    progress = task.get("progress")
    if progress is None:
        return ""
    text = f": {progress['text']}" if progress["text"] else ""
    return f"{progress['fraction']:.0%}{text} ({format_age(progress['at'], now)})"


def _attempts(task: Task) -> str:
    if not task["attempt"]:
        return f"none of {task['max_attempts']} yet"
    failed = f"{task['failures']} of {task['max_attempts']} failed"
    return f"{task['attempt']}; {failed}{lost_clause(task)}"


def _retry(retry: RetryTerms | None) -> str:
    """Return what a task asked of its retries; empty if it follows the server's settings."""
    if retry is None:
        return ""
    parts = []
    if retry["delay"] is not None:
        parts.append(f"after {format_duration(timedelta(seconds=retry['delay']))}, doubling")
    if retry["max_delay"] is not None:
        parts.append(f"after at most {format_duration(timedelta(seconds=retry['max_delay']))}")
    if codes := retry["no_retry_exit_codes"]:
        parts.append(f"not after exit code {', '.join(map(str, codes))}")
    return "; ".join(parts)
