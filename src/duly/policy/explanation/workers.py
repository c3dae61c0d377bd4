"""Explains why a call of a function waits: no worker knows it, or those that do are busy."""

from collections.abc import Sequence

from duly.model.node import Offer
from duly.model.resources import SLOTS
from duly.model.shape import FunctionRef
from duly.model.task import Reason
from duly.model.wording import count_of

START_ONE = "Start one: duly worker MODULE:APP."


def no_worker(function: FunctionRef, offers: Sequence[Offer]) -> Reason:
    """Return the reason of a call that no connected worker of its tenant could run."""
    workers = [offer for offer in offers if _belongs_to(offer, function.tenant_id)]
    knowing = [offer for offer in workers if _knows(offer, function)]
    called = repr(function.name)
    details = {"function": function.name, "workers": len(workers)}
    if not workers:
        return Reason("no_worker", f"No worker knows the function {called}. {START_ONE}", details)
    if not knowing:
        others = count_of(len(workers), "worker is connected", "workers are connected")
        return Reason(
            "no_worker",
            f"No worker knows the function {called}; {others} and "
            f"{'knows' if len(workers) == 1 else 'know'} others. Deploy it there, or start a "
            "worker of its app.",
            details,
        )
    return Reason(
        "no_worker",
        f"No worker that knows the function {called} has the labels that it requires, or offers "
        f"a slot. {START_ONE}",
        details,
    )


def workers_busy(function: FunctionRef, workers: Sequence[Offer]) -> Reason:
    """Return the reason of a call whose workers have no free slot."""
    slots = sum(offer.capacity.extra.get(SLOTS, 0) for offer in workers)
    if len(workers) == 1:
        where = f"Worker {workers[0].name} is busy: its {count_of(slots, 'slot')}"
    else:
        where = f"All {len(workers)} workers that know it are busy: their {count_of(slots, 'slot')}"
    return Reason(
        "no_capacity",
        f"{where} {'is' if slots == 1 else 'are'} taken.",
        {"kinds": [SLOTS], "nodes": len(workers), "slots": slots},
    )


def _belongs_to(offer: Offer, tenant_id: int) -> bool:
    return offer.worker is not None and offer.worker.tenant_id == tenant_id


def _knows(offer: Offer, function: FunctionRef) -> bool:
    return offer.worker is not None and function.name in offer.worker.functions
