"""Runs the agent's process, for `duly agent` and as a child of `duly up`."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from duly.agent.agent import AgentOptions, run_agent
from duly.agent.capacity import detect
from duly.errors import ConfigError, DulyError
from duly.launch.event_loop import run
from duly.launch.interruption import run_node
from duly.launch.local.agent_process import AgentFlags, check_isolation
from duly.launch.local.child_process import receive, report_started, report_tasks_left
from duly.launch.logs import log_to_stderr
from duly.model.resources import Resources
from duly.model.wording import describe_unreadable


async def run_until_interrupted(
    flags: AgentFlags, joined: Callable[[], None], tasks_left: Callable[[int], None]
) -> int:
    """Run the agent until a signal, and return its exit code.

    The first signal returns the tasks to their queues, the second kills them at once. Meanwhile
    `tasks_left` is called with the number of tasks that have not ended, whenever it changes.
    """
    check_isolation(flags.isolation)
    options = _options(flags, joined, tasks_left)
    return await run_node(lambda stop: run_agent(options, stop))


def _options(
    flags: AgentFlags, joined: Callable[[], None], tasks_left: Callable[[int], None]
) -> AgentOptions:
    data = Path(flags.data)
    return AgentOptions(
        urls=[url.strip().rstrip("/") for url in flags.url.split(",") if url.strip()],
        data=data,
        name=flags.name or socket.gethostname(),
        capacity=_capacity(flags, data),
        join_token=_token(flags.join_token_file),
        trust=load_trust(flags.ca_file),
        labels=flags.labels,
        tasks_as=flags.tasks_as,
        port_range=flags.port_range,
        isolation=flags.isolation,
        cpu_quota=flags.cpu_quota,
        on_joined=joined,
        on_tasks_left=tasks_left,
    )


def _capacity(flags: AgentFlags, data: Path) -> Resources:
    first, last = flags.port_range or (0, -1)
    detected = detect(data, ports=last - first + 1)
    return Resources(
        cpu_milli=detected.cpu_milli if flags.cpu is None else round(flags.cpu * 1000),
        memory_mb=detected.memory_mb if flags.memory_mb is None else flags.memory_mb,
        disk_mb=detected.disk_mb if flags.disk_mb is None else flags.disk_mb,
        iops=flags.iops,
        bandwidth_mbps=flags.bandwidth_mbps,
        ports=detected.ports,
        extra=flags.extra,
    )


def _token(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        token = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Cannot read the join token from {file}: {describe_unreadable(error)}."
        ) from error
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"--join-token-file: {file} has more than a join token. It must have one line, as "
            "'duly node token create' prints it."
        )
    # An agent that has joined before needs none, so an empty file is fine.
    return token or None


def load_trust(ca_file: str | None) -> ssl.SSLContext | None:
    """Return a TLS context that trusts the certificates in a file; None without a file."""
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=Path(ca_file).expanduser())
    except OSError as error:
        raise ConfigError(
            f"Cannot load the certificates in {ca_file}: {error.strerror or 'it has none'}."
        ) from error


def main() -> None:
    """Run the agent inside the child process of `duly up`."""
    flags = receive(AgentFlags)
    log_to_stderr(verbose=flags.verbose)
    try:
        code = run(run_until_interrupted(flags, report_started, report_tasks_left))
    except DulyError as error:
        raise SystemExit(f"agent: {error.message}") from error
    raise SystemExit(code)


if __name__ == "__main__":
    main()
