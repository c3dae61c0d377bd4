"""`duly agent`: starts a node's agent."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from duly.cli.connect import print_notice
from duly.cli.fleet.processes import IsolationFlag, VerboseFlag, print_output
from duly.model.wording import count_of

UrlFlag = Annotated[
    str, typer.Option(metavar="URL[,URL…]", help="The servers; any one of them suffices.")
]
DataFlag = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder for the node's identity and working files.")
]
JoinTokenFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with a join token; required for the first start."),
]
CaFlag = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CA certificates to trust for https; also DULY_CA_FILE."),
]
NameFlag = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the node. [default: host name]")
]
TasksAsFlag = Annotated[
    str | None,
    typer.Option(metavar="USER", help="Run all tasks as this user, not each as a user of its own."),
]
CpuFlag = Annotated[
    float | None, typer.Option(metavar="CPUS", help="CPUs to offer. [default: all]")
]
MemoryFlag = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory to offer, such as 4GiB. [default: most of it]"),
]
DiskFlag = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Disk to offer, such as 100GiB. [default: what is free]"),
]
IopsFlag = Annotated[int, typer.Option(metavar="N", min=0, help="Disk I/O operations per second.")]
BandwidthFlag = Annotated[
    int, typer.Option(metavar="MBIT", min=0, help="Network bandwidth in Mbit/s.")
]
PortRangeFlag = Annotated[
    str | None,
    typer.Option(metavar="A-B", help="TCP ports to assign to tasks, such as 20000-20999."),
]
CpuQuotaFlag = Annotated[
    bool,
    typer.Option(
        "--cpu-quota", help="Limit tasks to the CPUs that they asked for, even if others are idle."
    ),
]
ExtraFlag = Annotated[
    list[str] | None, typer.Option(metavar="KIND=N", help="Custom resources, such as gpu=1.")
]
LabelFlag = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A label of the node, for --require of tasks."),
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
    """Start an agent: it makes this machine a node and runs tasks here.

    It opens no port. Ctrl-C returns its tasks to their queue; a second Ctrl-C stops at once.
    """
    from duly.cli.fleet.node_flags import read_amounts, read_range, read_size
    from duly.cli.tasks.submission.request import parse_pairs
    from duly.launch.agent import run_until_interrupted
    from duly.launch.event_loop import run
    from duly.launch.local.agent_process import AgentFlags
    from duly.launch.logs import log_to_stderr

    log_to_stderr(verbose=verbose)
    cores = len(os.sched_getaffinity(0))
    if cpu is not None and cpu > cores:
        print_notice(
            f"--cpu: {cpu:g} is more than the {count_of(cores, 'CPU')} of this machine, which its "
            "tasks will share."
        )

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
        labels=parse_pairs("--label", label),
        verbose=verbose,
    )
    joined = lambda: print_output("joined")  # noqa: E731
    raise typer.Exit(run(run_until_interrupted(flags, joined, tell_tasks_left)))


def tell_tasks_left(tasks: int) -> None:
    """Tell a person at a terminal what a stopping agent waits for."""
    if tasks and sys.stderr.isatty():
        what = "1 task has" if tasks == 1 else f"{tasks} tasks have"
        print_notice(f"Stopping: {what} not ended yet. Press Ctrl-C again to kill what is left.")
