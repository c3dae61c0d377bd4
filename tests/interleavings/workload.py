"""Draws the next operation and its actor, weighted by the theme of a run."""

from collections.abc import Callable, Coroutine
from typing import Any

from tests.interleavings import graphs, node_operations, schedules, tenants
from tests.interleavings.driver import Driver
from tests.interleavings.participants import Node, Server
from tests.interleavings.world import World

KEYS = (None, None, None, "a", "b", "c")
BODIES = ("A1", "A1", "A1", "A2", "B1", "B1")
"""What is submitted as a whole; the letter is the key."""
LOOPS = ("cluster", "place", "give up", "sweep", "commit", "repair", "fire", "carry")
LEADING = ("place", "give up", "sweep", "fire", "carry")
TASK = ("cancel", "mark", "update", "resize", "pause", "resume")
AGENT = ("poll", "report", "heartbeat", "stop", "leave", "join")
NODE = ("drain", "remove", "override", "reserve")
RESERVATION = ("change", "release")
TENANT = ("small", "few", "suspend", "replan")
SCHEDULE = ("reschedule", "rest", "run", "backfill", "unschedule")
WEIGHTS = {
    "submit": 4,
    "batch": 3,
    "whole": 1,
    "after": 1,
    "commit": 4,
    "place": 25,
    "give up": 10,
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
    "forget": 0.3,
    "kill": 0.5,
    "small": 0.5,
    "few": 0.3,
    "suspend": 0.1,
    "replan": 0.1,
    "plan": 0.1,
    "fire": 0.1,
    "reschedule": 0.05,
    "rest": 0.05,
    "run": 0.05,
    "backfill": 0.05,
    "unschedule": 0.02,
    "graph": 0.3,
    "wish": 0.3,
    "carry": 0.3,
    "call off": 0.02,
    "pause": 0.2,
    "resume": 0.2,
}
QUIET = ("place", "poll", "report", "submit", "batch", "commit", "heartbeat", "join", *NODE)
THEMES: dict[str, dict[str, float]] = {
    "everything": {},
    "submits": {"submit": 6, "batch": 4, "commit": 5, "kill": 2},
    "wholes": {"whole": 60, "kill": 2},
    "dependants": {"after": 25, "report": 3, "poll": 2, "sweep": 2, "cancel": 2},
    "cancelled upstreams": {"after": 30, "cancel": 15, "sweep": 2, "poll": 0.5},
    "graphs": {"graph": 30, "wish": 60, "carry": 10, "report": 3, "poll": 2, "sweep": 2}
    | {"cancel": 0.3, "batch": 0.1, "submit": 0.1, "kill": 2},
    "pauses": {
        "pause": 60,
        "resume": 60,
        "update": 5,
        "after": 5,
        "report": 3,
        "poll": 2,
        "sweep": 2,
    }
    | {"graph": 8, "wish": 10, "submit": 0.3, "batch": 0.3},
    "changes": {"cancel": 6, "update": 12, "poll": 0.3},
    "cancels": {"cancel": 10, "report": 3, "poll": 2, "sweep": 2},
    "marks": {"mark": 60, "batch": 4, "poll": 2, "after": 2, "reserve": 4, "cancel": 0.3},
    "joins": {"join": 10, "drain": 4, "leave": 3, "poll": 0.2, "sweep": 0.5},
    "drains": {"drain": 30, "batch": 4, "poll": 0.2, "sweep": 0.3},
    "stops": {"stop": 40, "join": 4, "batch": 4, "poll": 0.2, "sweep": 0.3},
    "removals": {"remove": 20, "join": 10, "batch": 3, "poll": 0.3, "reserve": 2},
    "overrides": {"override": 25, "batch": 4, "resize": 2, "poll": 0.2, "report": 3},
    "shapes": {"resize": 25, "place": 2, "batch": 12, "report": 2, "cancel": 0.2, "kill": 0.2},
    "misfits": {"resize": 40, "place": 3, "give up": 25, "batch": 8}
    | dict.fromkeys(("poll", "report", "cancel", "submit", "sweep", "override"), 0.1),
    "reservations": {"reserve": 15, "change": 10, "release": 5, "forget": 10, "override": 2}
    | {"batch": 0.5, "submit": 0.5, "report": 2, "place": 1.5, "heartbeat": 4, "stop": 0.2},
    "extensions": {"reserve": 15, "change": 60, "release": 30, "forget": 40, "heartbeat": 2}
    | dict.fromkeys(("place", "submit", "batch", "commit", "update", "cancel", "stop"), 0.1),
    "losses": {"sweep": 3, "report": 3, "poll": 1.5, "heartbeat": 4, "cluster": 0.5, "time": 2},
    "repeats": {"report": 6, "poll": 4, "sweep": 0.3, "submit": 0.3, "batch": 0.3, "join": 0.3},
    "hand-overs": {"cluster": 6, "place": 2, "batch": 6, "sweep": 5, "heartbeat": 10, "join": 3}
    | dict.fromkeys(("poll", "report", *TASK, *NODE, *RESERVATION, "whole", "after", "forget"), 0.1)
    | {"time": 3, "stop": 0.1, "leave": 0.1, "kill": 0.2},
    "rates": {"small": 20, "few": 15, "commit": 5, "time": 2}
    | dict.fromkeys(("place", "submit", "batch", "poll", "report", "resize", *NODE), 0.1),
    "quotas": {"small": 12, "few": 15, "commit": 4, "suspend": 25, "replan": 60, "report": 3}
    | {"place": 3, "poll": 2}
    | dict.fromkeys(("submit", "batch", "whole", "resize", "update", *RESERVATION), 0.1)
    | dict.fromkeys(("after", "graph", "wish", "carry", "forget", *NODE), 0.1),
    "fires": {"plan": 150, "fire": 250, "rest": 150, "reschedule": 120, "run": 60, "time": 3}
    | {"backfill": 60, "unschedule": 60}
    | dict.fromkeys(QUIET, 0.1),
    "queues of fires": {"plan": 100, "fire": 150, "run": 150, "call off": 80, "time": 2}
    | {"report": 3, "poll": 2, "sweep": 3}
    | dict.fromkeys(("submit", "batch", "whole", "after", "stop", *NODE, *TASK), 0.1),
    "fires of two leaders": {"plan": 100, "fire": 400, "cluster": 6, "time": 3, "kill": 0.2}
    | dict.fromkeys((*QUIET, "sweep"), 0.1),
}
"""What happens often in a run; every seed has one."""

Work = Callable[[], Coroutine[None, None, Any]]


async def begin(world: World, driver: Driver, weights: dict[str, float]) -> None:
    """Let somebody begin something."""
    server = world.dice.choice(world.servers)
    node = world.dice.choice(world.nodes)
    kind = world.dice.choices(list(weights), list(weights.values()))[0]
    if world.is_idle(kind) and world.dice.random() < 0.85:
        return
    if kind in LOOPS:
        _loop(world, driver, server, kind)
    elif kind == "kill":
        driver.note(f"{server.name}: is killed")
        driver.kill(server.name)
        world.replace(server)
    elif kind in AGENT:
        _agent(world, driver, server, kind)
    elif kind in NODE:
        _node(world, driver, server, node, kind)
    else:
        _client(world, driver, server, kind)
    await driver.settle()


def _client(world: World, driver: Driver, server: Server, kind: str) -> None:
    tasks = [task for _, _, task, _ in world.told.submits[-4:]]
    if kind == "submit":
        key = world.dice.choice(KEYS)
        driver.start(f"{server.name} submits {key}", lambda: world.submit(server, key))
    elif kind == "batch":
        keys = world.dice.sample(KEYS, 3)
        driver.start(f"{server.name} submits {keys}", lambda: world.submit_batch(server, keys))
    elif kind == "whole":
        body = world.dice.choice(BODIES)
        name = f"{server.name} submits all of {body}"
        driver.start(name, lambda: world.submit_whole(server, f"batch {body[0]}", body))
    elif kind == "after" and tasks:
        # Repeats of a key are told one id; a request that names one twice is refused.
        apart = list(dict.fromkeys(tasks))
        several = world.dice.sample(apart, min(len(apart), world.dice.choice((1, 2, 2, 3))))
        name = f"{server.name} submits after {several}"
        driver.start(name, lambda: world.submit_after(server, several))
    elif kind in TASK and tasks:
        task = world.dice.choice(tasks)
        work = getattr(world, kind)
        driver.start(f"{server.name} {kind}s {task}", lambda: work(server, task))
    elif kind in RESERVATION and world.reserved:
        one = world.dice.choice(world.reserved[-2:])
        do = node_operations.change if kind == "change" else node_operations.release
        driver.start(f"{server.name} {kind}s {one}", lambda: do(world, server, one))
    elif kind == "forget":
        driver.start(f"{server.name} forgets", lambda: node_operations.forget(world))
    elif kind == "graph":
        driver.start(f"{server.name} submits a graph", lambda: graphs.submit(world, server))
    elif kind == "wish" and world.graphs:
        graph, wish = world.dice.choice(world.graphs[-2:]), world.dice.choice(graphs.KINDS)
        name = f"{server.name} {wish}s graph {graph}"
        driver.start(name, lambda: graphs.wish(world, server, graph, wish))
    elif kind in TENANT:
        _tenant(world, driver, server, kind)
    elif kind == "plan":
        driver.start(f"{server.name} plans", lambda: schedules.create(world, server))
    elif kind == "call off":
        driver.start(f"{server.name} calls off", lambda: schedules.call_off(world, server))
    elif kind in SCHEDULE and world.schedules:
        schedule = world.dice.choice(world.schedules)
        act = {
            "reschedule": schedules.change,
            "rest": schedules.pause,
            "run": schedules.run,
            "backfill": schedules.backfill,
            "unschedule": schedules.remove,
        }[kind]
        driver.start(f"{server.name} {kind}s {schedule}", lambda: act(world, server, schedule))


def _tenant(world: World, driver: Driver, server: Server, kind: str) -> None:
    key, keys = world.dice.choice(tenants.KEYS), world.dice.sample(tenants.KEYS, 2)
    work: Work = {
        "small": lambda: tenants.submit(world, server, key),
        "few": lambda: tenants.submit_batch(world, server, keys),
        "suspend": lambda: tenants.suspend(world, server),
        "replan": lambda: tenants.replan(world, server),
    }[kind]
    said = {"small": f"submits {key} of the small one", "few": f"submits {keys} of the small one"}
    driver.start(f"{server.name} {said.get(kind, f'{kind}s the small one')}", work)


def _node(world: World, driver: Driver, server: Server, node: Node, kind: str) -> None:
    draining = world.dice.random() < 0.5
    work: Work = {
        "drain": lambda: world.drain(server, node, draining),
        "remove": lambda: node_operations.remove(world, server, node),
        "override": lambda: node_operations.override(world, server, node),
        "reserve": lambda: node_operations.reserve(world, server, node),
    }[kind]
    said = "undrain" if kind == "drain" and not draining else kind
    driver.start(f"{server.name} {said}s {node.name}", work)


def _agent(world: World, driver: Driver, server: Server, kind: str) -> None:
    joined = [node for node in world.nodes if node.incarnation]
    if not joined:
        return
    node = world.dice.choice(joined)
    if (kind == "report" and not node.held and not node.past) or (kind == "leave" and node.held):
        kind = "poll"
    work: Work = {
        "poll": lambda: world.poll(server, node),
        "report": lambda: world.report(server, node),
        "heartbeat": lambda: world.heartbeat(server, node),
        "stop": lambda: world.heartbeat(server, node, stopping=True),
        "leave": lambda: world.leave(server, node),
        "join": lambda: world.join(node),
    }[kind]
    driver.start(f"{server.name} for {node.name}: {kind}", work)


def _loop(world: World, driver: Driver, server: Server, kind: str) -> None:
    tick: Work = {
        "cluster": server.cluster_manager.tick,
        "place": server.resource_manager.tick,
        "give up": server.unplaceable.tick,
        "sweep": lambda: world.sweep(server),
        "commit": server.submitter.tick,
        "repair": lambda: world.repair(server),
        "fire": lambda: schedules.fire(world, server),
        "carry": server.graph_operations.tick,
    }[kind]
    if kind in LEADING and server.cluster_manager.term is None:
        return
    if kind not in server.busy:
        driver.start(f"{server.name} {kind}", lambda: world.alone(server, kind, tick))
