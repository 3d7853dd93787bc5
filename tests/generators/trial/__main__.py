"""Many connections at once, at random, for minutes, and faults of every kind: is anything lost or wrong?

python tests/generators/trial --minutes 10 --seed 1
python tests/generators/trial --minutes 10 --seed 1 --crash
"""

import argparse
import contextlib
import random
import signal
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[n] / folder) for n, folder in ((2, "support"), (1, ""), (3, ""))]

from program import temporary_folder  # noqa: E402
from servers import find_programs  # noqa: E402

from trial.clients import all_clients  # noqa: E402
from trial.faults import Crashes  # noqa: E402
from trial.run import Cluster, Trial, run_cluster  # noqa: E402
from trial.sabotage import KINDS as BROKEN  # noqa: E402
from trial.sabotage import SABOTAGES  # noqa: E402
from trial.tables import KINDS  # noqa: E402
from trial.tally import Tally  # noqa: E402
from trial.texts import Texts  # noqa: E402

ROUND = 20  # seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--crash", action="store_true", help="kill servers, sessions and clients, too")
    parser.add_argument("--sabotage", choices=SABOTAGES, help="break something, which has to be noticed")
    programs = {program.major: program for program in find_programs()}
    parser.add_argument("--server", type=int, choices=programs, default=max(programs), help="major version")
    options = parser.parse_args()
    program = programs[options.server]
    print(f"PostgreSQL {program}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
    # What a shell starts in the background ignores SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    tally = Tally()
    try:
        with run_cluster(program) as cluster, contextlib.suppress(KeyboardInterrupt):
            run(cluster, options, tally)
    finally:
        print(*tally.lines(), sep="\n", flush=True)
    return int(tally.failed)


def run(cluster: Cluster, options: argparse.Namespace, tally: Tally) -> None:
    """Work until the time is over or something is found."""
    end = time.monotonic() + 60 * options.minutes
    kinds = BROKEN if options.sabotage else KINDS
    trial = Trial(lambda: cluster.connect("trial"), options.seed, tally, kinds, is_kept_up=not options.sabotage)
    trial.prepare()
    if options.sabotage:
        with contextlib.closing(trial.connect()) as connection:
            SABOTAGES[options.sabotage](connection)
    if options.crash:
        with temporary_folder() as folder, all_clients(cluster, folder) as clients:
            crashes = Crashes(cluster, trial, clients, options.seed, tally)
            while time.monotonic() < end and not tally.failed:
                crashes.round()
                print(tally, flush=True)
        return
    texts = Texts(lambda: cluster.connect("texts"), options.seed, tally)
    texts.prepare()
    while time.monotonic() < end and not tally.failed:
        seconds = min(ROUND, max(1, end - time.monotonic()))
        trial.round(lambda _, seconds=seconds: tally.done.wait(seconds), texts.jobs())
        if not tally.failed:
            trial.check()
            texts.check()
        print(tally, flush=True)


if __name__ == "__main__":
    sys.exit(main())
