"""The mix of tasks that the clients of a run submit, drawn at random.

Most are over at once, so that there are many; some run for long, so that every fault finds
tasks at work; the rest go wrong in every way that a task can.
"""

from collections.abc import Callable, Sequence
from random import Random

from duly.client.shapes.task_shapes import DependencyFields, ResourceFields, TaskFields

Draw = Callable[[Random, float], TaskFields]
"""Draws a task that takes no longer than so many seconds."""

DISK = 100
"""Megabytes: no file that a task writes may be larger, and the ledger is one for all."""
SIZES: tuple[ResourceFields, ...] = (
    {"cpu": 0.1, "memory_mb": 16, "disk_mb": DISK},
    {"cpu": 0.25, "memory_mb": 32, "disk_mb": DISK},
    {"cpu": 0.5, "memory_mb": 64, "disk_mb": DISK},
    {"cpu": 1, "memory_mb": 64, "disk_mb": DISK},
)
LARGE: ResourceFields = {"cpu": 2, "memory_mb": 256, "disk_mb": DISK}
FAILS_BEFORE = "[ $DULY_ATTEMPT -gt {} ] || exit 3"


def quick(dice: Random, longest: float) -> TaskFields:
    """Over at once: there are most of these."""
    return {"source": ":", "resources": dice.choice(SIZES)}


def short(dice: Random, longest: float) -> TaskFields:
    """A good part of a second."""
    return {"source": f"sleep {dice.uniform(0.1, 1):.2f}", "resources": dice.choice(SIZES)}


def long(dice: Random, longest: float) -> TaskFields:
    """Long enough that a kill or a partition finds it at work, and its rerun can be seen."""
    seconds = dice.uniform(1, longest)
    work = f"beats {seconds * 5:.0f}" if dice.random() < 0.1 else f"sleep {seconds:.1f}"
    return {"source": work, "resources": dice.choice(SIZES[:2])}


def large(dice: Random, longest: float) -> TaskFields:
    """Takes half of a node, so that room is scarce now and then."""
    return {"source": f"sleep {dice.uniform(0.1, 2):.2f}", "resources": LARGE}


def flaky(dice: Random, longest: float) -> TaskFields:
    """Fails at first and succeeds in the end, if losses do not delay it."""
    return {
        "source": FAILS_BEFORE.format(dice.randint(1, 2)),
        "resources": dice.choice(SIZES),
        "max_attempts": 5,
    }


def hopeless(dice: Random, longest: float) -> TaskFields:
    """Fails every time, and so becomes a dead letter."""
    return {
        "source": "exit 4",
        "resources": dice.choice(SIZES),
        "max_attempts": dice.randint(1, 2),
    }


def endless(dice: Random, longest: float) -> TaskFields:
    """Would run for an hour, but its cap ends it; some do not heed the first signal."""
    deaf = dice.random() < 0.3
    return {
        "source": ("trap '' TERM; " if deaf else "") + "sleep 3600",
        "resources": dice.choice(SIZES[:2]),
        "execution_cap": dice.randint(1, 3),
        "max_attempts": 1,
    }


def begun_once(dice: Random, longest: float) -> TaskFields:
    """Must not be begun twice: losing its node ends it."""
    return {
        "source": f"sleep {dice.uniform(0.1, 5):.1f}",
        "resources": dice.choice(SIZES[:2]),
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


WAITING = 0.2
"""The share of tasks that wait for others."""
CONDITIONS = {"success": 7, "always": 2, "failure": 1}


def upstreams(dice: Random, among: Sequence[str], share: float = WAITING) -> list[DependencyFields]:
    """Draw what a task waits for: nothing, or up to three of `among`, by id or ref."""
    if not among or dice.random() > share:
        return []
    chosen = dice.sample(among, min(dice.randint(1, 3), len(among)))
    conditions = list(CONDITIONS)
    weights = list(CONDITIONS.values())
    return [{"task": one, "on": dice.choices(conditions, weights)[0]} for one in chosen]


def draw(dice: Random, longest: float) -> TaskFields:
    """Draw one task; its `source` is only what is to be done between two lines of the ledger."""
    chosen = dice.choices(list(MIX), weights=list(MIX.values()))[0]
    return {"name": chosen.__name__, **chosen(dice, longest)}
