"""Every statement can be prepared, and every hot one has a plan that goes by an index.

A plan is kept once it is made. So it is looked at as it is made for unknown parameters
(generic), on tables that are empty and were never looked at, on tables that were drained
and vacuumed, and on large ones before and after they are analysed.
"""

import asyncio

import pytest

from tests.store.plan_states import PIECE, STATES, plans_of_all_states
from tests.store.plans import (
    CALLS,
    SETUP,
    STATEMENTS,
    indexes,
    inner_statements,
    nodes,
    parent,
    scans,
)

HISTORY = ("tasks", "attempts", "ends", "live", "edges", "schedules", "occurrences")
FORGETTING = {"history.read_aged", "history.delete_aged"}
RARE = {name for name in STATEMENTS if name.startswith("history.")} - FORGETTING | {
    "overview.count_live",
    "queues.read_users",
    "tenants.count_live",
}
"""What may look at a whole table, because it is asked for seldom or up to a bound."""


@pytest.fixture(scope="module")
def plans(postgres):
    return asyncio.run(plans_of_all_states(postgres))


@pytest.mark.parametrize("state", STATES)
def test_every_statement_can_be_prepared(plans, state):
    prepared = STATEMENTS.keys() - CALLS - SETUP
    assert prepared <= plans[state].keys()


@pytest.mark.parametrize("state", STATES)
def test_no_statement_scans_what_grows(plans, state):
    found = {
        (name, node["Relation Name"])
        for name, plan in plans[state].items()
        if name not in RARE
        for table in HISTORY
        for node in scans(plan, table)
        if node["Node Type"] == "Seq Scan"
    }
    assert found == set()


PARTITIONED = {"tasks", "attempts", "ends", "events", "edges"}
SOLE_WRITERS = {
    "attach_edges 11": "its tasks were inserted in the same transaction",
    "graph_operations.record_pause": "its tasks are locked already",
    "history.delete_aged": "only the leader changes what belongs to ended tasks",
    "history.drop_graphs": "only the leader changes graphs without tasks",
    "history.drop_graphs_of": "only the leader changes graphs without tasks",
    "history.drop_outlived": "only the leader changes what belongs to ended tasks",
    "history.drop_submissions": "only the leader changes keys of ended tasks",
    "history.note_ends": "only the leader changes keys of ended tasks",
    "inputs.name_by_ref": "its edges were inserted in the same transaction",
}
"""Statements that prune partitions while they run, and whose rows nobody else can change then."""


@pytest.mark.parametrize("state", STATES)
def test_no_statement_that_waits_for_a_changed_row_prunes_partitions(plans, state):
    # PostgreSQL 18 checks such a row again with the statement's own pruning state, and can crash
    # when that is used afterwards.
    found = {name for name, plan in plans[state].items() if prunes_beside_a_lock(plan)}
    assert found <= SOLE_WRITERS.keys()


def prunes_beside_a_lock(plan):
    """Return True if a part of the plan that is checked again prunes partitions as it runs."""
    everything = list(nodes(plan))
    if not any(is_locking(node) for node in everything):
        return False
    checked_again = [node for node in everything if is_locking(node) or "Subplan Name" in node]
    return any(is_pruning(node) for part in checked_again for node in nodes(part))


def is_locking(node):
    return node["Node Type"] == "LockRows" or node.get("Operation") in ("Update", "Delete")


def is_pruning(node):
    if node["Node Type"] != "Append" or node["Subplans Removed"]:
        return False
    return any(parent(scan.get("Relation Name", "")) in PARTITIONED for scan in node["Plans"])


async def test_every_index_serves_a_statement(plans, conn):
    rows = await conn.fetch(
        """
        select c.relname as name, coalesce(p.relname, c.relname) as declared
          from pg_index i
          join pg_class c on c.oid = i.indexrelid
          left join pg_inherits h on h.inhrelid = c.oid
          left join pg_class p on p.oid = h.inhparent
         where c.relnamespace = 'duly'::regnamespace
           and not i.indisunique
        """
    )
    declared = {row["name"]: row["declared"] for row in rows}
    used = {
        declared.get(node.get("Index Name"))
        for state in STATES
        for plan in plans[state].values()
        for node in nodes(plan)
    }
    assert set(declared.values()) - used == set()


HOT = {
    "subqueues.read_nonempty": {"live_waiting"},
    "subqueues.read_heads": {"live_waiting"},
    "fleet_snapshot.read_snapshot": {"live_running"},
    "leases.read_running_changes": {"live_running", "live_pkey"},
    "leases.lock_unplaceable": {"live_waiting"},
    "leases.lock_attempts": {"live_pkey"},
    "leases.end_attempts": {"live_pkey"},
    "leases.finish_attempts": {"live_pkey"},
    "leases.release_due": {"live_due", "live_pkey"},
    "leases.next_due": {"live_due"},
    "leases.lock_orphans": {"live_running", "live_pkey"},
    "leases.read_vitals": {"live_running"},
    "nodes.read_expected": {"live_running", "live_pkey"},
    "nodes.holds_attempt": {"live_pkey"},
    "nodes.extend_backstop": {"live_pkey"},
    "measurements.record": {"live_pkey"},
    "tasks.insert_tasks": {"live_unique"},
    "tasks.read_holder": {"live_unique"},
    "tasks.lock_unstarted": {"live_pkey"},
    "tasks.update_task": {"live_pkey"},
    "backlog.count_waiting": {"live_waiting", "live_later"},
    "audit.read_live_ids": {"live_pkey"},
    "audit.examine_live": {"live_pkey"},
    "audit.examine_tasks": {"live_pkey"},
    "audit.read_subqueue_heads": {"live_waiting"},
}


FIRING = {
    "schedules.next_due": {"schedules_due"},
    "schedules.lock_due": {"schedules_due"},
    "schedules.advance": {"schedules_pkey"},
    "schedules.refuse": {"occurrences_by_task"},
    "schedules.occurrences": {"occurrences_pkey"},
    "schedules.newest": {"occurrences_pkey"},
    "schedules.read_ran": {"occurrences_pkey"},
    "schedules.read": {"schedules_by_tenant"},
    "views.read_tasks": {"occurrences_by_task", "occurrences_by_graph"},
}
"""What finds schedules and their occurrences, and by which index."""


@pytest.mark.parametrize("state", STATES)
def test_a_schedule_and_its_occurrences_are_found_by_their_index(plans, state):
    found = {
        name: indexes(plans[state][name], "schedules") | indexes(plans[state][name], "occurrences")
        for name in FIRING
    }
    assert found == FIRING


@pytest.mark.parametrize("state", STATES)
def test_a_hot_statement_goes_by_its_index(plans, state):
    assert {name: indexes(plans[state][name], "live") for name in HOT} == HOT


BY_COLUMN = {
    "tenants.by_key": {"keys": "hash =", "tenants": "id =", "users": "id ="},
    "tenants.hold": {"tenants": "id ="},
    "tasks.insert_tasks": {"submissions": "key =", "buckets": "tenant_id ="},
    "tasks.insert_charged": {"buckets": "tenant_id ="},
    "tasks.make_buckets": {"buckets": "tenant_id =", "tenants": "id ="},
    "tasks.read_submissions": {"submissions": "key ="},
    "buckets.lock_bucket": {"buckets": "tenant_id =", "tenants": "id ="},
    "buckets.write_bucket": {"buckets": "tenant_id ="},
    "limits.read_current_usage": {"buckets": "tenant_id ="},
    "quota_fence.advance": {"tenants": "id ="},
    "users.read_password_hash": {"tenants": "name =", "users": "tenant_id ="},
    "users.lock_login": {"users": "id =", "tenants": "id ="},
    "users.lock": {"users": "tenant_id ="},
    "users.read": {"users": "tenant_id =", "keys": "user_id ="},
    "users.remove": {"keys": "user_id ="},
    "keys.read": {"keys": "tenant_id =", "users": "id ="},
    "keys.lock": {"keys": "tenant_id ="},
    "keys.end_login": {"keys": "id ="},
    "keys.prune_logins": {"keys": "id ="},
    "views.tenant_by_name": {"tenants": "name ="},
    "audit_log.read_of_tenant": {"audit_log": "tenant_id =", "tenants": "id ="},
    "history.read_aged": {"tasks": "tenant_id ="},
    "history.delete_aged": {
        "tasks": "id =",
        "ends": "task_id =",
        "attempts": "task_id =",
        "former_specs": "task_id =",
        "dead_letters": "task_id =",
        "submissions": "key =",
        "live": "id =",
    },
    "usage.read": {"usage": "tenant_id =", "users": "id =", "tenants": "id ="},
}
"""Who asks for what is a tenant's, or his own, touches nothing of the others'."""


@pytest.mark.parametrize("state", STATES)
def test_what_a_request_asks_for_is_looked_up_and_not_looked_for(plans, state):
    found = [
        (name, table, scan["Node Type"], scan.get("Index Cond"))
        for name, tables in BY_COLUMN.items()
        for table, column in tables.items()
        for scan in scans(plans[state][name], table)
        if column not in scan.get("Index Cond", "") and scan["Node Type"] != "Tid Scan"
    ]
    assert found == []
    assert all(
        scans(plans[state][name], table) for name, tables in BY_COLUMN.items() for table in tables
    )


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["insert_tasks", "insert_charged", "insert_plain"])
def test_tasks_find_their_terms_without_looking_through_all_of_them(plans, state, name):
    joins = [
        node["Node Type"]
        for node in nodes(plans[state][f"tasks.{name}"])
        if {child.get("Alias") for child in node.get("Plans", ())} >= {"each"}
    ]
    assert joins
    assert "Nested Loop" not in joins


@pytest.mark.parametrize("state", STATES)
def test_entries_of_rows_that_are_gone_get_marked(plans, state):
    found = {
        (name, node["Relation Name"])
        for name, plan in plans[state].items()
        for node in scans(plan, "live")
        if node["Node Type"] == "Bitmap Heap Scan"
    }
    assert found == set()


KNOWING = ("lease", "end_each", "attach", "settle", "request_c")
BY_ID = [
    "leases.lock_attempts",
    "leases.end_attempts",
    "leases.finish_attempts",
    "nodes.read_starts",
    "nodes.holds_attempt",
    "nodes.extend_backstop",
    "measurements.record",
    "tasks.lock_unstarted",
    "tasks.update_task",
    "audit.examine_live",
    *(name for name in STATEMENTS if name.startswith("repairs.")),
    *(name for name in inner_statements() if name.startswith(KNOWING)),
]


@pytest.mark.parametrize("state", STATES)
def test_what_knows_its_tasks_walks_no_index(plans, state):
    found = [
        (name, node["Index Name"])
        for name in BY_ID
        for scan in scans(plans[state][name], "live")
        for node in nodes(scan)
        if "Index Name" in node and "id = " not in node.get("Index Cond", "")
    ]
    assert found == []


@pytest.mark.parametrize("state", STATES)
def test_edges_are_found_from_both_ends(plans, state):
    found = {
        name: indexes(plan, "edges")
        for name, plan in plans[state].items()
        if name.startswith(("attach", "resolve")) and scans(plan, "edges")
    }
    assert list(found.values()) == [{"edges_pkey"}, {"edges_upstream_id_expr_idx"}]


@pytest.mark.parametrize(
    ("state", "name"),
    [*((state, "inputs.read_tasks_with_inputs") for state in STATES), ("run", "read_inputs 0")],
)
def test_inputs_are_read_one_after_the_other(plans, state, name):
    """So that whoever has enough of them reads no further."""
    plan = plans[state][name]
    for table, column in {"edges": "dependant_id =", "ends": "task_id ="}.items():
        found = scans(plan, table)
        assert found and all(column in scan.get("Index Cond", "") for scan in found), (table, found)
    assert "Sort" not in {node["Node Type"] for node in nodes(plan)}


LISTS = {
    "attempt_list.pick": {"attempts_tenant_id_leased_at_expr_idx"},
    "attempt_list.pick_unsuccessful": {"attempts_tenant_id_outcome_leased_at_expr_idx"},
}
"""What lists attempts across tasks, and by which index."""


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_attempts_is_read_in_the_order_of_its_index(plans, state, name):
    plan = plans[state][name]
    assert indexes(plan, "attempts") == LISTS[name]
    assert indexes(plan, "live") <= {"live_running"}
    for scan in scans(plan, "attempts"):
        assert scan["Scan Direction"] == "Backward"
        assert scan["Index Cond"].count("ROW(") == 4, "both ends of the range are conditions"
    for node in nodes(plan):
        if node["Node Type"] in ("Sort", "Incremental Sort"):
            below = [one for one in nodes(node) if one["Node Type"] == "Limit"]
            assert below or not scans(node, "attempts"), "what has ended is sorted"


@pytest.mark.parametrize("state", STATES)
def test_attempts_at_known_tasks_are_looked_up(plans, state):
    for name in ("attempt_list.pick_of_tasks", "attempt_list.read"):
        assert indexes(plans[state][name], "attempts") == {"attempts_pkey"}
        assert indexes(plans[state][name], "live") == {"live_pkey"}
    found = plans["run"]["views.read_attempts"]
    assert indexes(found, "attempts") == {"attempts_pkey"}


@pytest.mark.parametrize("state", [*STATES, "run"])
def test_only_lists_of_attempts_walk_their_indexes(plans, state):
    found = {
        name
        for name, plan in plans[state].items()
        if indexes(plan, "attempts") & set().union(*LISTS.values())
    }
    assert found <= LISTS.keys()


@pytest.mark.parametrize("state", STATES)
def test_the_time_bounds_the_search_for_what_is_due(plans, state):
    [scan] = [
        node
        for node in nodes(plans[state]["leases.release_due"])
        if node.get("Index Name") == "live_due"
    ]
    assert "ready_at <=" in scan["Index Cond"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", ["subqueues.read_heads", "leases.lock_unplaceable"])
def test_only_the_lines_that_are_named_are_read(plans, state, name):
    [scan] = scans(plans[state][name], "live")
    assert "tenant_id = " in scan["Index Cond"]
    assert "shape_id = " in scan["Index Cond"]


@pytest.mark.parametrize("state", STATES)
def test_what_waits_is_never_sorted(plans, state):
    for name in HOT:
        for node in nodes(plans[state][name]):
            if node["Node Type"] in ("Sort", "Incremental Sort"):
                assert not indexes(node, "live") & {"live_waiting", "live_due"}, name


def test_a_known_id_visits_one_day(plans):
    for name, plan in plans["run"].items():
        for table in ("tasks", "attempts", "ends"):
            loops = {node["Relation Name"]: node["Actual Loops"] for node in scans(plan, table)}
            assert len([day for day, count in loops.items() if count]) <= 1, (name, loops)


def test_what_is_forgotten_is_found_by_its_id_everywhere(plans):
    for table in ("tasks", "attempts", "ends", "events", "edges"):
        found = [
            scan["Index Cond"]
            for node in nodes(plans["run"]["history.delete_aged"])
            if node["Node Type"] == "ModifyTable" and parent(node["Relation Name"]) == table
            for scan in scans(node, table)
        ]
        assert found
        assert all("id = ANY" in condition for condition in found), (table, found)


def test_a_piece_of_the_audit_touches_no_more_than_its_rows(plans):
    for name, plan in plans["pieces"].items():
        touched = {
            node["Relation Name"]: (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            * node["Actual Loops"]
            for node in nodes(plan)
            if "Relation Name" in node
        }
        assert all(rows <= PIECE for rows in touched.values()), (name, touched)
        # In a table of 200,000 rows; a look-up by a key is three or four blocks.
        blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert blocks <= 40 * PIECE, (name, blocks)


def test_what_an_old_snapshot_keeps_is_not_walked_over(plans):
    for name, plan in plans["behind"].items():
        assert plan["Actual Rows"] == 1, name
        blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert blocks <= 40, (name, blocks)


@pytest.mark.parametrize("state", STATES)
def test_allocations_are_picked_before_anything_is_looked_up_for_them(plans, state):
    """A join would read everything that runs once per node."""
    plan = plans[state]["reservations.read_allocations"]
    assert "Nested Loop" not in {node["Node Type"] for node in nodes(plan)}


@pytest.mark.parametrize("state", STATES)
def test_failed_tasks_of_all_tenants_are_found_without_going_through_tenants(plans, state):
    plan = plans[state]["all_tenants.pick_by_status"]
    assert scans(plan, "tenants") == []
    assert "ends_not_done" not in indexes(plan, "ends")


@pytest.mark.parametrize("state", STATES)
def test_a_heartbeat_looks_at_its_own_incarnation(plans, state):
    found = scans(plans[state]["nodes.renew"], "incarnations")
    assert found
    for scan in found:
        assert any("id = " in node.get("Index Cond", "") for node in nodes(scan)), scan


@pytest.mark.parametrize("state", STATES)
def test_a_key_is_found_by_its_hash(plans, state):
    assert indexes(plans[state]["tenants.by_key"], "keys") == {"keys_hash_key"}
