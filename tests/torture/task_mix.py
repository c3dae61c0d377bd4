"""The mix of tasks that the clients of a run submit, drawn at random.

Most end at once, so that there are many; some run for long, so that every fault affects running
tasks; the rest fail in every way that a task can.
"""

from collections.abc import Callable, Sequence
from random import Random

from duly.client.shapes.task_shapes import DependencyFields, ResourceFields, TaskFields

Draw = Callable[[Random, float], TaskFields]
"""Draws a task that takes at most the given seconds."""

DISK_MB = 100
"""Megabytes; also the limit for the size of the shared ledger."""
SMALL_RESOURCES: tuple[ResourceFields, ...] = (
    {"cpu": 0.1, "memory_mb": 16, "disk_mb": DISK_MB},
    {"cpu": 0.25, "memory_mb": 32, "disk_mb": DISK_MB},
    {"cpu": 0.5, "memory_mb": 64, "disk_mb": DISK_MB},
    {"cpu": 1, "memory_mb": 64, "disk_mb": DISK_MB},
)
LARGE_RESOURCES: ResourceFields = {"cpu": 2, "memory_mb": 256, "disk_mb": DISK_MB}
FAIL_UNTIL_ATTEMPT = "[ $DULY_ATTEMPT -gt {} ] || exit 3"


def quick(rng: Random, max_seconds: float) -> TaskFields:
    """A task that ends at once, the most frequent kind."""
    return {"source": ":", "resources": rng.choice(SMALL_RESOURCES)}


def short(rng: Random, max_seconds: float) -> TaskFields:
    """A task that takes a fraction of a second."""
    return {"source": f"sleep {rng.uniform(0.1, 1):.2f}", "resources": rng.choice(SMALL_RESOURCES)}


def long(rng: Random, max_seconds: float) -> TaskFields:
    """A task that runs long enough to be affected by faults and retried."""
    seconds = rng.uniform(1, max_seconds)
    work = f"beats {seconds * 5:.0f}" if rng.random() < 0.1 else f"sleep {seconds:.1f}"
    return {"source": work, "resources": rng.choice(SMALL_RESOURCES[:2])}


def large(rng: Random, max_seconds: float) -> TaskFields:
    """A task that takes half of a node, so that capacity is sometimes scarce."""
    return {"source": f"sleep {rng.uniform(0.1, 2):.2f}", "resources": LARGE_RESOURCES}


def flaky(rng: Random, max_seconds: float) -> TaskFields:
    """A task that fails at its first attempts, and then succeeds."""
    return {
        "source": FAIL_UNTIL_ATTEMPT.format(rng.randint(1, 2)),
        "resources": rng.choice(SMALL_RESOURCES),
        "max_attempts": 5,
    }


def hopeless(rng: Random, max_seconds: float) -> TaskFields:
    """A task that always fails, and becomes a dead letter."""
    return {
        "source": "exit 4",
        "resources": rng.choice(SMALL_RESOURCES),
        "max_attempts": rng.randint(1, 2),
    }


def endless(rng: Random, max_seconds: float) -> TaskFields:
    """A task that runs until its cap; some ignore SIGTERM."""
    ignores_sigterm = rng.random() < 0.3
    return {
        "source": ("trap '' TERM; " if ignores_sigterm else "") + "sleep 3600",
        "resources": rng.choice(SMALL_RESOURCES[:2]),
        "execution_cap": rng.randint(1, 3),
        "max_attempts": 1,
    }


def begun_once(rng: Random, max_seconds: float) -> TaskFields:
    """A task that fails if its node is lost."""
    return {
        "source": f"sleep {rng.uniform(0.1, 5):.1f}",
        "resources": rng.choice(SMALL_RESOURCES[:2]),
        "on_lost": "fail",
    }


MIX: dict[Draw, int] = {
    quick: 64,
    short: 18,
    long: 6,
    large: 3,
    flaky: 4,
    hopeless: 2,
    endless: 1,
    begun_once: 2,
}


UPSTREAM_SHARE = 0.2
"""The share of tasks with upstreams."""
CONDITIONS = {"success": 7, "always": 2, "failure": 1}


def upstreams(
    rng: Random, candidates: Sequence[str], share: float = UPSTREAM_SHARE
) -> list[DependencyFields]:
    """Draw the upstreams of a task: none, or up to three of `candidates`, by id or ref."""
    if not candidates or rng.random() > share:
        return []
    chosen = rng.sample(candidates, min(rng.randint(1, 3), len(candidates)))
    conditions = list(CONDITIONS)
    weights = list(CONDITIONS.values())
    return [{"task": upstream, "on": rng.choices(conditions, weights)[0]} for upstream in chosen]


def draw(rng: Random, max_seconds: float) -> TaskFields:
    """Draw a task; its `source` is only the work between the first and last ledger entry."""
    chosen = rng.choices(list(MIX), weights=list(MIX.values()))[0]
    return {"name": chosen.__name__, **chosen(rng, max_seconds)}
