"""Random cases of one kind, and searches that equal plain SQL or raise an error that says what to do.

    python tests/generators/cases.py ddl --minutes 10 --seed 1 --postgres 18

prints what was tried. It exits with 1 if a search was wrong, or an error said nothing useful, and prints the
shortest case that leads there. With --fault NAME, a fault of the past is put back, and the program exits with 0 as
soon as it has found it.
"""

import argparse
import contextlib
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

import random_ddl  # noqa: E402
import random_statements  # noqa: E402
import undone_causes  # noqa: E402
import waiting_searches  # noqa: E402
from attempts import Attempts  # noqa: E402
from servers import find_programs, run_server  # noqa: E402

KINDS = {
    "ddl": random_ddl,
    "statements": random_statements,
    "undone": undone_causes,
    "waiting": waiting_searches,
}


def main() -> None:
    """Try what the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--minutes", type=float, default=10, help="how long to try (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="another seed tries other cases (default: 1)")
    parser.add_argument("--first", type=int, default=1, help="the number of the first case (default: 1)")
    parser.add_argument("--as-it-is", action="store_true", help="do not look for the shortest case")
    parser.add_argument("--postgres", type=int, help="the major version (default: the newest)")
    parser.add_argument("--fault", help="put this fault back and look for it")
    options = parser.parse_args()
    kind = KINDS[options.kind]
    if options.fault not in (None, *kind.FAULTS):
        parser.error(f"--fault: choose from {', '.join(kind.FAULTS)}")
    programs = [p for p in find_programs() if options.postgres in (None, p.major)]
    if not programs:
        parser.error(f"there is no PostgreSQL {options.postgres or ''}")
    print(f"PostgreSQL {programs[0]}, seed {options.seed}, {options.minutes:g} minutes", flush=True)
    counts = kind.Counts()
    with run_server(programs[0]) as server:
        attempts = Attempts(server, options, kind.FAULTS.get(options.fault, ()))
        with contextlib.suppress(KeyboardInterrupt):
            kind.try_many(attempts, counts)
    print_counts(vars(counts) | {"differences": attempts.differences})
    sys.exit(bool(attempts.differences) != bool(options.fault))


def print_counts(counts: dict[str, int | Counter[str]]) -> None:
    """Print the numbers, and then the tables."""
    for name, count in sorted(counts.items(), key=lambda item: isinstance(item[1], Counter)):
        if not isinstance(count, Counter):
            print(f"{name}: {count}")
            continue
        print(f"\n{name}: {count.total()}")
        for what, number in count.most_common():
            print(f"{number:>9} {what}")


if __name__ == "__main__":
    main()
