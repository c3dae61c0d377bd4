"""Counts how many waiting tasks of each shape fit on the nodes now.

At peak, headroom that nodes keep is left out, except for shapes that would then fit on no node at
all, and for those with urgent tasks that may use it.
"""

from collections.abc import Iterable, Mapping, Sequence

from duly.model.node import Offer
from duly.model.resources import Resources
from duly.model.shape import Shape
from duly.policy import placement
from duly.policy.budget.headroom import withhold

FITS_LATER = 0
"""Slots of a shape that fits on a node once other tasks have ended there."""
FITS_NEVER = -1
"""Slots of a shape that fits on no node, even an idle one."""


class SlotCounter:
    """Counts slots in one round."""

    def __init__(
        self,
        shapes: Mapping[int, Shape],
        kinds: Mapping[int, str],
        offers: Sequence[Offer],
        headroom: Mapping[int, Resources],
        *,
        window: int,
    ) -> None:
        """Count slots on `offers` for windows of some size, once for shapes of the same kind."""
        self._shapes = shapes
        self._kinds = kinds
        self._offers = offers
        self._usable = withhold(offers, headroom) if headroom else offers
        # More than two windows is as good as any number.
        self._limit = 2 * window
        self.exempt: set[int] = set()
        """The shapes that may use headroom because they would never fit without it."""

    def count(self, shape_ids: Iterable[int]) -> dict[int, int]:
        """Return how many tasks of each shape fit, or `FITS_LATER`, or `FITS_NEVER`.

        A shape that was added during this round is not loaded yet, and counts as fitting nowhere
        until the next round.
        """
        slots_of_kind: dict[str, tuple[int, bool]] = {}
        slots = {}
        for shape_id in shape_ids:
            if (shape := self._shapes.get(shape_id)) is None:
                slots[shape_id] = FITS_NEVER
                continue
            kind = self._kinds[shape_id]
            if kind not in slots_of_kind:
                slots_of_kind[kind] = self._count(shape)
            slots[shape_id], is_exempt = slots_of_kind[kind]
            if is_exempt:
                self.exempt.add(shape_id)
        return slots

    def count_with_headroom(self, shape_ids: Iterable[int]) -> dict[int, int]:
        """Return how many tasks of each shape fit that may use the headroom."""
        return {
            shape_id: _count_slots(self._shapes[shape_id], self._offers, self._limit)
            for shape_id in shape_ids
        }

    def _count(self, shape: Shape) -> tuple[int, bool]:
        slots = _count_slots(shape, self._usable, self._limit)
        if slots == FITS_NEVER and self._usable is not self._offers:
            slots = _count_slots(shape, self._offers, self._limit)
            return slots, slots != FITS_NEVER
        return slots, False


def _count_slots(shape: Shape, offers: Sequence[Offer], limit: int) -> int:
    if slots := placement.placeable_count(shape, offers, limit):
        return slots
    return FITS_LATER if any(placement.could_fit(shape, offer) for offer in offers) else FITS_NEVER
