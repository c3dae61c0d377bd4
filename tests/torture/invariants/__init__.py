"""The invariants, by number; docs/explanation/promises.md lists them in words."""

from collections.abc import Callable

from tests.torture.evidence import Evidence, Violation
from tests.torture.invariants.attempts import attempts
from tests.torture.invariants.cancelling import cancel
from tests.torture.invariants.capacity import capacity
from tests.torture.invariants.dependencies import dependencies
from tests.torture.invariants.durability import idempotency, no_loss, no_phantom
from tests.torture.invariants.fencing import fence
from tests.torture.invariants.liveness import liveness
from tests.torture.invariants.paths import leader, legal_path, one_end
from tests.torture.invariants.pausing import pause
from tests.torture.invariants.quota import quota
from tests.torture.invariants.reads import reads
from tests.torture.invariants.recurrence import recurrence
from tests.torture.invariants.running import cap, no_invented_success, no_overlap

Invariant = Callable[[Evidence], list[Violation]]
ALL: dict[int, Invariant] = {
    1: no_loss,
    2: no_phantom,
    3: one_end,
    4: legal_path,
    5: no_invented_success,
    6: fence,
    7: no_overlap,
    8: attempts,
    9: recurrence,
    10: dependencies,
    11: capacity,
    12: quota,
    13: idempotency,
    14: cancel,
    15: cap,
    17: leader,
    18: reads,
    20: liveness,
    23: pause,
}


def judge(evidence: Evidence) -> list[Violation]:
    """Return all violations."""
    return [violation for invariant in ALL.values() for violation in invariant(evidence)]
