"""Measures the start-up time of CLI commands."""

import os
import subprocess
import time
from collections.abc import Iterator

from benchmarks import installation
from benchmarks.installation import DULY
from benchmarks.load import TRUE_TASK
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_most, median


def measure(rig: Rig) -> Iterator[Figure]:
    """Start each command several times, and report the median."""
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as instance:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(instance.folder / "home"),
            "DULY_URL": instance.url,
            "DULY_KEY": instance.key,
        }
        with instance.client() as client:
            task = client.submit(**TRUE_TASK)["id"]
        for arguments, bound in ((("--help",), 0.2), (("show", task), 0.35)):
            name = "duly --help" if len(arguments) == 1 else "duly show ID"
            seconds = [_time(arguments, environment) for _ in range(rig.sizes.cli_starts)]
            yield Figure(
                part="cli", name=name, value=median(seconds), unit="s", target=at_most(bound)
            )


def _time(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run([DULY, *arguments], env=environment, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"duly {arguments[0]}: {done.stderr.decode()}")
    return time.perf_counter() - began
