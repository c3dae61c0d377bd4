"""`python -m benchmarks.timing_leak`: tests for a timing side channel between tenants.

What is another's and what does not exist are both answered 404, with the same bytes. Ids of
another tenant's tasks and ids that nobody has are asked for over one connection, in random
order. Told is how long the answers took, and how often one guesses right which of two answers
was about a foreign id, and of two medians of a hundred: half of the time is by chance.
"""

import argparse
import json
import random
import statistics
import time

from benchmarks import cluster, installation
from benchmarks.load import TRUE, Client, Requests, send_all
from duly.bench.figure import percentile
from duly.model.tenant import Scope

TASKS = 1000
MANY = 100


def measure(count: int, seed: int) -> dict[str, list[float]]:
    """Return how many seconds answers took about foreign and about unknown ids."""
    dice = random.Random(seed)
    with (
        cluster.started() as postgres,
        postgres.database(template=None) as dsn,
        installation.serve(postgres, dsn) as place,
    ):
        owner = Requests(place.url, place.key)
        _, answers = send_all(owner, [owner.batch(TASKS, TRUE)], 1)
        foreign = [int(one) for one in json.loads(answers[0])["ids"]]
        cluster.run(
            place.dsn, "insert into duly.tenants (name, plan) values ('other', 'unlimited')"
        )
        stranger = Requests(place.url, installation.make_key(place.dsn, "other", Scope.READ))
        # The same ids, from another server's numbers: as long, as far apart, and nobody's.
        ids = {"foreign": foreign, "unknown": [one + (200 << 17) for one in foreign]}
        took: dict[str, list[float]] = {kind: [] for kind in ids}
        client = Client(stranger.address, (b"404", b"503"))
        for turn in range(count + MANY):
            for kind in dice.sample(sorted(ids), 2):
                request = stranger.get(f"/v1/tasks/{dice.choice(ids[kind])}")
                began = time.perf_counter()
                answer = client.ask(request)
                # A machine that is stopped for seconds tells nothing of either.
                if turn >= MANY and b'"not_found"' in answer:
                    took[kind].append(time.perf_counter() - began)
        client.socket.close()
        return took


def guessed(foreign: list[float], unknown: list[float]) -> float:
    """Return how often the better of both guesses is right: that the slower is the foreign one."""
    ranks = sorted([(one, 1) for one in foreign] + [(one, 0) for one in unknown])
    below, won = 0, 0
    for _, is_foreign in ranks:
        won += below if is_foreign else 0
        below += 1 - is_foreign
    share = won / (len(foreign) * len(unknown))
    return max(share, 1 - share)


def medians(took: list[float]) -> list[float]:
    """Return the median of each hundred answers."""
    return [statistics.median(took[at : at + MANY]) for at in range(0, len(took), MANY)]


def main() -> None:
    """Measure, and print one line for each kind and one for each guess."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing_leak", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="answers of each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    took = measure(given.count, given.seed)
    for kind, times in took.items():
        shares = ((share, percentile(times, share) * 1e6) for share in (0.05, 0.5, 0.95))
        print(f"{kind}: " + ", ".join(f"p{share * 100:.0f} {at:.1f} µs" for share, at in shares))
    foreign, unknown = took["foreign"], took["unknown"]
    print(f"guessed right of two answers: {guessed(foreign, unknown):.1%}")
    print(f"of two medians of {MANY}: {guessed(medians(foreign), medians(unknown)):.1%}")


if __name__ == "__main__":
    main()
