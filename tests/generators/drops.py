"""Many histories of files that change also during runs, with drop lists that somebody applies: is a text lost?

    python tests/generators/drops.py --examples 1000 --seed 1

prints what was done, and fails with the shortest history in which a text was lost.
"""

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

from histories import Histories  # noqa: E402
from hypothesis import seed, settings  # noqa: E402
from hypothesis.stateful import run_state_machine_as_test  # noqa: E402
from program import temporary_folder  # noqa: E402


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with temporary_folder() as folder:
        Histories.parent = folder
        run_state_machine_as_test(
            seed(options.seed)(Histories),
            settings=settings(max_examples=options.examples, stateful_step_count=options.steps, deadline=None),
        )
    print(f"{Histories.runs:,} runs, {Histories.dropped:,} documents dropped, no text lost")


if __name__ == "__main__":
    main()
