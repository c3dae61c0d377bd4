"""What must hold after every event of a simulation, computed without the policies."""

from duly.model.queues.queue import Queue
from duly.model.resources import KINDS, NO_RESOURCES
from duly.sim.task import instant

PRECEDENCE = {Queue.URGENT: 0, None: 3, Queue.OFF_PEAK: 4}
OUT_OF_SLACK = 1
ROUNDING = 1e-6


class Violation(AssertionError):
    """An invariant that does not hold."""


class Invariants:
    """Checks a simulation as it goes."""

    def __init__(self):
        self.arrived = set()
        self._started = set()
        self._may_be_held = False
        self._before = None
        self._peak = frozenset()
        """The kinds of resources that were at peak when the last round began."""
        self.rounds = 0

    def after_events(self, simulation):
        self._check_nodes(simulation)
        self._may_be_held = False
        self._before = self._look(simulation)

    def after_round(self, simulation, decided):
        self.rounds += 1
        self._peak = self._before[3]
        self._check_nodes(simulation)
        self._may_be_held |= any(ask.may_hold for _, ask in decided.unplaced)
        self._check_order(simulation, decided)
        if not self._may_be_held:
            self._check_entitled_first(simulation, decided)
        self._before = self._look(simulation)

    def after_rounds(self, simulation):
        if not self._may_be_held:
            self._check_nothing_idles(simulation)

    def _look(self, simulation):
        """Remember what runs, what is free and who waits."""
        running = {}
        for node in simulation.cluster.nodes.values():
            for attempt in node.running.values():
                if node.is_ready:
                    key = attempt.task.tenant_id
                    needs = simulation.workload.shapes[attempt.task.shape_id].needs
                    running[key] = running.get(key, NO_RESOURCES).plus(needs)
        free = {
            node.id: _free(simulation, node)
            for node in simulation.cluster.nodes.values()
            if node.is_ready
        }
        peak = _peak(simulation, self._peak)
        return running, free, _startable_tenants(simulation, peak), peak

    def _check_nodes(self, simulation):
        seen = set()
        for node in simulation.cluster.nodes.values():
            for kind, amount in _free(simulation, node).items():
                if amount < 0:
                    raise Violation(f"node {node.id} is {-amount} above its capacity of {kind}")
            for id_ in node.running:
                if id_ in seen:
                    raise Violation(f"task {id_} runs twice")
                seen.add(id_)
        if waiting := seen & {task.id for task in _waiting(simulation)}:
            raise Violation(f"tasks {waiting} wait and run")

    def _check_order(self, simulation, decided):
        """A task does not start before one of its tenant and shape that goes first."""
        for task, _ in decided.starts:
            subqueue = simulation.waiting.by_shape.get(task.shape_id, {}).get(task.tenant_id, ())
            for other in subqueue:
                if _rank(other) < _rank(task) and other.run_time_bound <= task.run_time_bound:
                    raise Violation(f"task {task.id} started before {other.id}")

    def _check_entitled_first(self, simulation, decided):
        """No task beyond its tenant's share takes the room of one within its tenant's share."""
        running, free, competing, _ = self._before
        running, free = dict(running), dict(free)
        total = simulation.cluster.capacity
        weights = simulation.workload.weights
        others = sum(
            held.share_of(total) for tenant, held in running.items() if tenant not in competing
        )
        per_weight = max(0.0, 1 - others) / sum(weights[tenant] for tenant in competing or [0])
        beyond = None
        for task, node_id in decided.starts:
            needs = simulation.workload.shapes[task.shape_id].needs
            held = running.get(task.tenant_id, NO_RESOURCES).plus(needs)
            running[task.tenant_id] = held
            if held.share_of(total) <= per_weight * weights[task.tenant_id] + ROUNDING:
                free[node_id] = free[node_id].plus(needs, -1)
            else:
                beyond = beyond or task
        if beyond is None:
            return
        peak = _peak(simulation, self._peak)
        for tenant in competing:
            head = _first(simulation, tenant, peak)
            if head is None:
                continue
            needs = simulation.workload.shapes[head.shape_id].needs
            share = running.get(tenant, NO_RESOURCES).plus(needs).share_of(total)
            if share <= per_weight * weights[tenant] - ROUNDING and any(
                _fits(simulation, head, node_id, room) for node_id, room in free.items()
            ):
                raise Violation(
                    f"task {beyond.id} took the room of {head.id}, to which tenant {tenant} is "
                    "entitled"
                )

    def _check_nothing_idles(self, simulation):
        peak = _peak(simulation, self._peak)
        for tenant in _startable_tenants(simulation, peak):
            for subqueues in simulation.waiting.by_shape.values():
                for head in list(subqueues.get(tenant, ()))[:1]:
                    if _postponed(simulation, head, peak):
                        continue
                    for node in simulation.cluster.nodes.values():
                        room = _free(simulation, node)
                        if node.is_ready and _fits(simulation, head, node.id, room):
                            raise Violation(f"task {head.id} waits and node {node.id} has room")


def check_end(simulation, total):
    """Check what holds once everything has ended."""
    if simulation.unfinished or simulation.waiting.counts:
        raise Violation("tasks are left")
    if simulation.recorder.ended != total:
        raise Violation(f"{simulation.recorder.ended} tasks of {total} have ended")
    if any(node.running for node in simulation.cluster.nodes.values() if not node.has_crashed):
        raise Violation("something still runs")


def _waiting(simulation):
    for subqueues in simulation.waiting.by_shape.values():
        for subqueue in subqueues.values():
            yield from subqueue


def _free(simulation, node):
    free = node.capacity
    for attempt in node.running.values():
        free = free.plus(simulation.workload.shapes[attempt.task.shape_id].needs, -1)
    return free


def _fits(simulation, task, node_id, room):
    shape = simulation.workload.shapes[task.shape_id]
    labels = simulation.cluster.nodes[node_id].labels
    has_labels = shape.requires.items() <= labels.items()
    amounts = ((kind, getattr(shape.needs, kind)) for kind in KINDS)
    return has_labels and all(getattr(room, kind) >= amount for kind, amount in amounts if amount)


def _slack(simulation, task):
    return task.start_by - instant(simulation.world.now)


def _peak(simulation, before):
    """Return the kinds of resources at peak, given those that were before."""
    scheduling = simulation.workload.scheduling
    ready = [node for node in simulation.cluster.nodes.values() if node.is_ready]
    peak = set()
    for kind in KINDS:
        whole = sum(getattr(node.capacity, kind) for node in ready)
        used = whole - sum(getattr(_free(simulation, node), kind) for node in ready)
        continues = kind in before and 100 * used > scheduling.off_peak_percent * whole
        if whole and (continues or 100 * used >= scheduling.peak_percent * whole):
            peak.add(kind)
    return frozenset(peak)


def _postponed(simulation, task, peak):
    """Return True if a task waits for the end of peak time."""
    shape = simulation.workload.shapes[task.shape_id]
    scheduling = simulation.workload.scheduling
    limit = scheduling.postpone_slack
    if shape.queue == Queue.OFF_PEAK:
        limit = scheduling.urgent_slack
    if shape.queue == Queue.URGENT or _slack(simulation, task) <= limit:
        return False
    return any(getattr(shape.needs, kind) for kind in peak)


def _startable_tenants(simulation, peak):
    return {
        task.tenant_id for task in _waiting(simulation) if not _postponed(simulation, task, peak)
    }


def _rank(task):
    return task.start_by, -task.priority, -task.remaining_path, task.expected_run_time, task.id


def _first(simulation, tenant, peak):
    """Return a tenant's first task in its own order."""
    own = [task for task in _waiting(simulation) if task.tenant_id == tenant]
    own = [task for task in own if not _postponed(simulation, task, peak)]
    urgent_slack = simulation.workload.scheduling.urgent_slack

    def key(task):
        queue = simulation.workload.shapes[task.shape_id].queue
        is_due = queue != Queue.URGENT and _slack(simulation, task) <= urgent_slack
        return OUT_OF_SLACK if is_due else PRECEDENCE[queue], *_rank(task)

    return min(own, key=key, default=None)
