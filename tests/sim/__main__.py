"""python -m tests.sim --seconds N --seed S [--canary NAME]: seeds S, S+1, ... until time is up. Exit 1 at the first that fails."""

import argparse
import os
import sys
import time
from collections import Counter
from contextlib import closing

from tests.sim.canaries import CANARIES, planted
from tests.sim.episode import Episode, Failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="begin no further seed after this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trouble", type=float, default=40.0, help="simulated seconds of trouble per seed")
    parser.add_argument("--canary", choices=sorted(CANARIES), help="plant this bug: it must be found")
    options = parser.parse_args()
    began, seed, counts = time.monotonic(), options.seed, Counter[str]()
    while seed == options.seed or time.monotonic() - began < options.seconds:
        try:
            canary = CANARIES.get(options.canary)
            focus = (canary.only, canary.fsync) if canary else ()
            with planted(options.canary), closing(Episode(seed, options.trouble, *focus)) as episode:
                counts.update(episode.run().counts)
        except Failed as failed:
            print(failed, flush=True)
            if not options.canary:
                print(f"again: python -m tests.sim --seed {seed} --seconds 0 --trouble {options.trouble:g}", flush=True)
                raise
            return 1
        seed += 1
    print(f"seeds {options.seed}..{seed - 1} hold:", ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":     # sets of names must be walked in the same order every time
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
