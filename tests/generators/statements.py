"""Random statements that write to small tables, each followed by a comparison with plain SQL.

    python tests/generators/statements.py --minutes 10 --seed 1 --postgres 18

prints how many of each kind were tried. It exits with 1 if a row had no key or a search differed from plain SQL,
and prints the shortest sequence of statements that leads there. With --fault NAME, a fault of the past is put
back, and the program exits with 0 as soon as it has found it.
"""

import argparse
import contextlib
import random
import sys
import time
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

from random_statements import (  # noqa: E402
    FAULTS,
    Counts,
    DifferenceError,
    Plan,
    put_back,
    smallest,
    try_world,
)
from servers import TEMPLATE, Server, find_programs, run_server  # noqa: E402

STATEMENTS_OF_A_WORLD = 200


def try_many(server: Server, options: argparse.Namespace, counts: Counts) -> int:
    """Try random worlds until the time is over; return how many differences were found."""
    template = server.template(partial(put_back, fault=options.fault)) if options.fault else TEMPLATE
    begin = time.monotonic()
    found = number = 0
    while True:
        # Not one for all: what is dropped leaves dead rows in its catalogue.
        with server.new_database(template=template) as url:
            for _ in range(40):
                if time.monotonic() - begin >= 60 * options.minutes or found >= options.differences:
                    return found
                plan = Plan(random.Random(f"{options.seed} {options.first + number}"), server.major)
                number += 1
                try:
                    try_world(server, str(url.database), counts, plan, options.statements)
                except DifferenceError as difference:
                    found += 1
                    title = f"world {options.first + number - 1}, after {time.monotonic() - begin:.0f} s"
                    print(f"{title}: {difference}", flush=True)
                    if options.as_it_is:
                        continue
                    steps, text = smallest(server, str(url.database), plan, difference)
                    print("\n".join(map(str, steps)), f"-- {text}", sep="\n", end="\n\n", flush=True)


def print_counts(counts: Counts, differences: int, seconds: float) -> None:
    """Print the tables."""
    total = counts.executed.total() + counts.refused.total()
    print(f"worlds: {counts.worlds}, {seconds:.0f} s, {total / seconds:.0f} statements/s")
    print(f"statements: {counts.executed.total()} executed, {counts.refused.total()} refused by PostgreSQL")
    print(f"checks of keys: {counts.checks}; searches with matches: {counts.with_matches}")
    print(f"differences: {differences}")
    print_table(
        "statements",
        {kind: (counts.executed[kind], counts.refused[kind]) for kind in sorted(counts.executed | counts.refused)},
    )
    print_table("searches", {name: (count,) for name, count in counts.searches.most_common()})
    print_table("errors", {name: (count,) for name, count in counts.errors.most_common(25)})


def print_table(title: str, lines: dict[str, tuple[int, ...]]) -> None:
    print(f"\n{title}")
    for name, numbers in lines.items():
        print("".join(f"{number:>9}" for number in numbers), name)


def main() -> None:
    """Try what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long to try (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed tries other statements (default: 1)")
    parser.add_argument("--first", type=int, default=1, help="the number of the first world (default: 1)")
    parser.add_argument(
        "--statements", type=int, default=STATEMENTS_OF_A_WORLD, help="in each world (default: 200)"
    )
    parser.add_argument("--differences", type=int, default=10, help="stop after so many (default: 10)")
    parser.add_argument("--as-it-is", action="store_true", help="do not look for the shortest sequence")
    parser.add_argument("--postgres", type=int, help="the major version (default: the newest)")
    parser.add_argument("--fault", choices=FAULTS, help="put this fault back and look for it")
    options = parser.parse_args()
    if options.fault:
        options.differences = 1
    programs = [p for p in find_programs() if options.postgres in (None, p.major)]
    if not programs:
        parser.error(f"there is no PostgreSQL {options.postgres or ''}")
    print(f"PostgreSQL {programs[0]}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
    counts = Counts()
    found = 0
    begin = time.monotonic()
    with run_server(programs[0]) as server, contextlib.suppress(KeyboardInterrupt):
        found = try_many(server, options, counts)
    print_counts(counts, found, time.monotonic() - begin)
    sys.exit(bool(found) != bool(options.fault))


if __name__ == "__main__":
    main()
