"""Injects faults into a cluster, one thread per lane, and records when each began and ended."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from duly import clock
from tests.torture import cluster_watch, fault_order
from tests.torture.cluster import Cluster
from tests.torture.fault_order import WeightedFault
from tests.torture.faults import FAULTS, Criterion, Fault, InjectedFault
from tests.torture.run_result import Episode

Log = Callable[[str], None]
"""Prints the progress of a run."""
WARM_UP_SECONDS = 5.0
FAULT_FREE_TAIL_SECONDS = 30.0
"""Seconds before the end in which no fault is injected."""
PAUSE_AFTER_RECOVERY_SECONDS = 1.0
"""Seconds without a fault in a lane after recovery."""


class FaultInjector:
    """Injects faults into a cluster, one thread per lane."""

    def __init__(
        self,
        cluster: Cluster,
        faults: Sequence[WeightedFault],
        seed: int,
        observations: Path,
        log: Log,
    ) -> None:
        self.episodes: list[Episode] = []
        self.lab_errors: list[str] = []
        """Errors of the lab itself, which invalidate the run."""
        self._cluster = cluster
        self._faults = faults
        self._seed = seed
        self._observations = observations
        self._log = log
        self._began = clock.monotonic()
        self._counts: Counter[str] = Counter()
        self._lanes = {lane: threading.Lock() for lane in fault_order.lanes(faults)}

    def run_faults(self, until: float, repetitions: int | None = None) -> None:
        """Inject one fault after another in every lane, until shortly before `until`.

        With `repetitions`, return as soon as each fault was injected that many times.
        """
        time.sleep(WARM_UP_SECONDS)
        last = until - FAULT_FREE_TAIL_SECONDS
        threads = [
            threading.Thread(
                target=self._run_lane, args=(lane, last, repetitions), name=lane, daemon=True
            )
            for lane in self._lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if repetitions is None:
            time.sleep(max(until - clock.monotonic(), 0.0))

    def _run_lane(self, lane: str, until: float, repetitions: int | None) -> None:
        for step in fault_order.draw(self._faults, lane, self._seed, repetitions=repetitions):
            time.sleep(step.pause)
            with self._exclusion(step.fault):
                if clock.monotonic() > until:
                    return
                self._inflict(step.fault)

    @contextmanager
    def _exclusion(self, weighted: WeightedFault) -> Iterator[None]:
        """Hold the locks of the lanes in which no other fault may be active."""
        with ExitStack() as locks:
            for lane, lock in self._lanes.items():
                if weighted.is_exclusive or lane == weighted.lane:
                    locks.enter_context(lock)
            yield

    def _inflict(self, weighted: WeightedFault) -> None:
        """Inject a fault, heal it, and wait until the cluster has recovered or should have."""
        fault = FAULTS[weighted.name]
        self._counts[weighted.name] += 1
        rng = Random(f"{self._seed}/{weighted.name}/{self._counts[weighted.name]}")
        try:
            injected = fault.inject(self._cluster, rng)
            time.sleep(max(injected.began + injected.duration - clock.monotonic(), 0.0))
            injected.heal()
        except Exception as error:  # the other faults can still be injected
            self.lab_errors.append(f"[lab] {weighted.name}: {type(error).__name__}: {error}")
            self._log(self.lab_errors[-1])
            self._cluster.heal()
            return
        episode = self._episode(weighted, fault, injected)
        self.episodes.append(episode)
        lasted = episode.healed - episode.began
        self._log(f"{self._elapsed(episode.began)} {weighted.name}: {episode.on} ({lasted:.0f} s)")
        self._await_recovery(episode)

    def _episode(self, weighted: WeightedFault, fault: Fault, injected: InjectedFault) -> Episode:
        hosts = [name for name in self._cluster.names if re.search(rf"\b{name}\b", injected.on)]
        return Episode(
            fault=weighted.name,
            kind=fault.kind,
            on=injected.on,
            hosts=tuple(hosts),
            began=injected.began,
            healed=injected.healed or clock.monotonic(),
            lane=weighted.lane,
            clock=fault.criterion,
            since=fault.measured_from(injected) or clock.monotonic(),
            target=fault.target,
        )

    def _elapsed(self, at: float) -> str:
        minutes, seconds = divmod(int(at - self._began), 60)
        return f"{minutes:3}:{seconds:02}"

    def _await_recovery(self, episode: Episode) -> None:
        """Wait until the affected hosts have recovered, at most for the target of the fault."""
        last = episode.healed + episode.target
        while clock.monotonic() < last:
            observation = cluster_watch.latest(self._observations)
            if (
                observation is not None
                and observation.at >= episode.healed
                and observation.shows(episode.hosts)
            ):
                break
            time.sleep(cluster_watch.INTERVAL_SECONDS)
        if episode.clock == Criterion.RERUN:
            # The promise assumes that no other fault is active.
            time.sleep(max(episode.since + episode.target - clock.monotonic(), 0.0))
        time.sleep(PAUSE_AFTER_RECOVERY_SECONDS)
