"""The table of all faults: what is done, what recovery means, and how long it may take."""

from tests.torture import clock_faults as clock
from tests.torture import database_faults as database
from tests.torture import network_faults as network
from tests.torture import node_faults as node
from tests.torture import server_faults as server
from tests.torture.clocks import are_settable
from tests.torture.fault import Criterion, Fault, Inject, InjectedFault, Since

__all__ = ["FAULTS", "Criterion", "Fault", "InjectedFault", "Since", "available_faults"]

LEADER_CHANGE_SECONDS = 5.0
RERUN_SECONDS = 20.0
RECONNECT_SECONDS = 10.0
FAILOVER_SECONDS = 15.0
CONVERGE_SECONDS = 30.0


def _dispatch(name: str, injector: Inject) -> Fault:
    return Fault(
        name, "server", injector, Criterion.DISPATCH, LEADER_CHANGE_SECONDS, Since.INJECTED
    )


def _rerun(name: str, injector: Inject) -> Fault:
    return Fault(name, "node", injector, Criterion.RERUN, RERUN_SECONDS, Since.INJECTED)


def _submit(
    name: str, kind: str, injector: Inject, target: float, since: Since = Since.HEALED
) -> Fault:
    return Fault(name, kind, injector, Criterion.SUBMIT, target, since)


def _converge(name: str, kind: str, injector: Inject) -> Fault:
    return Fault(name, kind, injector, Criterion.CONVERGED, CONVERGE_SECONDS, Since.HEALED)


_ALL = [
    _dispatch("leader killed", server.leader_killed),
    _dispatch("leader stopped", server.leader_stopped),
    _submit("server killed", "server", server.server_killed, LEADER_CHANGE_SECONDS, Since.INJECTED),
    _submit("server killed before answering", "server", server.server_killed_before_answering,
            LEADER_CHANGE_SECONDS, Since.INJECTED),
    _submit("rolling restart", "server", server.rolling_restart, LEADER_CHANGE_SECONDS),
    _rerun("agent killed", node.agent_killed),
    _rerun("node killed", node.node_killed),
    _rerun("agent stopped", node.agent_stopped),
    _rerun("node frozen", node.node_frozen),
    _converge("agent cut off", "network", network.partition(network.agent_and_servers)),
    _converge("agent cut off one way", "network", network.one_way(network.agent_and_servers)),
    _converge("agent's link flaps", "network", network.flapping(network.agent_and_servers)),
    _converge("server cut off from database", "network",
              network.partition(network.server_and_database)),
    _converge("server cut off from database one way", "network",
              network.one_way(network.server_and_database)),
    _converge("server's link to database flaps", "network",
              network.flapping(network.server_and_database)),
    _converge("all servers cut off from database", "network",
              network.partition(network.every_server_and_database)),
    _converge("servers cut off from each other", "network", network.partition(network.servers)),
    _submit("connections of agents reset", "network",
            network.reset(network.every_agent_and_server), RECONNECT_SECONDS),
    _submit("connections to database reset", "network",
            network.reset(network.every_server_and_database), RECONNECT_SECONDS),
    _submit("connections of agents half-open", "network",
            network.half_open(network.every_agent_and_server), RECONNECT_SECONDS, Since.INJECTED),
    _submit("connections to database half-open", "network",
            network.half_open(network.every_server_and_database), RECONNECT_SECONDS,
            Since.INJECTED),
    _submit("connections to database cut short", "network", network.cut_short, RECONNECT_SECONDS),
    _submit("PostgreSQL killed", "database", database.postgres_killed, RECONNECT_SECONDS),
    _submit("failover", "database", database.failover, FAILOVER_SECONDS),
    _submit("waits for standby cancelled", "database", database.sync_waits_cancelled,
            RECONNECT_SECONDS),
    _submit("waits for standby cancelled and failover", "database",
            database.sync_waits_cancelled_then_failover, FAILOVER_SECONDS),
    _submit("standby lost", "database", database.standby_lost, RECONNECT_SECONDS),
    _converge("database late", "database", database.slow_by_latency),
    _converge("database throttled", "database", database.slow_by_bandwidth),
    _submit("database stalled", "database", database.stalled, RECONNECT_SECONDS),
    _submit("table locked", "database", database.table_locked, RECONNECT_SECONDS),
    _submit("database's disk full", "disk", database.database_disk_full, RECONNECT_SECONDS),
    _converge("node's disk full", "disk", node.node_disk_full),
    _converge("server's clock jumps", "clock", clock.server_clock_jumps),
    _converge("agent's clock jumps", "clock", clock.agent_clock_jumps),
    _converge("clock swings", "clock", clock.clock_swings),
    _converge("database's clock jumps", "clock", clock.database_clock_jumps),
]  # fmt: skip

FAULTS = {fault.name: fault for fault in _ALL}


def available_faults() -> list[Fault]:
    """Return the faults that can be injected on this machine; clock faults need libfaketime."""
    return [fault for fault in FAULTS.values() if fault.kind != "clock" or are_settable()]
