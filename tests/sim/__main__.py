"""Random worlds with invariants: `python -m tests.sim` runs 200, `python -m tests.sim 17` one."""

import sys
import time

from tests.sim.random_worlds import check_seed


def main(args):
    seeds = [int(each) for each in args] or range(200)
    began, rounds, failed = time.monotonic(), 0, 0
    for seed in seeds:
        try:
            rounds += check_seed(seed)
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
    took = time.monotonic() - began
    print(f"{len(seeds)} worlds, {rounds:,} rounds, {failed} failed, {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
