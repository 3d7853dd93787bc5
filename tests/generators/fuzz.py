"""Bad input of every kind: files, recipes, labels, arguments of SQL, of Python and of commands.

    python tests/generators/fuzz.py --minutes 60 --seed 1
    python tests/generators/fuzz.py --seed 1 --target records --number 123

The first prints a table of what became of the inputs, and fails if anything crashed, hung or was wrong; the second
tries one input again, and shows what happens.
"""

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else each process maps memory for a thread per core

from fuzz_commands import COMMANDS  # noqa: E402
from fuzz_files import FILES  # noqa: E402
from fuzz_processes import PROCESSES  # noqa: E402
from fuzz_sql import SQL  # noqa: E402
from fuzz_values import VALUES  # noqa: E402
from fuzzing import Tally, random_of, show, try_for  # noqa: E402
from program import temporary_folder  # noqa: E402

TARGETS = [*FILES, *VALUES, *COMMANDS, *SQL, *PROCESSES]


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--number", type=int, help="try only this input, in this process")
    options = parser.parse_args()
    chosen = [target for target in TARGETS if not options.target or target.name in options.target]
    print(f"seed {options.seed}", flush=True)
    with temporary_folder() as folder:
        if options.number is not None:
            with chosen[0].prepare(folder / chosen[0].name) as attempt:
                print(
                    "accepted" if attempt(random_of(options.seed, chosen[0].name, options.number)) else "refused"
                )
            return 0
        tallies = {}
        for target in chosen:
            seconds = options.minutes * 60 * target.share / sum(each.share for each in chosen)
            tallies[target.name] = try_for(target, folder / target.name, options.seed, seconds)
            _tell(target.name, tallies[target.name])
    print(show(tallies), flush=True)
    return int(any(tally.failures for tally in tallies.values()))


def _tell(name: str, tally: Tally) -> None:
    print(f"{name}: {tally.inputs:,} inputs", flush=True)
    for where, said in tally.failures.items():
        print(f"--- {name}: {where}\n{said}", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
