"""Many connections at once, at random, for minutes, and faults of every kind: is anything lost or wrong?

    python tests/trial --minutes 10 --seed 1
    python tests/trial --minutes 10 --seed 1 --crash
"""

import argparse
import contextlib
import random
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[n] / folder) for n, folder in ((1, "support"), (1, ""), (2, ""))]

from servers import find_programs  # noqa: E402

from trial.run import Trial, connect_to, run_cluster  # noqa: E402
from trial.tally import Tally  # noqa: E402

ROUND = 20  # seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--crash", action="store_true", help="kill servers, sessions and clients, too")
    programs = {program.major: program for program in find_programs()}
    parser.add_argument("--server", type=int, choices=programs, default=max(programs), help="major version")
    options = parser.parse_args()
    program = programs[options.server]
    print(f"PostgreSQL {program}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
    tally = Tally()
    end = time.monotonic() + 60 * options.minutes
    with run_cluster(program) as cluster:
        trial = Trial(lambda: connect_to(cluster, "trial"), options.seed, tally)
        trial.prepare()
        while time.monotonic() < end and not tally.failed:
            trial.round(lambda: tally.done.wait(min(ROUND, max(1, end - time.monotonic()))))
            if not tally.failed:
                trial.check()
    print(*tally.lines(), sep="\n", flush=True)
    return int(tally.failed)


if __name__ == "__main__":
    sys.exit(main())
