"""`simsql sample`: pairs of documents to label."""

from pathlib import Path
from typing import Annotated

from simsql.cli._app import command
from simsql.cli._options import NewRecipeName, Paths, Reading, Workers, number_option, path_option
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import Telling, print_skips
from simsql.documents import STDOUT, Outputs
from simsql.errors import UsageError
from simsql.evaluate.labelled_texts import MOST_DISTANCE
from simsql.evaluate.sample import write_sample
from simsql.fingerprint import DEFAULT_RECIPE
from simsql.processes import usable_cores

# Documents with equal fingerprints count as one, and evaluate measures no larger distance.
_RANGE = f" (1 to {MOST_DISTANCE}) in a pair"


@command("sample")
def sample_command(
    *,
    paths: Paths,
    pairs: Annotated[int, number_option("--pairs", ", at least one for each distance", least=1)] = 200,
    distance: Annotated[int, number_option("--distance", _RANGE, least=1, most=MOST_DISTANCE)] = MOST_DISTANCE,
    seed: Annotated[int, number_option("--seed", least=0)] = 0,
    recipe: NewRecipeName = None,
    output: Annotated[Path | None, path_option("--output", ": .csv, .tsv, or else JSON lines")] = None,
    reading: Reading,
    workers: Workers = None,
    telling: Telling,
) -> None:
    """Draw pairs of documents to label.

    Draw the same number of random pairs at every distance from 1 to --distance, or all where there are fewer.
    Write both texts of each pair, their distance and similarity, the number of pairs that it stands for (its
    weight), and an empty label. Fill in near-duplicate, not or unsure, and run simsql evaluate. Documents with
    equal fingerprints count as one.
    """
    if pairs < distance:
        raise UsageError(f"--pairs must be at least {distance}, one for each distance, not {pairs}")
    made_by = parse_recipe(recipe) or DEFAULT_RECIPE
    outputs = Outputs({"--output": output or STDOUT})
    if recipe:
        outputs.refuse(Path(recipe))
    reader = reading.open(paths, outputs=outputs)
    write_sample(
        output,
        reader,
        telling.stages(),
        pairs=pairs,
        distance=distance,
        seed=seed,
        recipe=made_by,
        workers=workers or usable_cores(),
    )
    print_skips(reader.skips, telling.console, counted=True)
    reader.skips.check_read()
