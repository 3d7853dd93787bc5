"""Searches that wait for a lock while something changes, compared with plain SQL.

    python tests/generators/waiting.py --minutes 10 --seed 1 --postgres 18

prints what was tried, and exits with 1 if a search differed from plain SQL, or an error did not say why. With
--fault NAME, a fault of the past is put back, and the program exits with 0 as soon as it has found it.
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
from waiting_searches import FAULTS, Counts, DifferenceError, Stage, prepare, put_back, random_case, smaller  # noqa: E402

INDEXES_OF_A_DATABASE = 28  # near has static statements for 32


def try_many(server: Server, options: argparse.Namespace, counts: Counts, faults: Counter[str]) -> None:
    """Try random cases until the time is over."""
    template = server.template(partial(put_back, fault=options.fault)) if options.fault else TEMPLATE
    begin = time.monotonic()
    numbers = itertools.count(options.first)
    while time.monotonic() - begin < 60 * options.minutes and not (faults and options.fault):
        with server.new_database(template=template) as url, Stage(server, str(url.database)) as stage:
            while stage.indexes < INDEXES_OF_A_DATABASE and time.monotonic() - begin < 60 * options.minutes:
                number = next(numbers)
                case = random_case(random.Random(f"{options.seed} {number}"))
                try:
                    stage.try_case(case, counts)
                except DifferenceError as difference:
                    for one in smaller(case):
                        with contextlib.suppress(DifferenceError):
                            stage.try_case(one, Counts())
                            continue
                        case = one
                        break
                    faults[f"{' and '.join(case.changes)}: {case.search}"] += 1
                    print(f"case {number}: {case}\n    {difference}", flush=True)


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
    print(f"\ncases: {counts.cases}, {counts.waited} of them waited; differences: {faults.total()}")
    print_table("results", counts.results)
    print_table("changes", counts.changes)
    print_table("refused", counts.refused)
    print_table("errors", counts.errors)
    print_table("differences", faults)
    sys.exit(bool(faults) != bool(options.fault))


if __name__ == "__main__":
    main()
