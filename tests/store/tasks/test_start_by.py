"""The store has the same rule for start_by as the policy."""

from tests.policy.test_graph_order import CASES, at, seconds

RULE = "select duly.start_by_of($1, $2, $3, $4)"


async def test_a_task_has_to_start_by_the_same_time_as_the_policy_says(database):
    async with database.connection() as conn:
        for ready, tolerance, latest, expected in CASES:
            due = None if latest is None else at(latest)
            for asked, patience in ((tolerance, None), (tolerance, 900), (900, tolerance)):
                behind = None if patience is None else seconds(patience)
                found = await conn.fetchval(RULE, at(ready), seconds(asked), behind, due)
                assert found == at(expected)
