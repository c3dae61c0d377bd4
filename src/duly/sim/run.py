"""Runs a workload, from its file to its report."""

import time
from pathlib import Path

from duly.sim.report import Report, make_report
from duly.sim.simulation import Progress, Simulation
from duly.sim.workloads.fleet_options import FleetOptions
from duly.sim.workloads.swf import is_trace, read_trace
from duly.sim.workloads.workload import Workload
from duly.sim.workloads.workload_file import read_workload


def load(file: Path, options: FleetOptions) -> Workload:
    """Read a workload or, by the ending of its name, a trace."""
    return read_trace(file, options) if is_trace(file) else read_workload(file, options)


def simulate(
    workload: Workload, policy: str, seed: int, progress: Progress | None = None
) -> tuple[Simulation, Report]:
    """Run a workload under a policy."""
    simulation = Simulation(workload, policy, seed)
    began = time.process_time()
    simulation.run(progress)
    return simulation, make_report(simulation, policy, time.process_time() - began)
