"""What a task is told that waits for those of other tenants."""

import pytest

from duly.policy.explanation.competition import Competition, beyond_fair_share


@pytest.mark.parametrize(
    ("others", "ahead", "message"),
    [
        (
            9,
            41,
            "Its tenant uses 31 % of the fleet; its fair share is 10 %. 9 tenants below their share"
            " go first; 41 tasks are ahead in its own queue.",
        ),
        (
            1,
            1,
            "Its tenant uses 31 % of the fleet; its fair share is 10 %. 1 tenant below its share"
            " goes first; 1 task is ahead in its own queue.",
        ),
        (
            2,
            None,
            "Its tenant uses 31 % of the fleet; its fair share is 10 %. 2 tenants below their share"
            " go first.",
        ),
    ],
)
def test_the_shares_are_said_and_who_goes_first(others, ahead, message):
    reason = beyond_fair_share(Competition(0.31, 0.1, False, others), ahead)
    assert (reason.code, reason.message) == ("not_its_turn", message)
    assert reason.details == {
        "share": 0.31,
        "fair_share": 0.1,
        "tenants_first": others,
        "ahead": ahead,
    }
