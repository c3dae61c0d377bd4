"""Decides which waiting task starts next, and leases it to a node.

One round: `resource_manager.py` reads what is free, `subqueues` selects waiting tasks and returns a
window of them in order, `duly.policy.placement` matches tasks with nodes, and the placements become
leases in one statement. Only the leader runs rounds. Wake-ups come in through `leader_nudge.py`,
`ResourceManager.nudge` and hints on the server bus; leases go out to `duly.server.delivery`. Start
with `resource_manager.py`.
"""
