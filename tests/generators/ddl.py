"""Random statements of a table's owner, and searches that equal plain SQL or raise an error that says what to do.

    python tests/generators/ddl.py --minutes 10 --seed 1 --postgres 18

prints what was tried. It exits with 1 if a search was wrong, or an error said nothing useful, and prints the
shortest sequence of statements that leads there. With --fault NAME, a fault of the past is put back, statements
that could show it become likelier, and the program exits with 0 as soon as it has found it.
"""

import argparse
import contextlib
import random
import sys
import time
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

from random_ddl import (  # noqa: E402
    ALL,
    FAULTS,
    VISIBLE,
    Counts,
    DifferenceError,
    prepare,
    put_back,
    random_case,
    smallest,
    try_case,
)
from servers import Server, find_programs, run_server  # noqa: E402


def try_many(server: Server, options: argparse.Namespace, counts: Counts, found: list[DifferenceError]) -> None:
    """Try random cases until the time is over, and add the differences that are found, one for each case."""
    template = server.template(partial(put_back, fault=options.fault)) if options.fault else None
    begin = time.monotonic()
    number = 0
    while time.monotonic() - begin < 60 * options.minutes and not (found and options.fault):
        number += 1
        case = random_case(random.Random(f"{options.seed} {number}"), VISIBLE.get(options.fault, ()))
        try:
            try_case(server, counts, case, template)
        except DifferenceError:
            print(f"case {number}, after {time.monotonic() - begin:.0f} s:", flush=True)
            found.append(smallest(server, case, template))
            print(found[-1], end="\n\n", flush=True)


def print_counts(counts: Counts, differences: int) -> None:
    """Print the table."""
    print(f"sequences: {counts.sequences}")
    print(f"statements: {counts.executed.total()} executed, {counts.refused.total()} refused by PostgreSQL")
    print(f"searches compared: {counts.searches}, {counts.with_matches} of them with matches")
    print(f"repairs that errors asked for: {counts.repairs}")
    print(f"differences: {differences}")
    print_table("statements", {kind: (counts.executed[kind], counts.refused[kind]) for kind, _ in ALL})
    print_table("results of searches", {name: (count,) for name, count in counts.results.most_common()})
    print_table("errors of searches", {name: (count,) for name, count in counts.errors.most_common()})


def print_table(title: str, lines: dict[str, tuple[int, ...]]) -> None:
    print(f"\n{title}")
    for name, numbers in lines.items():
        print("".join(f"{number:>9}" for number in numbers), name)


def main() -> None:
    """Try what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="how long to try (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed tries other statements (default: 1)")
    parser.add_argument("--postgres", type=int, help="the major version (default: the newest)")
    parser.add_argument("--fault", choices=FAULTS, help="put this fault back and look for it")
    options = parser.parse_args()
    programs = [p for p in find_programs() if options.postgres in (None, p.major)]
    if not programs:
        parser.error(f"there is no PostgreSQL {options.postgres or ''}")
    print(f"PostgreSQL {programs[0]}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
    counts = Counts()
    with run_server(programs[0]) as server:
        prepare(server)
        found: list[DifferenceError] = []
        with contextlib.suppress(KeyboardInterrupt):
            try_many(server, options, counts, found)
    print_counts(counts, len(found))
    sys.exit(bool(found) != bool(options.fault))


if __name__ == "__main__":
    main()
