"""How soon a task starts when nothing else is to be done: one at a time.

The task is `date`, which writes down when it runs: by then it has been forked, limited,
executed and linked. The clock is the one by which the submit was sent.
"""

import random
import time
from collections.abc import Iterator

from benchmarks import checks, cluster, installation
from benchmarks.endings import await_empty
from benchmarks.load import TRUE, Requests, send_all
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_most, percentile

DATE = TRUE | {"command": ["/bin/date", "+%s.%N"]}
WARM = 20
LONGEST_PAUSE = 0.03


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit one task at a time, and read from its output when it started."""
    count = rig.sizes.latencies
    sent = []
    dice = random.Random(1)
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        requests = Requests(place.url, place.key)
        request = requests.post("/v1/tasks", DATE)
        for _ in range(WARM + count):
            # Uneven, so that it does not fall into step with anything that is periodic.
            time.sleep(dice.random() * LONGEST_PAUSE)
            at = time.time()
            send_all(requests, [request], 1)
            sent.append((at, (time.time() - at) * 1000))
            await_empty(dsn)
        checks.all_done(dsn, WARM + count)
        started = _started(dsn)
    waits = [(began - at) * 1000 for (at, _), began in zip(sent, started, strict=True)][WARM:]
    if min(waits) < 0:
        raise checks.Wrong("a task started before it was submitted: the clock was set")
    answers = [took for _, took in sent][WARM:]
    for share, bound in ((0.5, 6.0), (0.99, 20.0)):
        yield Figure(
            part="latency",
            name=f"submit sent → process runs, one at a time, p{share * 100:.0f}",
            value=percentile(waits, share),
            unit="ms",
            target=at_most(bound),
            note="as the process itself wrote down",
        )
    yield Figure(
        part="latency",
        name="submit sent → answered, one at a time, p50",
        value=percentile(answers, 0.5),
        unit="ms",
    )


def _started(dsn: str) -> list[float]:
    """Return when each task ran, by its own word, in the order of submission."""
    found = cluster.rows(dsn, "select log_tail from duly.attempts order by task_id")
    return [float(row[0].decode()) for row in found]
