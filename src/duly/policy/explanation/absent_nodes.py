"""Explains that the nodes which could run a task are down or were removed.

"No node has this label" sends people to check their spelling. If a node that is known could run the
task and is only absent, the reason names it and says since when.
"""

from collections.abc import Sequence
from typing import assert_never

from duly.model.node import Absence, AbsentNode
from duly.model.shape import Shape
from duly.model.task import Reason
from duly.model.wording import count_of, either
from duly.policy.explanation.timestamps import timestamp


def explain_absence(shape: Shape, absent: Sequence[AbsentNode]) -> Reason | None:
    """Return the reason by the first absent node that could run a shape; None if none could.

    Nodes that are down come before removed ones: only they can come back.
    """
    fitting = [
        node for node in absent if shape.suits(node) and not node.capacity.shortage(shape.needs)
    ]
    down = [node for node in fitting if node.absence is not Absence.REMOVED]
    named = down or fitting
    if not named:
        return None
    node = named[0]
    since = timestamp(node.since)
    message = f"Node {node.name} {_ability(shape, node)} but {_state(node.absence, since)}"
    if len(named) > 1:
        others = count_of(len(named) - 1, "other node", "other nodes")
        message += f", like {others} that could run it"
    return Reason(
        "node_down" if down else "node_removed",
        f"{message}. {'Start its agent.' if down else 'Add a node that can run the task.'}",
        {"node": node.name, "absence": node.absence.value, "since": since, "nodes": len(named)},
    )


def _ability(shape: Shape, node: AbsentNode) -> str:
    """Return what the node has, or had, that the task needs."""
    gone = node.absence is Absence.REMOVED
    if shape.requires:
        labels = either((f"{name}={value}" for name, value in shape.requires.items()), "and")
        noun = "label" if len(shape.requires) == 1 else "labels"
        return f"{'had' if gone else 'has'} the {noun} {labels}"
    return f"{'was' if gone else 'is'} large enough"


def _state(absence: Absence, since: str) -> str:
    match absence:
        case Absence.LOST:
            return f"has been down since {since}"
        case Absence.STOPPED:
            return f"has been stopped since {since}"
        case Absence.STOPPING:
            return "is being stopped"
        case Absence.REMOVED:
            return f"was removed at {since}"
        case _:
            assert_never(absence)
