"""Every server of a database uses the same object store."""

from uuid import UUID

import pytest

from duly.model.object_store import StoreRecord
from duly.policy.store_identity import StoreDecision, decide

OURS, THEIRS = UUID(int=1), UUID(int=2)
NEW, REGISTERED = StoreRecord(OURS, None), StoreRecord(OURS, "/srv/store on host-a")


@pytest.mark.parametrize(
    ("record", "mark", "decision"),
    [
        (NEW, None, StoreDecision.REGISTER),
        (NEW, OURS, StoreDecision.REGISTER),
        (NEW, THEIRS, StoreDecision.REFUSE_FOREIGN),
        (REGISTERED, OURS, StoreDecision.USE),
        (REGISTERED, None, StoreDecision.REFUSE_UNMARKED),
        (REGISTERED, THEIRS, StoreDecision.REFUSE_FOREIGN),
    ],
)
def test_a_store_is_used_only_by_the_database_that_it_belongs_to(record, mark, decision):
    assert decide(record, mark) is decision
