"""Explains why no node could run a task, even if it were idle."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from duly.model.node import AbsentNode, NodeProfile, Offer
from duly.model.resources import (
    Resources,
    field_amount,
    field_name,
    format_amount,
    format_bare_amount,
)
from duly.model.shape import Shape
from duly.model.task import Reason
from duly.model.wording import either
from duly.policy.explanation.absent_nodes import explain_absence

N = TypeVar("N", Offer, NodeProfile)


def no_node_fits(shape: Shape, offers: Sequence[Offer]) -> Reason:
    """Return why none of the connected nodes could run it, even if it were idle."""
    if not offers:
        return Reason("no_nodes", "No node is connected. Start one with 'duly agent'.")
    labelled = [offer for offer in offers if not shape.missing(offer.labels)]
    if not labelled:
        return missing_labels(shape, [offer.labels for offer in offers])
    return _too_large(shape.needs, labelled)


def missing_labels(shape: Shape, nodes: Sequence[Mapping[str, str]]) -> Reason:
    """Return the reason for labels that no node has, by the node that lacks the fewest.

    `nodes` are the labels of each; there is at least one node, and none has all.
    """
    missing = min((shape.missing(labels) for labels in nodes), key=len)
    labels_text = either((f"{name}={value}" for name, value in missing.items()), "and")
    noun = "label" if len(missing) == 1 else "labels"
    rest = (
        ", which it requires" if missing == shape.requires else " and all others that it requires"
    )
    return Reason(
        "no_node_has_label",
        f"No node has the {noun} {labels_text}{rest}.",
        {"missing": missing, "nodes": len(nodes)},
    )


def never_fits(
    shape: Shape, nodes: Sequence[NodeProfile], removed: Sequence[AbsentNode] = ()
) -> Reason:
    """Return why none of `nodes`, of which there is at least one, could ever fit a shape.

    If one of the nodes that were `removed` could have run it, that is the reason.
    """
    if (absence := explain_absence(shape, removed)) is not None:
        return absence
    labelled = [node for node in nodes if not shape.missing(node.labels)]
    if not labelled:
        return missing_labels(shape, [node.labels for node in nodes])
    short = _nearest(shape.needs, labelled).capacity.shortage(shape.needs)
    return Reason(
        "no_node_can_fit",
        _describe_shortage(shape.needs, short),
        {"short": {field_name(kind): field_amount(kind, amount) for kind, amount in short.items()}},
    )


def _too_large(needs: Resources, offers: Sequence[Offer]) -> Reason:
    """Return what the node nearest to fitting lacks."""
    nearest = _nearest(needs, offers)
    missing = nearest.capacity.shortage(needs)
    kind = max(missing, key=lambda name: missing[name])
    needed = dict(needs.items())[kind]
    has = needed - missing[kind]
    return Reason(
        "no_node_can_fit",
        _describe_shortage(needs, missing),
        {
            "kind": field_name(kind),
            "needed": field_amount(kind, needed),
            "largest": field_amount(kind, has),
            "node": nearest.name,
        },
    )


def _nearest(needs: Resources, nodes: Sequence[N]) -> N:
    """Return the node that comes nearest to fitting: it shows best what is missing."""

    def distance(node: N) -> tuple[int, int]:
        missing = node.capacity.shortage(needs)
        return len(missing), sum(missing.values())

    return min(nodes, key=distance)


def _describe_shortage(needs: Resources, missing: Mapping[str, int]) -> str:
    """Return a sentence about the kind of which the nearest node lacks most."""
    kind = max(missing, key=lambda name: missing[name])
    needed = dict(needs.items())[kind]
    has = needed - missing[kind]
    largest = f"the largest node has {format_bare_amount(kind, has)}" if has else "no node has any"
    return f"No node is large enough: it needs {format_amount(kind, needed)}; {largest}."
