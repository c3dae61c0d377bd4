"""The table of all faults: what is done, what recovery means, and how long it may take."""

from tests.torture import clock_faults as clock
from tests.torture import database_faults as database
from tests.torture import network_faults as network
from tests.torture import node_faults as node
from tests.torture import server_faults as server
from tests.torture.clocks import are_settable
from tests.torture.fault import Fault, Inflict, Inflicted, Recovered, Since

__all__ = ["FAULTS", "Fault", "Inflicted", "Recovered", "Since", "possible"]

LEAD = 5.0
RERUN = 20.0
RECONNECT = 10.0
FAILOVER = 15.0
CONVERGE = 30.0


def _dispatch(name: str, do: Inflict) -> Fault:
    return Fault(name, "server", do, Recovered.DISPATCH, LEAD, Since.INFLICTED)


def _rerun(name: str, do: Inflict) -> Fault:
    return Fault(name, "node", do, Recovered.RERUN, RERUN, Since.INFLICTED)


def _submit(name: str, kind: str, do: Inflict, target: float, since: Since = Since.HEALED) -> Fault:
    return Fault(name, kind, do, Recovered.SUBMIT, target, since)


def _converge(name: str, kind: str, do: Inflict) -> Fault:
    return Fault(name, kind, do, Recovered.CONVERGED, CONVERGE, Since.HEALED)


_ALL = [
    _dispatch("leader killed", server.leader_killed),
    _dispatch("leader stopped", server.leader_stopped),
    _submit("server killed", "server", server.server_killed, LEAD, Since.INFLICTED),
    _submit("server killed before answering", "server", server.server_killed_before_answering,
            LEAD, Since.INFLICTED),
    _submit("rolling restart", "server", server.rolling_restart, LEAD),
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
            network.reset(network.every_agent_and_server), RECONNECT),
    _submit("connections to database reset", "network",
            network.reset(network.every_server_and_database), RECONNECT),
    _submit("connections of agents half-open", "network",
            network.half_open(network.every_agent_and_server), RECONNECT, Since.INFLICTED),
    _submit("connections to database half-open", "network",
            network.half_open(network.every_server_and_database), RECONNECT, Since.INFLICTED),
    _submit("connections to database cut short", "network", network.cut_short, RECONNECT),
    _submit("PostgreSQL killed", "database", database.postgres_killed, RECONNECT),
    _submit("failover", "database", database.failover, FAILOVER),
    _submit("waits for standby cancelled", "database", database.sync_waits_cancelled, RECONNECT),
    _submit("waits for standby cancelled and failover", "database",
            database.sync_waits_cancelled_then_failover, FAILOVER),
    _submit("standby lost", "database", database.standby_lost, RECONNECT),
    _converge("database late", "database", database.slow_by_latency),
    _converge("database throttled", "database", database.slow_by_bandwidth),
    _submit("database stalled", "database", database.stalled, RECONNECT),
    _submit("table locked", "database", database.table_locked, RECONNECT),
    _submit("database's disk full", "disk", database.database_disk_full, RECONNECT),
    _converge("node's disk full", "disk", node.node_disk_full),
    _converge("server's clock jumps", "clock", clock.server_clock_jumps),
    _converge("agent's clock jumps", "clock", clock.agent_clock_jumps),
    _converge("clock swings", "clock", clock.clock_swings),
    _converge("database's clock jumps", "clock", clock.database_clock_jumps),
]  # fmt: skip

FAULTS = {fault.name: fault for fault in _ALL}


def possible() -> list[Fault]:
    """Return the faults that this machine can have; clocks need libfaketime."""
    return [fault for fault in FAULTS.values() if fault.kind != "clock" or are_settable()]
