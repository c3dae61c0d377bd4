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
from tests.torture.faults import FAULTS, Fault, Inflicted, Recovered
from tests.torture.run_result import Episode

Say = Callable[[str], None]
"""Tells whoever waits for a run how far it is."""
WARM_UP = 5.0
LAST_FAULT = 30.0
"""Seconds before the end in which no fault begins any more."""
PEACE = 1.0
"""Seconds for which a lane is left in peace after all is well again."""


class FaultInjector:
    """What is done to a cluster; each lane is a thread."""

    def __init__(
        self, cluster: Cluster, cards: Sequence[WeightedFault], seed: int, sights: Path, say: Say
    ) -> None:
        self.episodes: list[Episode] = []
        self.mishaps: list[str] = []
        """What the lab itself could not do; a run with one of these shows nothing."""
        self._cluster = cluster
        self._cards = cards
        self._seed = seed
        self._sights = sights
        self._say = say
        self._began = clock.monotonic()
        self._counts: Counter[str] = Counter()
        self._lanes = {lane: threading.Lock() for lane in fault_order.lanes(cards)}

    def run_faults(self, until: float, decks: int | None = None) -> None:
        """Inflict one fault after the other in every lane, until it is time to end.

        With `decks`, it is over as soon as each fault has come so many times.
        """
        time.sleep(WARM_UP)
        last = until - LAST_FAULT
        threads = [
            threading.Thread(target=self._go, args=(lane, last, decks), name=lane, daemon=True)
            for lane in self._lanes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if decks is None:
            time.sleep(max(until - clock.monotonic(), 0.0))

    def _go(self, lane: str, until: float, decks: int | None) -> None:
        for step in fault_order.draw(self._cards, lane, self._seed, decks=decks):
            time.sleep(step.pause)
            with self._room(step.card):
                if clock.monotonic() > until:
                    return
                self._inflict(step.card)

    @contextmanager
    def _room(self, card: WeightedFault) -> Iterator[None]:
        """Keep a fault apart from those that it must not meet."""
        with ExitStack() as held:
            for lane, lock in self._lanes.items():
                if card.is_alone or lane == card.lane:
                    held.enter_context(lock)
            yield

    def _inflict(self, card: WeightedFault) -> None:
        """Inflict a fault, undo it, and wait until all is well again, or should be."""
        fault = FAULTS[card.name]
        self._counts[card.name] += 1
        dice = Random(f"{self._seed}/{card.name}/{self._counts[card.name]}")
        try:
            inflicted = fault.inflict(self._cluster, dice)
            time.sleep(max(inflicted.began + inflicted.lasts - clock.monotonic(), 0.0))
            inflicted.heal()
        except Exception as error:  # whatever it is, the other faults can still be tried
            self.mishaps.append(f"[lab] {card.name}: {type(error).__name__}: {error}")
            self._say(self.mishaps[-1])
            self._cluster.heal()
            return
        episode = self._episode(card, fault, inflicted)
        self.episodes.append(episode)
        lasted = episode.healed - episode.began
        self._say(f"{self._elapsed(episode.began)} {card.name}: {episode.on} ({lasted:.0f} s)")
        self._settle(episode)

    def _episode(self, card: WeightedFault, fault: Fault, inflicted: Inflicted) -> Episode:
        hosts = [name for name in self._cluster.names if re.search(rf"\b{name}\b", inflicted.on)]
        return Episode(
            fault=card.name,
            kind=fault.kind,
            on=inflicted.on,
            hosts=tuple(hosts),
            began=inflicted.began,
            healed=inflicted.healed or clock.monotonic(),
            lane=card.lane,
            clock=fault.recovered,
            since=fault.clock_starts(inflicted) or clock.monotonic(),
            target=fault.target,
        )

    def _elapsed(self, at: float) -> str:
        minutes, seconds = divmod(int(at - self._began), 60)
        return f"{minutes:3}:{seconds:02}"

    def _settle(self, episode: Episode) -> None:
        """Wait until those that were hit are at work again, for as long as that may take."""
        last = episode.healed + episode.target
        while clock.monotonic() < last:
            sight = cluster_watch.latest(self._sights)
            if sight is not None and sight.at >= episode.healed and sight.shows(episode.hosts):
                break
            time.sleep(cluster_watch.INTERVAL)
        if episode.clock == Recovered.RERUN:
            # The promise is about a cluster with nothing else wrong.
            time.sleep(max(episode.since + episode.target - clock.monotonic(), 0.0))
        time.sleep(PEACE)
