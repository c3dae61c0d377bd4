"""The command that starts a node's agent."""

import os
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.processes import IsolationFlag, VerboseFlag, tell

UrlFlag = Annotated[
    str, typer.Option(metavar="URL[,URL…]", help="The servers, any of which will do.")
]
DataFlag = Annotated[
    Path, typer.Option(metavar="DIR", help="Where the node keeps its identity and its work.")
]
JoinTokenFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with a join token; needed the first time."),
]
CaFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Certificates to trust, for https; also DULY_CA_FILE."),
]
NameFlag = Annotated[
    str | None, typer.Option(help="What the node is called; this machine's name if not said.")
]
TasksAsFlag = Annotated[
    str | None,
    typer.Option(metavar="USER", help="Run tasks as this user, not each as one of its own."),
]
CpuFlag = Annotated[
    float | None, typer.Option(metavar="CORES", help="What it offers; all it has if not said.")
]
MemoryFlag = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Such as 4GiB; most of it if not said.")
]
DiskFlag = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Such as 100GiB; what is free if not said.")
]
IopsFlag = Annotated[int, typer.Option(metavar="N", min=0, help="Disk accesses per second.")]
BandwidthFlag = Annotated[int, typer.Option(metavar="MBIT", min=0, help="Network, in Mbit/s.")]
PortRangeFlag = Annotated[
    str | None, typer.Option(metavar="A-B", help="TCP ports that tasks may be given.")
]
CpuQuotaFlag = Annotated[
    bool, typer.Option("--cpu-quota", help="Give tasks no more cpu than they asked for, ever.")
]
ExtraFlag = Annotated[
    list[str] | None, typer.Option(metavar="KIND=N", help="Other resources, such as gpu=1.")
]
LabelFlag = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="What the node is known by.")
]


def agent(
    url: UrlFlag,
    data: DataFlag,
    join_token_file: JoinTokenFlag = None,
    ca_file: CaFlag = None,
    name: NameFlag = None,
    isolation: IsolationFlag = "process",
    tasks_as: TasksAsFlag = None,
    cpu: CpuFlag = None,
    memory: MemoryFlag = None,
    disk: DiskFlag = None,
    iops: IopsFlag = 0,
    bandwidth: BandwidthFlag = 0,
    port_range: PortRangeFlag = None,
    cpu_quota: CpuQuotaFlag = False,
    extra: ExtraFlag = None,
    label: LabelFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Start a node's agent: it asks the servers for tasks and runs them here.

    It listens on nothing. Ctrl-C hands its tasks back to their queue; a second one hurries.
    """
    from duly.cli.node_flags import read_amounts, read_pairs, read_range, read_size
    from duly.launch.agent import run_until_interrupted
    from duly.launch.agent_part import AgentFlags
    from duly.launch.logs import log_to_stderr
    from duly.launch.running import run

    log_to_stderr(verbose=verbose)

    flags = AgentFlags(
        url=url,
        data=str(data.absolute()),
        join_token_file=None if join_token_file is None else str(join_token_file),
        ca_file=str(ca_file) if ca_file else os.environ.get("DULY_CA_FILE") or None,
        name=name,
        isolation=isolation,
        tasks_as=tasks_as,
        cpu=cpu,
        memory_mb=read_size(memory, "--memory"),
        disk_mb=read_size(disk, "--disk"),
        iops=iops,
        bandwidth_mbps=bandwidth,
        port_range=read_range(port_range),
        cpu_quota=cpu_quota,
        extra=read_amounts(extra or []),
        labels=read_pairs(label or [], "--label"),
        verbose=verbose,
    )
    raise typer.Exit(run(run_until_interrupted(flags, lambda: tell("joined"))))
