"""What stops keys from being added, writes, what undoes it, and a search: it refuses, or finds all.

    python tests/generators/undone.py --minutes 10 --seed 1 --postgres 18

prints what was tried, and exits with 1 if a search missed rows, was refused without a cause, or after a repair.
With --fault NAME, a fault of the past is put back, and the program exits with 0 as soon as it has found it.
"""

import argparse
import contextlib
import itertools
import random
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

from servers import TEMPLATE, Server, find_programs, run_server  # noqa: E402
from undone_causes import FAULTS, Counts, DifferenceError, World, prepare, put_back, random_case, smallest  # noqa: E402


def try_many(server: Server, options: argparse.Namespace, counts: Counts, faults: Counter[str]) -> None:
    """Try random cases until the time is over."""
    template = server.template(partial(put_back, fault=options.fault)) if options.fault else TEMPLATE
    begin = time.monotonic()
    numbers = itertools.count(options.first)
    while time.monotonic() - begin < 60 * options.minutes and not (faults and options.fault):
        number = next(numbers)
        case = random_case(random.Random(f"{options.seed} {number}"), server.major)
        world = World(server, case, counts, template)
        counts.cases += 1
        try:
            world.run()
        except DifferenceError as difference:
            text, log = str(difference), world.log
            if not options.as_it_is:
                shorter, found, short_log = smallest(server, case, template)
                if short_log:
                    case, text, log = shorter, found, short_log
            causes = [event.kind for event in case.events if event.kind.startswith("cause")]
            faults[f"{' and '.join(causes) or case.restored}{', upgrade' if case.released else ''}"] += 1
            print(f"case {number}: {case._replace(events=())}", *log, f"-- {text}", sep="\n    ", flush=True)


def print_table(title: str, lines: Counter[str]) -> None:
    print(f"\n{title}")
    for name, number in lines.most_common():
        print(f"{number:>9} {name}")


def main() -> None:
    """Try what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long to try (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed tries other cases (default: 1)")
    parser.add_argument("--first", type=int, default=1, help="the number of the first case (default: 1)")
    parser.add_argument("--as-it-is", action="store_true", help="do not look for the shortest sequence")
    parser.add_argument("--postgres", type=int, help="the major version (default: the newest)")
    parser.add_argument("--fault", choices=FAULTS, help="put this fault back and look for it")
    options = parser.parse_args()
    programs = [p for p in find_programs() if options.postgres in (None, p.major)]
    if not programs:
        parser.error(f"there is no PostgreSQL {options.postgres or ''}")
    print(f"PostgreSQL {programs[0]}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
    counts, faults = Counts(), Counter[str]()
    with run_server(programs[0]) as server, contextlib.suppress(KeyboardInterrupt):
        prepare(server)
        try_many(server, options, counts, faults)
    print(f"\ncases: {counts.cases}; differences: {faults.total()}")
    print_table("results", counts.results)
    print_table("causes", counts.causes)
    print_table("statements that PostgreSQL or simsql refused", counts.refused)
    print_table("errors of searches and repairs", counts.messages)
    print_table("differences", faults)
    sys.exit(bool(faults) != bool(options.fault))


if __name__ == "__main__":
    main()
