"""`python -m benchmarks.timing_leak`: tests for a timing side channel between tenants.

A task of another tenant and a task that does not exist give the same 404 response. Both kinds of
ids are requested over one connection, in random order. The output has the latencies, and how often
the slower of two responses was the one about a foreign id, for single responses and for medians of
a hundred: 50 % is chance.
"""

import argparse
import json
import random
import statistics
import time

from benchmarks import cluster, installation
from benchmarks.load import TRUE_TASK, Client, Requests, send_all
from duly.bench.figure import percentile
from duly.model.tenant import Scope

TASKS = 1000
SAMPLE = 100


def measure(count: int, seed: int) -> dict[str, list[float]]:
    """Return the latencies in seconds of requests for foreign and for unknown ids."""
    rng = random.Random(seed)
    with (
        cluster.started() as postgres,
        postgres.database(template=None) as dsn,
        installation.serve(postgres, dsn) as instance,
    ):
        owner = Requests(instance.url, instance.key)
        _, bodies = send_all(owner, [owner.batch(TASKS, TRUE_TASK)], 1)
        foreign = [int(task) for task in json.loads(bodies[0])["ids"]]
        cluster.run(
            instance.dsn, "insert into duly.tenants (name, plan) values ('other', 'unlimited')"
        )
        stranger = Requests(
            instance.url, installation.create_key(instance.dsn, "other", Scope.READ)
        )
        # The same ids with the number of another server: as long, as far apart, and unused.
        ids = {"foreign": foreign, "unknown": [task + (200 << 17) for task in foreign]}
        latencies: dict[str, list[float]] = {kind: [] for kind in ids}
        client = Client(stranger.address, (b"404", b"503"))
        for number in range(count + SAMPLE):
            for kind in rng.sample(sorted(ids), 2):
                request = stranger.get(f"/v1/tasks/{rng.choice(ids[kind])}")
                began = time.perf_counter()
                body = client.request(request)
                # A 503 comes from a machine that stood still, and says nothing about ids.
                if number >= SAMPLE and b'"not_found"' in body:
                    latencies[kind].append(time.perf_counter() - began)
        client.socket.close()
        return latencies


def best_guess_share(foreign: list[float], unknown: list[float]) -> float:
    """Return how often the better guess is right: that the slower, or faster, one is foreign."""
    ranks = sorted([(seconds, 1) for seconds in foreign] + [(seconds, 0) for seconds in unknown])
    below, correct = 0, 0
    for _, is_foreign in ranks:
        correct += below if is_foreign else 0
        below += 1 - is_foreign
    share = correct / (len(foreign) * len(unknown))
    return max(share, 1 - share)


def medians(latencies: list[float]) -> list[float]:
    """Return the median of every SAMPLE latencies."""
    return [
        statistics.median(latencies[at : at + SAMPLE]) for at in range(0, len(latencies), SAMPLE)
    ]


def main() -> None:
    """Measure, and print the percentiles of each kind and the share of right guesses."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing_leak", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="requests of each kind [20000]")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    latencies = measure(arguments.count, arguments.seed)
    for kind, times in latencies.items():
        shares = ((share, percentile(times, share) * 1e6) for share in (0.05, 0.5, 0.95))
        print(f"{kind}: " + ", ".join(f"p{share * 100:.0f} {at:.1f} µs" for share, at in shares))
    foreign, unknown = latencies["foreign"], latencies["unknown"]
    print(f"guessed right from two responses: {best_guess_share(foreign, unknown):.1%}")
    print(
        f"from two medians of {SAMPLE}: {best_guess_share(medians(foreign), medians(unknown)):.1%}"
    )


if __name__ == "__main__":
    main()
