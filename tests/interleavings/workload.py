"""Draws the next operation and its actor, weighted by the theme of a run."""

from collections.abc import Callable, Coroutine
from typing import Any

from tests.interleavings import graphs, node_operations, schedules, tenants
from tests.interleavings.driver import Driver
from tests.interleavings.participants import Node, Server
from tests.interleavings.world import World

KEYS = (None, None, None, "a", "b", "c")
BODIES = ("A1", "A1", "A1", "A2", "B1", "B1")
"""Bodies of batches with a key; the letter is the key."""
LOOPS = (
    "cluster",
    "place",
    "fail unplaceable",
    "sweep",
    "commit",
    "repair",
    "fire",
    "continue operations",
    "detect overdue",
)
LEADER_LOOPS = (
    "place",
    "fail unplaceable",
    "sweep",
    "fire",
    "continue operations",
    "detect overdue",
)
TASK_OPERATIONS = ("cancel", "mark", "update", "resize", "pause", "resume", "hurry")
AGENT_OPERATIONS = ("poll", "report", "heartbeat", "stop", "leave", "join")
NODE_OPERATIONS = ("drain", "remove", "override", "reserve")
RESERVATION_OPERATIONS = ("change", "release")
TENANT_OPERATIONS = ("limited submit", "limited batch", "suspend", "change quota")
SCHEDULE_OPERATIONS = (
    "change schedule",
    "pause schedule",
    "run schedule",
    "backfill schedule",
    "remove schedule",
)
WEIGHTS = {
    "submit": 4,
    "batch": 3,
    "keyed batch": 1,
    "submit downstream": 1,
    "commit": 4,
    "place": 25,
    "fail unplaceable": 10,
    "sweep": 10,
    "cluster": 6,
    "poll": 10,
    "report": 12,
    "heartbeat": 4,
    "stop": 0.5,
    "cancel": 3,
    "mark": 0.3,
    "update": 2,
    "resize": 1,
    "join": 2,
    "leave": 1,
    "drain": 1,
    "remove": 0.3,
    "override": 1,
    "reserve": 1,
    "change": 0.7,
    "release": 0.7,
    "drop expired": 0.3,
    "kill": 0.5,
    "limited submit": 0.5,
    "limited batch": 0.3,
    "suspend": 0.1,
    "change quota": 0.1,
    "create schedule": 0.1,
    "fire": 0.1,
    "change schedule": 0.05,
    "pause schedule": 0.05,
    "run schedule": 0.05,
    "backfill schedule": 0.05,
    "remove schedule": 0.02,
    "submit graph": 0.3,
    "graph operation": 0.3,
    "continue operations": 0.3,
    "cancel occurrence": 0.02,
    "pause": 0.2,
    "resume": 0.2,
    "hurry": 0.01,
    "detect overdue": 0.01,
}
UNRELATED_TO_SCHEDULES = (
    "place",
    "poll",
    "report",
    "submit",
    "batch",
    "commit",
    "heartbeat",
    "join",
    *NODE_OPERATIONS,
)
THEMES: dict[str, dict[str, float]] = {
    "everything": {},
    "submits": {"submit": 6, "batch": 4, "commit": 5, "kill": 2},
    "keyed batches": {"keyed batch": 60, "kill": 2},
    "dependants": {"submit downstream": 25, "report": 3, "poll": 2, "sweep": 2, "cancel": 2},
    "cancelled upstreams": {"submit downstream": 30, "cancel": 15, "sweep": 2, "poll": 0.5},
    "graphs": {
        "submit graph": 30,
        "graph operation": 60,
        "continue operations": 10,
        "report": 3,
        "poll": 2,
        "sweep": 2,
    }
    | {"cancel": 0.3, "batch": 0.1, "submit": 0.1, "kill": 2},
    "pauses": {
        "pause": 60,
        "resume": 60,
        "update": 5,
        "submit downstream": 5,
        "report": 3,
        "poll": 2,
        "sweep": 2,
    }
    | {"submit graph": 8, "graph operation": 10, "submit": 0.3, "batch": 0.3},
    "overdue": {"hurry": 1500, "detect overdue": 2500, "place": 0.5, "pause": 5, "resume": 10}
    | {"submit downstream": 4, "report": 2, "poll": 2, "sweep": 2, "time": 3},
    "changes": {"cancel": 6, "update": 12, "poll": 0.3},
    "cancels": {"cancel": 10, "report": 3, "poll": 2, "sweep": 2},
    "marks": {"mark": 60, "batch": 4, "poll": 2, "after": 2, "reserve": 4, "cancel": 0.3},
    "joins": {"join": 10, "drain": 4, "leave": 3, "poll": 0.2, "sweep": 0.5},
    "drains": {"drain": 30, "batch": 4, "poll": 0.2, "sweep": 0.3},
    "stops": {"stop": 40, "join": 4, "batch": 4, "poll": 0.2, "sweep": 0.3},
    "removals": {"remove": 20, "join": 10, "batch": 3, "poll": 0.3, "reserve": 2},
    "overrides": {"override": 25, "batch": 4, "resize": 2, "poll": 0.2, "report": 3},
    "shapes": {"resize": 25, "place": 2, "batch": 12, "report": 2, "cancel": 0.2, "kill": 0.2},
    "unplaceable": {"resize": 40, "place": 3, "fail unplaceable": 25, "batch": 8}
    | dict.fromkeys(("poll", "report", "cancel", "submit", "sweep", "override"), 0.1),
    "reservations": {"reserve": 15, "change": 10, "release": 5, "drop expired": 10, "override": 2}
    | {"batch": 0.5, "submit": 0.5, "report": 2, "place": 1.5, "heartbeat": 4, "stop": 0.2},
    "reservation changes": {
        "reserve": 15,
        "change": 60,
        "release": 30,
        "drop expired": 40,
        "heartbeat": 2,
    }
    | dict.fromkeys(("place", "submit", "batch", "commit", "update", "cancel", "stop"), 0.1),
    "losses": {"sweep": 3, "report": 3, "poll": 1.5, "heartbeat": 4, "cluster": 0.5, "time": 2},
    "repeated reports": {
        "report": 6,
        "poll": 4,
        "sweep": 0.3,
        "submit": 0.3,
        "batch": 0.3,
        "join": 0.3,
    },
    "failovers": {"cluster": 6, "place": 2, "batch": 6, "sweep": 5, "heartbeat": 10, "join": 3}
    | dict.fromkeys(
        (
            "poll",
            "report",
            *TASK_OPERATIONS,
            *NODE_OPERATIONS,
            *RESERVATION_OPERATIONS,
            "keyed batch",
            "submit downstream",
            "drop expired",
        ),
        0.1,
    )
    | {"time": 3, "stop": 0.1, "leave": 0.1, "kill": 0.2},
    "rates": {"limited submit": 20, "limited batch": 15, "commit": 5, "time": 2}
    | dict.fromkeys(
        ("place", "submit", "batch", "poll", "report", "resize", *NODE_OPERATIONS), 0.1
    ),
    "quotas": {
        "limited submit": 12,
        "limited batch": 15,
        "commit": 4,
        "suspend": 25,
        "change quota": 60,
        "report": 3,
    }
    | {"place": 3, "poll": 2}
    | dict.fromkeys(
        ("submit", "batch", "keyed batch", "resize", "update", "mark", *RESERVATION_OPERATIONS),
        0.1,
    )
    | dict.fromkeys(
        (
            "submit downstream",
            "submit graph",
            "graph operation",
            "continue operations",
            "drop expired",
            *NODE_OPERATIONS,
        ),
        0.1,
    ),
    "firing": {
        "create schedule": 150,
        "fire": 250,
        "pause schedule": 150,
        "change schedule": 120,
        "run schedule": 60,
        "time": 3,
    }
    | {"backfill schedule": 60, "remove schedule": 60}
    | dict.fromkeys(UNRELATED_TO_SCHEDULES, 0.1),
    "queued occurrences": {
        "create schedule": 100,
        "fire": 150,
        "run schedule": 150,
        "cancel occurrence": 80,
        "time": 2,
    }
    | {"report": 3, "poll": 2, "sweep": 3}
    | dict.fromkeys(
        (
            "submit",
            "batch",
            "keyed batch",
            "submit downstream",
            "stop",
            *NODE_OPERATIONS,
            *TASK_OPERATIONS,
        ),
        0.1,
    ),
    "firing with two leaders": {
        "create schedule": 100,
        "fire": 400,
        "cluster": 6,
        "time": 3,
        "kill": 0.2,
    }
    | dict.fromkeys((*UNRELATED_TO_SCHEDULES, "sweep"), 0.1),
}
"""Factors on WEIGHTS; every seed has one theme."""

Operation = Callable[[], Coroutine[None, None, Any]]


async def begin(world: World, driver: Driver, weights: dict[str, float]) -> None:
    """Start an actor with a random operation."""
    server = world.rng.choice(world.servers)
    node = world.rng.choice(world.nodes)
    kind = world.rng.choices(list(weights), list(weights.values()))[0]
    if world.is_idle(kind) and world.rng.random() < 0.85:
        return
    if kind in LOOPS:
        _loop(world, driver, server, kind)
    elif kind == "kill":
        driver.note(f"{server.name}: is killed")
        driver.kill(server.name)
        world.replace(server)
    elif kind in AGENT_OPERATIONS:
        _agent(world, driver, server, kind)
    elif kind in NODE_OPERATIONS:
        _node(world, driver, server, node, kind)
    else:
        _client(world, driver, server, kind)
    await driver.settle()


def _client(world: World, driver: Driver, server: Server, kind: str) -> None:
    tasks = [task for _, _, task, _ in world.acknowledged.submits[-4:]]
    if kind == "submit":
        key = world.rng.choice(KEYS)
        driver.start(f"{server.name} submits {key}", lambda: world.submit(server, key))
    elif kind == "batch":
        keys = world.rng.sample(KEYS, 3)
        driver.start(f"{server.name} submits {keys}", lambda: world.submit_batch(server, keys))
    elif kind == "keyed batch":
        body = world.rng.choice(BODIES)
        name = f"{server.name} submits the batch {body}"
        driver.start(name, lambda: world.submit_keyed_batch(server, f"batch {body[0]}", body))
    elif kind == "submit downstream" and tasks:
        # Repetitions have the same id, and a request that names a task twice is refused.
        distinct = list(dict.fromkeys(tasks))
        upstreams = world.rng.sample(distinct, min(len(distinct), world.rng.choice((1, 2, 2, 3))))
        name = f"{server.name} submits downstream of {upstreams}"
        driver.start(name, lambda: world.submit_downstream(server, upstreams))
    elif kind in TASK_OPERATIONS and tasks:
        task = world.rng.choice(tasks)
        work = getattr(world, kind)
        driver.start(f"{server.name} {kind}s {task}", lambda: work(server, task))
    elif kind in RESERVATION_OPERATIONS and world.reserved:
        reservation = world.rng.choice(world.reserved[-2:])
        do = node_operations.change if kind == "change" else node_operations.release
        driver.start(f"{server.name} {kind}s {reservation}", lambda: do(world, server, reservation))
    elif kind == "drop expired":
        driver.start(f"{server.name} drops expired", lambda: node_operations.drop_expired(world))
    elif kind == "submit graph":
        driver.start(f"{server.name} submits a graph", lambda: graphs.submit(world, server))
    elif kind == "graph operation" and world.graphs:
        graph, operation = world.rng.choice(world.graphs[-2:]), world.rng.choice(graphs.KINDS)
        name = f"{server.name} {operation}s graph {graph}"
        driver.start(name, lambda: graphs.operate(world, server, graph, operation))
    elif kind in TENANT_OPERATIONS:
        _tenant(world, driver, server, kind)
    elif kind == "create schedule":
        driver.start(f"{server.name} creates a schedule", lambda: schedules.create(world, server))
    elif kind == "cancel occurrence":
        driver.start(
            f"{server.name} cancels an occurrence",
            lambda: schedules.cancel_occurrence(world, server),
        )
    elif kind in SCHEDULE_OPERATIONS and world.schedules:
        schedule = world.rng.choice(world.schedules)
        act = {
            "change schedule": schedules.change,
            "pause schedule": schedules.pause,
            "run schedule": schedules.run,
            "backfill schedule": schedules.backfill,
            "remove schedule": schedules.remove,
        }[kind]
        driver.start(f"{server.name}: {kind} {schedule}", lambda: act(world, server, schedule))


def _tenant(world: World, driver: Driver, server: Server, kind: str) -> None:
    key, keys = world.rng.choice(tenants.KEYS), world.rng.sample(tenants.KEYS, 2)
    work: Operation = {
        "limited submit": lambda: tenants.submit(world, server, key),
        "limited batch": lambda: tenants.submit_batch(world, server, keys),
        "suspend": lambda: tenants.suspend(world, server),
        "change quota": lambda: tenants.change_quota(world, server),
    }[kind]
    driver.start(f"{server.name}: {kind} {key if kind == 'limited submit' else keys}", work)


def _node(world: World, driver: Driver, server: Server, node: Node, kind: str) -> None:
    draining = world.rng.random() < 0.5
    work: Operation = {
        "drain": lambda: world.drain(server, node, draining),
        "remove": lambda: node_operations.remove(world, server, node),
        "override": lambda: node_operations.override(world, server, node),
        "reserve": lambda: node_operations.reserve(world, server, node),
    }[kind]
    label = "undrain" if kind == "drain" and not draining else kind
    driver.start(f"{server.name} {label}s {node.name}", work)


def _agent(world: World, driver: Driver, server: Server, kind: str) -> None:
    joined = [node for node in world.nodes if node.incarnation]
    if not joined:
        return
    node = world.rng.choice(joined)
    if (kind == "report" and not node.held and not node.past) or (kind == "leave" and node.held):
        kind = "poll"
    work: Operation = {
        "poll": lambda: world.poll(server, node),
        "report": lambda: world.report(server, node),
        "heartbeat": lambda: world.heartbeat(server, node),
        "stop": lambda: world.heartbeat(server, node, stopping=True),
        "leave": lambda: world.leave(server, node),
        "join": lambda: world.join(node),
    }[kind]
    driver.start(f"{server.name} for {node.name}: {kind}", work)


def _loop(world: World, driver: Driver, server: Server, kind: str) -> None:
    tick: Operation = {
        "cluster": server.cluster_manager.tick,
        "place": server.resource_manager.tick,
        "fail unplaceable": server.unplaceable.tick,
        "sweep": lambda: world.sweep(server),
        "commit": server.submitter.tick,
        "repair": lambda: world.repair(server),
        "fire": lambda: schedules.fire(world, server),
        "continue operations": server.graph_operations.tick,
        "detect overdue": server.overdue_detector.tick,
    }[kind]
    if kind in LEADER_LOOPS and server.cluster_manager.term is None:
        return
    if kind not in server.busy:
        driver.start(f"{server.name} {kind}", lambda: world.run_exclusively(server, kind, tick))
